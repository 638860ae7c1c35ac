"""Claude Code: variables, also passed as `--settings` for this run, which override the user's settings files.

A variable in the `env` of a settings file overrides that of the shell; only `--settings` overrides both. The key is set
as a token (`ANTHROPIC_AUTH_TOKEN`): for an API key, Claude Code asks at the first start, and stores the answer.
"""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from dragoman.agents import Agent, LaunchContext, LaunchPlan, deep_merge, drop_option, get_option, key_names

_ROLE_VARIABLES: Final = (
    "ANTHROPIC_MODEL",
    "ANTHROPIC_SMALL_FAST_MODEL",
    "ANTHROPIC_DEFAULT_FABLE_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "CLAUDE_CODE_SUBAGENT_MODEL",
)
"""All its roles use one model: it would request the others from its vendor's."""
_CLOUD_VARIABLES: Final = (
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_VERTEX",
)
"""If one of them is set, Claude Code sends its requests there."""
_SETTINGS: Final = "settings.json"
_MODES: Final = ("--permission-mode", "--dangerously-skip-permissions")
"""Its options for the permission mode, which override all settings."""
_MODE: Final = "default"
"""The permission mode that asks before each edit and command."""
_COMPACT_TOKENS: Final = 100_000
"""The smallest window that it accepts for compaction, in tokens; for a smaller context it uses the context itself."""


def launch(context: LaunchContext) -> LaunchPlan:
    """Returns its command, with our settings before the user's arguments."""
    wires: dict[str, str] = {
        "ANTHROPIC_BASE_URL": context.url,
        "ANTHROPIC_AUTH_TOKEN": context.key,
        "ANTHROPIC_API_KEY": "",
        **dict.fromkeys(_ROLE_VARIABLES, context.model),
    }
    args, read = context.args, None
    if (theirs := get_option(args, "--settings")) is not None and (read := _read(theirs, context)) is not None:
        args = drop_option(args, "--settings")
    defaults, notes = _defaults(context, [*([read] if read is not None else ()), *_settings(context)])
    settings: object = {
        "env": {**wires, **dict.fromkeys(_CLOUD_VARIABLES, "")},
        "model": context.model,
        "apiKeyHelper": "",
    }
    settings = deep_merge(settings, defaults)
    settings, status_line = (
        (settings, settings) if read is None else (deep_merge(settings, read), deep_merge(settings, key_names(read)))
    )
    eases = context.unset(
        CLAUDE_CODE_ATTRIBUTION_HEADER="0",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY="1",
        **({"CLAUDE_CODE_DISABLE_TERMINAL_TITLE": "1"} if context.progress is not None else {}),
        **_context_variables(context),
        **({} if context.has_reasoning else {"CLAUDE_CODE_DISABLE_THINKING": "1", "MAX_THINKING_TOKENS": "0"}),
    )
    return LaunchPlan(
        (context.program, "--settings", str(context.folder / _SETTINGS), *args),
        {**wires, **eases, **dict.fromkeys((name for name in _CLOUD_VARIABLES if name in context.environ), None)},
        {_SETTINGS: json.dumps(settings, indent=2)},
        printed={_SETTINGS: json.dumps(status_line, indent=2)},
        notes=notes,
    )


def _defaults(context: LaunchContext, theirs: list[Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns settings that yield to the user's, and notes about them.

    In 2.1.329 its default permission mode is "auto", in which its vendor's server, or else the model in use, judges
    whether a tool call is safe. Neither is reliable behind a gateway.
    """
    defaults: dict[str, Any] = {}
    notes = list[str]()
    modes = [mode for each in theirs if (mode := _member(each, "permissions", "defaultMode")) is not None]
    requested_mode = get_option(context.args, _MODES[0]) or ("bypassPermissions" if _MODES[1] in context.args else None)
    mode = requested_mode or next(iter(modes), None)
    if mode is None:
        defaults["permissions"] = {"defaultMode": _MODE}
        notes.append(
            "Claude Code asks before it edits a file or runs a command: its auto mode needs checks by its vendor's "
            "server, which a gateway does not have; -- --permission-mode MODE sets another mode"
        )
    elif mode == "auto":
        notes.append(
            f"Claude Code runs in auto mode, as you set it: without the vendor's server, {context.model} judges which "
            "calls are safe; -- --permission-mode default asks you instead"
        )
    if context.progress is not None and not any("statusLine" in each for each in theirs if isinstance(each, dict)):
        command = f"cat {shlex.quote(str(context.progress))} 2>/dev/null"
        defaults["statusLine"] = {"type": "command", "command": command, "refreshInterval": 1}
    return defaults, tuple(notes)


def _settings(context: LaunchContext) -> Iterator[Any]:
    """Yields the user's settings files, in order of precedence."""
    project = Path(".claude")
    user = Path(context.environ.get("CLAUDE_CONFIG_DIR") or context.home / ".claude")
    for path in (project / "settings.local.json", project / _SETTINGS, user / _SETTINGS):
        try:
            yield json.loads(context.read(path) or "null")
        except ValueError:  # Claude Code reports it
            continue


def _member(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _context_variables(context: LaunchContext) -> dict[str, str]:
    """Returns the variables for the context window: Claude Code assumes 200,000 tokens or more for an unknown model."""
    if not context.context_window:
        return {}
    size = str(context.context_window)
    return {
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": size,
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(context.output_tokens),
        **({"CLAUDE_CODE_AUTO_COMPACT_WINDOW": size} if context.context_window >= _COMPACT_TOKENS else {}),
    }


def _read(settings: str, context: LaunchContext) -> object | None:
    """Returns the user's own `--settings`, JSON or a file with it; None: it is neither, which Claude Code reports."""
    text = settings if settings.lstrip().startswith("{") else context.read(Path(settings))
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
    prompt_tokens=11_000,
    assumes="Claude Code assumes 200,000 tokens or more, and would not shorten a conversation in time",
    tools=("Read", "Edit", "Write", "Bash", "Glob", "Grep"),
)
