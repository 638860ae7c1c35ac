"""Describes what constrained decoding must produce: calls of the offered tools, in one format."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from dragoman.constraints.grammar import GrammarExpr

UNREADABLE: Final = "schema"
"""Reported in place of keywords if the schema is not a schema, or Python cannot read it."""


class ConstrainedCall(NamedTuple):
    """A call of one tool, as a constrained decoder must write it."""

    prefix: str
    body: GrammarExpr
    """The arguments."""
    suffix: str
    relaxed: tuple[str, ...] = ()
    """Keywords of the tool's schema that the body does not enforce; `UNREADABLE` if it enforces none."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """What a constrained decoder must write, for one format and a set of tools."""

    trigger: str
    """The text with which any call starts. If the calls are optional, only text from there on is constrained."""
    wrapper: tuple[str, str]
    """The text before the first and after the last call."""
    calls: tuple[ConstrainedCall, ...]
    """The alternatives for each call."""
    separator: str
    """The text between two calls."""
    parallel: bool
    """More than one call is allowed."""
    optional: bool = False
    """The model may answer without a call."""
