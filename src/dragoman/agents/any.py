"""Any command: the variables by which the SDKs of both vendors find their servers, and the model's name."""

from typing import Final

from dragoman.agents import Agent, Launch, Wiring


def launch(wiring: Wiring) -> Launch:
    """The command as it stands, in an environment that leads here."""
    openai, anthropic = f"{wiring.url}/v1", wiring.url
    return Launch(
        wiring.args,
        {
            "OPENAI_BASE_URL": openai,
            "OPENAI_API_BASE": openai,
            "OPENAI_API_KEY": wiring.key,
            "OPENAI_MODEL": wiring.model,
            "OPENAI_DEFAULT_MODEL": wiring.model,
            "ANTHROPIC_BASE_URL": anthropic,
            "ANTHROPIC_API_KEY": wiring.key,
            "ANTHROPIC_AUTH_TOKEN": None,  # the SDK would send both, and one of them to the wrong place
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
