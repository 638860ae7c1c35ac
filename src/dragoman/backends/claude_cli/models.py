"""Models of the CLI, by the names that clients know, and how one is asked to think.

    opus, sonnet, haiku, fable        as the CLI itself has them: the newest of each
    claude-sonnet-4-5-20250929        by full name
    claude-code-cli/opus              either, so that it cannot be mistaken for that of another backend

Source: `claude --help` of 2.1.329; the names of claude-max-api-proxy; November 2026.
"""

import re
from collections.abc import Sequence
from typing import Final

from dragoman.backends.claude_cli.command import Spec
from dragoman.core.contracts import Model
from dragoman.core.values import Request

PREFIX: Final = "claude-code-cli/"
_ALIASES: Final = ("opus", "sonnet", "haiku", "fable")
_SHORT: Final = re.compile(r"claude-(opus|sonnet|haiku)-4")
"""Names that bridges to the CLI have for its aliases."""
_FULL: Final = re.compile(r"claude-[\w.\[\]-]+|[\w.\[\]-]+")


def listed(more: Sequence[str]) -> tuple[Model, ...]:
    """All that can be asked for by a list."""
    return tuple(Model(PREFIX + name, None, "anthropic", (name,)) for name in dict.fromkeys((*_ALIASES, *more)))


def meant(name: str) -> str | None:
    """The model's own name under the CLI, of a full name or one with the prefix; None: it is none of its."""
    bare = name.removeprefix(PREFIX)
    if bare == name and not name.startswith("claude-"):
        return None
    return name if _FULL.fullmatch(bare) else None


def spec(request: Request) -> Spec:
    """How the process for this request is started."""
    name = request.model.removeprefix(PREFIX)
    if found := _SHORT.fullmatch(name):
        name = found[1]
    effort = "low" if request.effort == "minimal" else request.effort
    if effort == "none":
        return Spec(name, "", 0, request.max_tokens or 0)
    return Spec(name, effort, None, request.max_tokens or 0)
