"""The command line and the environment that start the CLI as a model and nothing else.

Its own tools are disabled (`--tools ""`), and so is everything that is configured on the machine: settings, hooks and
CLAUDE.md (`--setting-sources ""`), MCP servers (`--strict-mcp-config`), skills and commands
(`--disable-slash-commands`), files that prompts name. It stores no conversation (`--no-session-persistence`). Of the
environment it gets only the variables that it needs. The command line, which every user of the machine can read,
contains no prompt and no secret: the content is sent to its standard input.

Managed settings of an administrator still apply: overriding them is not Dragoman's decision.

Source: `claude --help` of 2.1.329 and code.claude.com/docs/en/cli-reference, …/env-vars (2026-11); what reaches the
model is asserted by tests/e2e/claude_cli/test_isolation.py.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import dragoman

SERVER: Final = "t"
"""Name of the MCP server with the client's tools; the CLI names them `mcp__t__NAME`."""

_KEPT_VARIABLES: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "XDG_CONFIG_HOME"),
    *("SYSTEMROOT", "APPDATA", "LOCALAPPDATA", "USERPROFILE", "PATHEXT", "COMSPEC"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS"),
    *("CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR"),
)
"""Variables that it needs to run, to reach its service, and to find its login, which is never read here."""

_KEYS: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
_WITHOUT_MACHINE_FACTS: Final = {"CLAUDE_CODE_SIMPLE": "1"}
"""Leaves out what the CLI tells the model about the machine: folder, system and version, shell, date. It also ignores
the login, so it is set only with an API key in a variable, which has precedence over the login anyway.
"""
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
    "FORCE_PROMPT_CACHING_5M": "1",  # as the mark that is set here: a mark of a longer cache must not follow it
    "CLAUDE_AGENT_SDK_CLIENT_APP": f"dragoman/{dragoman.__version__}",
}


EFFORTS: Final = frozenset(("low", "medium", "high", "xhigh", "max"))
"""The efforts that the CLI accepts; it ignores any other."""


_NO_FURTHER_REQUESTS: Final = ("--max-budget-usd", "0.000000001")
"""With this budget, which is spent at once, the CLI does not send further requests by itself, at the user's cost: after
a truncated response, after an empty one, or after a call of a tool that does not exist.
"""


class ModelSpec(NamedTuple):
    """What a process is told about the model: `model` at its start, the rest then or once it runs."""

    model: str
    reasoning_effort: str = ""
    thinking_tokens: int | None = None
    """Budget for reasoning: 0 for none, None for the model's default."""
    max_tokens: int = 0
    """Maximum length of the response; the CLI lowers a value above the model's maximum."""
    may_reask: bool = False
    """The model may have to be re-asked, so the process gets no budget."""

    @property
    def warm(self) -> "ModelSpec":
        """Returns what a waiting process must know already; the rest can be set later by `control_requests`."""
        return ModelSpec(self.model, may_reask=self.may_reask)


def control_requests(spec: ModelSpec) -> list[Mapping[str, object]]:
    """Returns the requests of the control protocol that configure the model of a running process.

    Reasoning is requested as text (`summarized`): current models omit it otherwise.
    """
    settings: dict[str, object] = {}
    if variables := _variables(spec):
        settings["env"] = variables
    if spec.reasoning_effort:
        settings["effortLevel"] = spec.reasoning_effort
    requests: list[Mapping[str, object]] = []
    if settings:
        requests.append({"subtype": "apply_flag_settings", "settings": settings})
    if spec.thinking_tokens != 0:
        tokens: Mapping[str, object] = {"max_thinking_tokens": spec.thinking_tokens, "thinking_display": "summarized"}
        requests.append({"subtype": "set_max_thinking_tokens", **tokens})
    return requests


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
    """Returns the arguments of the command."""
    flags = [
        *("--print", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"),
        *("--include-partial-messages", "--no-session-persistence", "--disable-slash-commands"),
        *("--setting-sources", "", "--strict-mcp-config", "--tools", "", "--name", "dragoman", "--model", spec.model),
    ]
    if tools:  # allowed, because the CLI would refuse calls by itself and ask the model again
        config = f'{{"mcpServers":{{"{SERVER}":{{"type":"sdk","name":"{SERVER}"}}}}}}'
        flags += ["--mcp-config", config, "--allowedTools", f"mcp__{SERVER}"]
    if spec.reasoning_effort:
        flags += ["--effort", spec.reasoning_effort]
    return flags if spec.may_reask else [*flags, *_NO_FURTHER_REQUESTS]


def environment(
    environ: Mapping[str, str], env_passthrough: Sequence[str], spec: ModelSpec, max_retries: int
) -> dict[str, str]:
    """Returns the environment of a process.

    Args:
        environ: the gateway's environment.
        env_passthrough: names of further variables to keep.
        spec: the model and its limits.
        max_retries: how often the CLI retries a failed request.
    """
    passed = {name: environ[name] for name in (*_KEPT_VARIABLES, *env_passthrough) if name in environ}
    own = {"CLAUDE_CODE_MAX_RETRIES": str(max_retries), **_variables(spec)}
    return {**passed, **_QUIET, **own, **(_WITHOUT_MACHINE_FACTS if any(map(passed.get, _KEYS)) else {})}
