"""How the CLI is started: as a model and nothing else.

Its own tools are taken away (`--tools ""`), and with them whatever the machine has for it: settings, hooks and
CLAUDE.md (`--setting-sources ""`), and behind that servers of MCP (`--strict-mcp-config`), skills and commands
(`--disable-slash-commands`), files named in prompts; it keeps no conversation (`--no-session-persistence`). Of the
environment it gets what it needs by name, nothing else. No prompt and no secret stands in the command line, which all
of the machine can read: what is said goes through its standard input.

What an administrator orders for all of the machine (managed settings) holds for it too: that is not ours to undo.

Source: `claude --help` of 2.1.329 and code.claude.com/docs/en/cli-reference, …/env-vars (2026-11); what reaches the
model is asserted by tests/test_claude_cli_safe.py.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import dragoman

SERVER: Final = "t"
"""The name of the server of MCP that offers the client's tools: the CLI calls them `mcp__t__NAME`."""

_KEPT_VARIABLES: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "XDG_CONFIG_HOME"),
    *("SYSTEMROOT", "APPDATA", "LOCALAPPDATA", "USERPROFILE", "PATHEXT", "COMSPEC"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS"),
    *("CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR"),
)
"""What it needs to run, to reach its service, and to find its login, which is never looked at here."""

_KEYS: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
_PLAIN: Final = {"CLAUDE_CODE_SIMPLE": "1"}
"""By which it leaves out what it says of the machine: the folder, the system and its version, the shell, the date. With
it no login is read, so it is for those alone who have a key in a variable, which comes before the login anyway."""
_QUIET: Final = {
    "CLAUDE_CODE_DISABLE_ATTACHMENTS": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
    "CLAUDE_CODE_DISABLE_REFUSAL_FALLBACK": "1",
    "CLAUDE_CODE_DISABLE_REFUSAL_RETRY": "1",
    "CLAUDE_CODE_MAX_MCP_DESCRIPTION_LENGTH": "1000000",
    "DISABLE_AUTO_COMPACT": "1",
    "DISABLE_COMPACT": "1",
    "ENABLE_TOOL_SEARCH": "false",
    "FORCE_PROMPT_CACHING_5M": "1",  # as the mark that is set here: one for longer may not stand behind it
    "CLAUDE_AGENT_SDK_CLIENT_APP": f"dragoman/{dragoman.__version__}",
}


EFFORTS: Final = frozenset(("low", "medium", "high", "xhigh", "max"))
"""What it takes; any other it would pass over."""


_ONCE: Final = ("--max-budget-usd", "0.000000001")
"""With this spent, it does not ask its service again of its own accord, at somebody's cost: where an answer was cut,
where there is nothing to see of it, or where a tool was called that there is none of."""


class ModelSpec(NamedTuple):
    """What a process is told of the model; `model` when it starts, the rest then or once it runs."""

    model: str
    effort: str = ""
    thinking_tokens: int | None = None
    """0: no thoughts; None: as the model has it."""
    max_tokens: int = 0
    """More than the model can write is lowered by the CLI."""
    again: bool = False
    """It may have to answer once more, so it has no budget."""

    @property
    def warm(self) -> "ModelSpec":
        """What a process that waits must know already: it can be told the rest (`control_requests`)."""
        return ModelSpec(self.model, again=self.again)


def control_requests(spec: ModelSpec) -> list[Mapping[str, object]]:
    """What a process that runs is told of the model, as requests of the control protocol.

    Thoughts are asked for in words (`summarized`); else they come without, for a model of today.
    """
    settings: dict[str, object] = {}
    if variables := _variables(spec):
        settings["env"] = variables
    if spec.effort:
        settings["effortLevel"] = spec.effort
    told: list[Mapping[str, object]] = []
    if settings:
        told.append({"subtype": "apply_flag_settings", "settings": settings})
    if spec.thinking_tokens != 0:
        tokens: Mapping[str, object] = {"max_thinking_tokens": spec.thinking_tokens, "thinking_display": "summarized"}
        told.append({"subtype": "set_max_thinking_tokens", **tokens})
    return told


def _variables(spec: ModelSpec) -> dict[str, str]:
    own = {}
    if spec.max_tokens:
        own["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(spec.max_tokens)
    if spec.thinking_tokens == 0:
        own["CLAUDE_CODE_DISABLE_THINKING"] = "1"
    elif spec.thinking_tokens is not None:
        own["MAX_THINKING_TOKENS"] = str(spec.thinking_tokens)
    return own


def arguments(spec: ModelSpec, *, tools: bool) -> list[str]:
    """What stands behind the name of the program."""
    said = [
        *("--print", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"),
        *("--include-partial-messages", "--no-session-persistence", "--disable-slash-commands"),
        *("--setting-sources", "", "--strict-mcp-config", "--tools", "", "--name", "dragoman", "--model", spec.model),
    ]
    if tools:  # which are allowed, or it would answer calls itself, by a refusal, and ask the model again
        config = f'{{"mcpServers":{{"{SERVER}":{{"type":"sdk","name":"{SERVER}"}}}}}}'
        said += ["--mcp-config", config, "--allowedTools", f"mcp__{SERVER}"]
    if spec.effort:
        said += ["--effort", spec.effort]
    return said if spec.again else [*said, *_ONCE]


def environment(environ: Mapping[str, str], more: Sequence[str], spec: ModelSpec, retries: int) -> dict[str, str]:
    """All that it gets to see of ours, `more` beside what it needs."""
    passed = {name: environ[name] for name in (*_KEPT_VARIABLES, *more) if name in environ}
    own = {"CLAUDE_CODE_MAX_RETRIES": str(retries), **_variables(spec)}
    return {**passed, **_QUIET, **own, **(_PLAIN if any(map(passed.get, _KEYS)) else {})}
