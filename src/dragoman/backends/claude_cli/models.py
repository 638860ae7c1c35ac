"""Models of the CLI, by the names that clients know, and how one is asked to think.

    opus, sonnet, haiku, fable        as the CLI itself has them: the newest of each
    sonnet[1m]                        with a context of a million tokens
    claude-sonnet-4-5-20250929        by full name, also as `claude-sonnet-4.5`
    claude-code-cli/opus              any of them, so that it cannot be mistaken for that of another backend

Any other name is none of its models, rather than its default.

    effort                 `--effort` as it comes, `minimal` as `low`; `none`: no thoughts
    thoughts, Messages     as its `thinking` has it: none where it is absent, and so many tokens where it names them
    thoughts, other APIs   as the model has it by itself, or at that effort
    a short limit          no thoughts, unless they were asked for: there is no room for them below `_LEAST_TOKENS`

Source: `claude --help` and requests of 2.1.329 (tests/test_claude_cli_mapping.py);
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
"""What bridges to the CLI, and clients of several vendors, put before a name."""
_ALIASES: Final = ("opus", "sonnet", "haiku", "fable")
_SHORT: Final = re.compile(r"claude-(opus|sonnet|haiku)-4")
"""Names that bridges to the CLI have for its aliases."""
_KNOWN: Final = re.compile(r"(?:opus|sonnet|haiku|fable|best|default|opusplan|claude-[\w.-]+)(?:\[1m\])?")
_VERSION: Final = re.compile(r"(?<=-\d)\.(?=\d)")
"""`4.5`, as other vendors write it; the model's own service has `4-5`."""
_LEAST_TOKENS: Final = 1024
"""Of thoughts, which an answer must have room for."""
_LEAST_EFFORT: Final = {"minimal": "low"}


class _Thinking(msgspec.Struct):
    type: str = ""
    budget_tokens: int | None = None


def list_models(more: Sequence[str]) -> tuple[ServedModel, ...]:
    """All that can be asked for by a list."""
    return tuple(ServedModel(PREFIX + name, None, "anthropic", (name,)) for name in dict.fromkeys((*_ALIASES, *more)))


def resolve_model(name: str) -> str | None:
    """The model's own name under the CLI, of a full name or one with a prefix; None: it is none of its."""
    return name if _KNOWN.fullmatch(_without_prefix(name)) else None


def model_spec(request: Request) -> ModelSpec:
    """What a process for this request is told of the model."""
    effort = _LEAST_EFFORT.get(request.effort, request.effort)
    limit = request.max_tokens or 0
    return ModelSpec(_cli_name(request.model), effort if effort in EFFORTS else "", _thinking_tokens(request), limit)


def _without_prefix(name: str) -> str:
    prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), "")
    return name.removeprefix(prefix)


def _cli_name(name: str) -> str:
    bare = _without_prefix(name)
    found = _SHORT.fullmatch(bare)
    return found[1] if found else _VERSION.sub("-", bare)


def _thinking_tokens(request: Request) -> int | None:
    """Tokens for thoughts: 0 for none, None for as many as the model takes."""
    if request.effort == "none":
        return 0
    if request.dialect == MESSAGES:
        return _thinking_field_tokens(request.extra.get("thinking"))
    return 0 if request.max_tokens is not None and request.max_tokens <= _LEAST_TOKENS else None


def _thinking_field_tokens(thinking: msgspec.Raw | None) -> int | None:
    try:
        told = msgspec.json.decode(thinking or b"{}", type=_Thinking | None) or _Thinking()
    except msgspec.DecodeError:  # what is wrong with it is for the model's service to say; it gets none
        return 0
    if told.type == "enabled" and told.budget_tokens:
        return max(told.budget_tokens, 0)
    return None if told.type == "adaptive" else 0
