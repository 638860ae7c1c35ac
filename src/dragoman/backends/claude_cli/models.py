"""Model names of the CLI as clients know them, and the settings for reasoning.

    opus, sonnet, haiku, fable        the CLI's own aliases: the newest model of each
    sonnet[1m]                        with a context window of a million tokens
    claude-sonnet-4-5-20250929        the full name, also as `claude-sonnet-4.5`
    claude-code-cli/opus              any of them, distinct from the models of other backends

Any other name is unknown; the CLI's default model is not used for it.

    effort                   `--effort` as it is, `minimal` as `low`; `none`: no reasoning
    reasoning, Messages      as the request's `thinking`: none if absent, else the budget that it names
    reasoning, other APIs    the model's default, or the effort's
    a small max_tokens       no reasoning unless requested: below `_MIN_THINKING_TOKENS` there is no room for it

Source: `claude --help` and requests of 2.1.329 (tests/e2e/claude_cli/test_mapping.py);
https://code.claude.com/docs/en/model-config; MODEL_MAP of claude-max-api-proxy and its forks;
https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking (the least budget); November 2026.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from dragoman.backends.claude_cli.command import EFFORTS, ModelSpec
from dragoman.core.backend import ServedModel
from dragoman.core.messages import Request

MESSAGES: Final = "anthropic_messages"
PREFIX: Final = "claude-code-cli/"
_PREFIXES: Final = (PREFIX, "claude-max-api-proxy/", "claude-proxy/", "maxproxy/", "anthropic/")
"""Prefixes of model names in bridges to the CLI, and in clients of several providers."""
_ALIASES: Final = ("opus", "sonnet", "haiku", "fable")
_BRIDGE_NAME: Final = re.compile(r"claude-(opus|sonnet|haiku)-4")
"""Names of the aliases in bridges to the CLI."""
_KNOWN: Final = re.compile(r"(?:opus|sonnet|haiku|fable|best|default|opusplan|claude-[\w.-]+)(?:\[1m\])?")
_VERSION: Final = re.compile(r"(?<=-\d)\.(?=\d)")
"""`4.5`, as other providers write it; the model's own service writes `4-5`."""
_MIN_THINKING_TOKENS: Final = 1024
"""The smallest budget for reasoning, in tokens; a response needs room for more."""
_EFFORT_ALIASES: Final = {"minimal": "low"}


class _Thinking(msgspec.Struct):
    type: str = ""
    budget_tokens: int | None = None


def list_models(more: Sequence[str]) -> tuple[ServedModel, ...]:
    """Returns the models of the list."""
    return tuple(ServedModel(PREFIX + name, None, "anthropic", (name,)) for name in dict.fromkeys((*_ALIASES, *more)))


def resolve_model(name: str) -> str | None:
    """Returns the model's name, or None if it is not one of the CLI's."""
    return name if _KNOWN.fullmatch(_without_prefix(name)) else None


def model_spec(request: Request) -> ModelSpec:
    """Returns the settings of a process for this request."""
    effort = _EFFORT_ALIASES.get(request.reasoning_effort, request.reasoning_effort)
    limit = request.max_tokens or 0
    return ModelSpec(_cli_name(request.model), effort if effort in EFFORTS else "", _thinking_tokens(request), limit)


def _without_prefix(name: str) -> str:
    prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), "")
    return name.removeprefix(prefix)


def _cli_name(name: str) -> str:
    bare = _without_prefix(name)
    match = _BRIDGE_NAME.fullmatch(bare)
    return match[1] if match else _VERSION.sub("-", bare)


def _thinking_tokens(request: Request) -> int | None:
    """Returns the budget for reasoning in tokens: 0 for none, None for the model's default."""
    if request.reasoning_effort == "none":
        return 0
    if request.dialect == MESSAGES:
        return _thinking_field_tokens(request.extra.get("thinking"))
    return 0 if request.max_tokens is not None and request.max_tokens <= _MIN_THINKING_TOKENS else None


def _thinking_field_tokens(thinking: msgspec.Raw | None) -> int | None:
    try:
        field = msgspec.json.decode(thinking or b"{}", type=_Thinking | None) or _Thinking()
    except msgspec.DecodeError:  # the model's service reports what is wrong; there is no reasoning
        return 0
    if field.type == "enabled" and field.budget_tokens:
        return max(field.budget_tokens, 0)
    return None if field.type == "adaptive" else 0
