"""Any command: sets the variables in which the SDKs of both vendors look for the base URL, and the model's name."""

from typing import Final

from dragoman.agents import Agent, LaunchContext, LaunchPlan


def launch(context: LaunchContext) -> LaunchPlan:
    """Returns the command as it is, with variables that point to the gateway."""
    openai, anthropic = f"{context.url}/v1", context.url
    return LaunchPlan(
        context.args,
        {
            "OPENAI_BASE_URL": openai,
            "OPENAI_API_BASE": openai,
            "OPENAI_API_KEY": context.key,
            "OPENAI_MODEL": context.model,
            "OPENAI_DEFAULT_MODEL": context.model,
            "ANTHROPIC_BASE_URL": anthropic,
            "ANTHROPIC_API_KEY": context.key,
            "ANTHROPIC_AUTH_TOKEN": None,  # the SDK would send both, one of them to the wrong server
            "ANTHROPIC_MODEL": context.model,
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
