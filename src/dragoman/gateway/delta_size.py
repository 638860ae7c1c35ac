"""Changes the size of a stream's deltas: joins small ones and splits long ones.

    DeltaResizer(least=40, most=400).feed(events)

Only consecutive deltas of text, of reasoning or of one call's arguments are joined. Buffered text is sent before any
other event, and the last event is always another one, so nothing is lost or reordered.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias, TypeGuard

from msgspec.structs import replace

from dragoman.core.events import AnyEvent, ReasoningDelta, TextDelta, ToolCallDelta
from dragoman.core.stage import EventStage

_Delta: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta


class _DeltaBuffer:
    """Joins deltas of the same kind."""

    def __init__(self, least: int, most: int) -> None:
        self._min_chars, self._max_chars = least, most
        self._first: _Delta | None = None
        self._texts: list[str] = []
        self._size = 0

    def feed(self, event: _Delta) -> Iterator[_Delta]:
        """Adds a delta; yields the deltas to send."""
        if self._first is not None and replace(self._first, text="") != replace(event, text=""):
            yield from self.flush()
        self._first = self._first or event
        self._texts.append(event.text)
        self._size += len(event.text)
        if self._size >= self._min_chars:
            yield from self.flush()

    def flush(self) -> Iterator[_Delta]:
        """Yields everything that is buffered."""
        first, text = self._first, "".join(self._texts)
        self._first, self._texts, self._size = None, [], 0
        if first is not None:
            for at in range(0, len(text), self._max_chars or len(text) or 1):
                yield replace(first, text=text[at : at + self._max_chars] if self._max_chars else text)


class DeltaResizer(EventStage):
    """Passes the events with deltas of another size."""

    def __init__(self, least: int, most: int) -> None:
        """
        Args:
            least: Minimum of characters in a delta, except the last one; 0: no minimum.
            most: Maximum of characters in a delta; 0: no maximum.
        """
        self._waiting = _DeltaBuffer(least, most)

    def feed(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns the deltas that have their size, and all other events."""
        out: list[AnyEvent] = []
        for event in events:
            if _is_plain(event):
                out += self._waiting.feed(event)
            else:
                out += [*self._waiting.flush(), event]
        return out


def _is_plain(event: AnyEvent) -> TypeGuard[_Delta]:
    if isinstance(event, ReasoningDelta):
        return not (event.signature or event.redacted)
    return isinstance(event, TextDelta | ToolCallDelta)
