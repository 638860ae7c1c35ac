"""Claude Code: variables, and once more as `--settings` of this run, which go over those of the user's settings files.

A variable in the `env` of a settings file goes over that of the shell; only `--settings` goes over both. The key is a
token (`ANTHROPIC_AUTH_TOKEN`): an API key would be asked about at the first start, and the answer kept.
"""

import json
from pathlib import Path
from typing import Final

from dragoman.agents import Agent, Launch, Wiring, members, merged, option, without

_ROLES: Final = (
    "ANTHROPIC_MODEL",
    "ANTHROPIC_SMALL_FAST_MODEL",
    "ANTHROPIC_DEFAULT_FABLE_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "CLAUDE_CODE_SUBAGENT_MODEL",
)
"""All that it asks a model for is asked of one: it would look for the others at its vendor's."""
_CLOUDS: Final = (
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_VERTEX",
)
"""With one of them set it would ask there."""
_SETTINGS: Final = "settings.json"
_COMPACT_TOKENS: Final = 100_000
"""It takes no smaller window to compact at, and complains of one; below, the context itself is what it goes by."""


def launch(wiring: Wiring) -> Launch:
    """Its command, with settings of ours before the user's arguments."""
    wires: dict[str, str] = {
        "ANTHROPIC_BASE_URL": wiring.url,
        "ANTHROPIC_AUTH_TOKEN": wiring.key,
        "ANTHROPIC_API_KEY": "",
        **dict.fromkeys(_ROLES, wiring.model),
    }
    settings: object = {"env": {**wires, **dict.fromkeys(_CLOUDS, "")}, "model": wiring.model, "apiKeyHelper": ""}
    shown, args = settings, wiring.args
    if (theirs := option(args, "--settings")) is not None and (read := _read(theirs, wiring)) is not None:
        settings, shown = merged(settings, read), merged(settings, members(read))
        args = without(args, "--settings")
    eases = wiring.unset(
        CLAUDE_CODE_ATTRIBUTION_HEADER="0",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY="1",
        **_room(wiring),
        **({} if wiring.thinks else {"CLAUDE_CODE_DISABLE_THINKING": "1", "MAX_THINKING_TOKENS": "0"}),
    )
    return Launch(
        (wiring.program, "--settings", str(wiring.folder / _SETTINGS), *args),
        {**wires, **eases, **dict.fromkeys((name for name in _CLOUDS if name in wiring.environ), None)},
        {_SETTINGS: json.dumps(settings, indent=2)},
        shown={_SETTINGS: json.dumps(shown, indent=2)},
    )


def _room(wiring: Wiring) -> dict[str, str]:
    """A model that it does not know it takes for one of 200,000 tokens or more."""
    if not wiring.context_tokens:
        return {}
    context = str(wiring.context_tokens)
    return {
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": context,
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(wiring.output_tokens),
        **({"CLAUDE_CODE_AUTO_COMPACT_WINDOW": context} if wiring.context_tokens >= _COMPACT_TOKENS else {}),
    }


def _read(settings: str, wiring: Wiring) -> object | None:
    """The user's own `--settings`: JSON, or a file of it; None: it is neither, which Claude Code will say."""
    text = settings if settings.lstrip().startswith("{") else wiring.read(Path(settings))
    try:
        return json.loads(text) if text is not None else None
    except ValueError:
        return None


AGENT: Final = Agent(
    title="Claude Code",
    programs=("claude",),
    install="npm install -g @anthropic-ai/claude-code",
    source="https://code.claude.com/docs/en/settings, https://code.claude.com/docs/en/env-vars, "
    "https://code.claude.com/docs/en/llm-gateway-connect (2026-11); tried with 2.1.329",
    launch=launch,
)
