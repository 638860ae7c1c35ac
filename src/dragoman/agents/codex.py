"""Codex: `-c key=value` before the user's arguments, which goes over profiles and files of settings for this run.

It speaks OpenAI Responses alone. Its key stands in a variable of its own, so that the user's are as they were.
"""

import json
from typing import Final

from dragoman.agents import Agent, Launch, Wiring

_KEY: Final = "CODEX_DRAGOMAN_KEY"
_IDLE_MS: Final = 1_800_000
"""Codex gives up a stream without events after five minutes; a local model may read a long prompt for longer, and pings
are comments, which it does not count.
"""
_COMPACT_AT: Final = 0.85
"""Of the context: the answer needs room too. 0.9 is the most that Codex heeds."""


def launch(wiring: Wiring) -> Launch:
    """Its command, with settings of ours before the user's arguments: of two, the later counts."""
    provider = {
        "name": "Dragoman",
        "base_url": f"{wiring.url}/v1",
        "env_key": _KEY,
        "wire_api": "responses",
        "stream_idle_timeout_ms": _IDLE_MS,
    }
    settings: dict[str, object] = {
        "model": wiring.model,
        "model_provider": "dragoman",
        "review_model": wiring.model,
        **{f"model_providers.dragoman.{name}": value for name, value in provider.items()},
        "analytics.enabled": False,
        "check_for_update_on_startup": False,
        "web_search": "disabled",  # its vendor's, not the model's
        **({} if wiring.thinks else {"model_reasoning_effort": "none", "model_reasoning_summary": "none"}),
    }
    if wiring.context_tokens:
        settings["model_context_window"] = wiring.context_tokens
        settings["model_auto_compact_token_limit"] = round(wiring.context_tokens * _COMPACT_AT)
    # TOML refuses the escapes of letters beyond the BMP that JSON has.
    written = (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in settings.items())
    ours = (word for setting in written for word in ("-c", setting))
    return Launch((wiring.program, *ours, *wiring.args), {_KEY: wiring.key})


AGENT: Final = Agent(
    title="Codex",
    programs=("codex",),
    install="npm install -g @openai/codex",
    source="https://developers.openai.com/codex/config-reference (2026-11); tried with 0.169.0",
    launch=launch,
    prompt_tokens=8_600,
    tools=("exec_command", "apply_patch", "write_stdin", "functions__exec", "functions__wait"),
)
