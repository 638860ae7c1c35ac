"""Any command: sets the variables in which the SDKs of both vendors look for the base URL, and the model's name."""

from typing import Final

from dragoman.agents import Agent, LaunchContext, LaunchPlan


def launch(wiring: LaunchContext) -> LaunchPlan:
    """Returns the command as it is, with variables that point to the gateway."""
    openai, anthropic = f"{wiring.url}/v1", wiring.url
    return LaunchPlan(
        wiring.args,
        {
            "OPENAI_BASE_URL": openai,
            "OPENAI_API_BASE": openai,
            "OPENAI_API_KEY": wiring.key,
            "OPENAI_MODEL": wiring.model,
            "OPENAI_DEFAULT_MODEL": wiring.model,
            "ANTHROPIC_BASE_URL": anthropic,
            "ANTHROPIC_API_KEY": wiring.key,
            "ANTHROPIC_AUTH_TOKEN": None,  # the SDK would send both, one of them to the wrong server
            "ANTHROPIC_MODEL": wiring.model,
        },
    )


AGENT: Final = Agent(
    title="any command",
    programs=(),
    install="",
    source="https://github.com/openai/openai-python, https://github.com/anthropics/anthropic-sdk-python, "
    "https://openai.github.io/openai-agents-python/models/ for OPENAI_DEFAULT_MODEL (2026-11)",
    launch=launch,
)
