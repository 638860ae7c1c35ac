"""Calls in reasoning that is still open: a draft, until it is known whether anything closes the reasoning.

    <think>I could write <tool_call>…</tool_call> now.</think>No.      a draft: the model only thought of the call
    <think>I need the weather.<tool_call>…</tool_call>                a call: the model forgot to close its reasoning

Only what comes later tells the two apart, so the events of a draft are held back until then.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True)
class Draft:
    """What has been read since a call began in open reasoning."""

    closer: str
    """What would close the reasoning."""
    index: int
    """Of the last call before it."""
    calls: int
    """How many there were."""
    broken: bool = False
    """A call in it is incomplete."""
    said: bool = False
    """Text has come since its last call."""
    ids: list[str] = field(default_factory=list)
    """Of its calls."""
    held: list[Callable[[], None]] = field(default_factory=list)
    """What is to be done if its calls are meant."""


class Drafts(Protocol):
    """What a sink knows of drafts."""

    @property
    def drafting(self) -> Draft | None:
        """The draft that is open."""

    def draft(self, closer: str) -> None:
        """Begin one: hold all events back from here on."""

    def settle(self, meant: bool) -> None:
        """End it: pass on what has been held back, or drop it as if it had never been read."""
