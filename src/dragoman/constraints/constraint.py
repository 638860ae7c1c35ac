"""What a constrained decoder must write: calls of the offered tools, in one format."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from dragoman.constraints.grammar import Piece

UNREADABLE: Final = "schema"
"""Told of a schema that is none, or that Python cannot read."""


class HeldCall(NamedTuple):
    """A call of one tool, as a constrained decoder must write it."""

    before: str
    body: Piece
    """The arguments."""
    behind: str
    relaxed: tuple[str, ...] = ()
    """The words of the tool's schema that the body does not hold the model to; `UNREADABLE` for all of it."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """What a constrained decoder must write, for one format and set of tools.

    One of `calls`, and again with `separator` between where `many`, all of it in `section`. Where the choice is
    free, only from `opener` on, with which any call begins.
    """

    opener: str
    section: tuple[str, str]
    calls: tuple[HeldCall, ...]
    separator: str
    many: bool
    free: bool = False
    """The choice is free."""
