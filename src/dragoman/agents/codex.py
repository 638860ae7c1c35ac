"""Codex: `-c key=value` before the user's arguments, which overrides profiles and settings files for this run.

It supports OpenAI Responses only. The key is in a variable of its own, so that the user's variables stay unchanged.
"""

import json
from typing import Final

from dragoman.agents import Agent, LaunchContext, LaunchPlan

_KEY: Final = "CODEX_DRAGOMAN_KEY"
_IDLE_MS: Final = 1_800_000
"""Codex gives up on a stream without events after five minutes. A local model may read a long prompt for longer, and
Codex does not count pings, which are comments.
"""
_COMPACT_FRACTION: Final = 0.85
"""Fraction of the context at which it compacts, which leaves room for the response; Codex accepts at most 0.9."""


def launch(context: LaunchContext) -> LaunchPlan:
    """Returns its command, with our settings before the user's arguments: the later of two wins."""
    provider = {
        "name": "Dragoman",
        "base_url": f"{context.url}/v1",
        "env_key": _KEY,
        "wire_api": "responses",
        "stream_idle_timeout_ms": _IDLE_MS,
    }
    settings: dict[str, object] = {
        "model": context.model,
        "model_provider": "dragoman",
        "review_model": context.model,
        **{f"model_providers.dragoman.{name}": value for name, value in provider.items()},
        "analytics.enabled": False,
        "check_for_update_on_startup": False,
        "web_search": "live" if context.has_web_search else "disabled",  # the vendor's tool, not the model's
        **({} if context.has_reasoning else {"model_reasoning_effort": "none", "model_reasoning_summary": "none"}),
    }
    if context.context_window:
        settings["model_context_window"] = context.context_window
        settings["model_auto_compact_token_limit"] = round(context.context_window * _COMPACT_FRACTION)
    # TOML rejects JSON's escapes of characters beyond the BMP.
    written = (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in settings.items())
    ours = (word for setting in written for word in ("-c", setting))
    return LaunchPlan((context.program, *ours, *context.args), {_KEY: context.key})


AGENT: Final = Agent(
    title="Codex",
    programs=("codex",),
    install="npm install -g @openai/codex",
    source="https://developers.openai.com/codex/config-reference (2026-11); tried with 0.169.0",
    launch=launch,
    prompt_tokens=8_600,
    tools=("exec_command", "apply_patch", "write_stdin", "functions__exec", "functions__wait"),
)
