"""Calls in reasoning that is still open: a draft, until the reader knows whether the reasoning is closed later.

    <think>I could write <tool_call>…</tool_call> now.</think>No.      a draft: the model only considered the call
    <think>I need the weather.<tool_call>…</tool_call>                a call: the model forgot to close its reasoning

Only later text distinguishes the two, so the events of a draft are buffered until then.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True)
class ReasoningDraft:
    """State since a call began in open reasoning."""

    closer: str
    """The marker that would close the reasoning."""
    index: int
    """Index of the last call before the draft."""
    calls: int
    """Number of calls before the draft."""
    broken: bool = False
    """True if a call in the draft is incomplete."""
    text_after_call: bool = False
    """True if text follows the draft's last call."""
    ids: list[str] = field(default_factory=list)
    """Ids of the draft's calls."""
    buffered: list[Callable[[], None]] = field(default_factory=list)
    """Actions to run if the calls turn out to be real."""


class DraftSink(Protocol):
    """The methods of a sink that handle drafts."""

    @property
    def current_draft(self) -> ReasoningDraft | None:
        """The open draft, or None."""

    def begin_draft(self, closer: str) -> None:
        """Opens a draft: buffers all events from here on."""

    def settle_draft(self, is_reply: bool) -> None:
        """Closes the draft: emits the buffered events if `is_reply`, else discards them as if they were never read."""
