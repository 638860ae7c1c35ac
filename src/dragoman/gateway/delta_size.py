"""The size of the deltas of a stream: small ones are joined, long ones are cut.

    chunked(events, least=40, most=400)

Only text, reasoning and arguments of one call that follow one another are joined. What waits leaves before any other
event, of which the last is the end, so nothing is lost or reordered.
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import TypeAlias, TypeGuard

from msgspec.structs import replace

from dragoman.core.events import AnyEvent, ReasoningDelta, TextDelta, ToolCallDelta

_Delta: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta


class _Waiting:
    """Deltas that are one."""

    def __init__(self, least: int, most: int) -> None:
        self._least, self._most = least, most
        self._first: _Delta | None = None
        self._texts: list[str] = []
        self._size = 0

    def add(self, event: _Delta) -> Iterator[_Delta]:
        """One more; what leaves for it."""
        if self._first is not None and replace(self._first, text="") != replace(event, text=""):
            yield from self.leave()
        self._first = self._first or event
        self._texts.append(event.text)
        self._size += len(event.text)
        if self._size >= self._least:
            yield from self.leave()

    def leave(self) -> Iterator[_Delta]:
        """All that waits."""
        first, text = self._first, "".join(self._texts)
        self._first, self._texts, self._size = None, [], 0
        if first is not None:
            for at in range(0, len(text), self._most or len(text) or 1):
                yield replace(first, text=text[at : at + self._most] if self._most else text)


async def chunked(events: AsyncGenerator[AnyEvent, None], least: int, most: int) -> AsyncGenerator[AnyEvent, None]:
    """The same events with deltas of at least and at most so many characters; 0: any."""
    waiting = _Waiting(least, most)
    async with aclosing(events):
        async for event in events:
            if not _is_plain(event):
                for each in waiting.leave():
                    yield each
                yield event
                continue
            for each in waiting.add(event):
                yield each


def _is_plain(event: AnyEvent) -> TypeGuard[_Delta]:
    if isinstance(event, ReasoningDelta):
        return not (event.signature or event.redacted)
    return isinstance(event, TextDelta | ToolCallDelta)
