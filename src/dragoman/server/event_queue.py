"""Events, or bytes, on their way from a backend to one client: all that have come since the last look, or silence.

    backend task:  inbox.put(event), then `await inbox.room()` while it is `full`; at last inbox.end()
    client's task: events, ended = await inbox.take(silence_s)      no event and no end: silence

One timer stands for the whole stream and is looked at when it rings, not set anew for each event: that and no
queue in between make a delta a quarter cheaper than `asyncio.timeout` around `asyncio.Queue.get`.
"""

import asyncio
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """For one writer and one reader, of one event loop."""

    def __init__(self, limit_events: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = limit_events
        self._events: list[T] = []
        self._ended = False
        self._reader: asyncio.Future[None] | None = None  # waits for an event
        self._writer: asyncio.Future[None] | None = None  # waits for room
        self._due_s = 0.0  # when the silence is too long, in the loop's time
        self._timer: asyncio.TimerHandle | None = None  # rings then or earlier

    @property
    def full(self) -> bool:
        """The reader is slow: the writer should wait."""
        return len(self._events) >= self._limit

    def put(self, event: T) -> None:
        """One more."""
        self._events.append(event)
        _wake(self._reader)

    def end(self) -> None:
        """Nothing more comes."""
        self._ended = True
        _wake(self._reader)

    async def room(self) -> None:
        """Wait until the reader has taken what is there."""
        while self.full:
            self._writer = self._loop.create_future()
            await self._writer

    async def take(self, silence_s: float) -> tuple[Sequence[T], bool]:
        """All events that are there, and whether they are the last; waits for one, but not longer than that."""
        if not self._events and not self._ended:
            self._ring_at(self._loop.time() + silence_s)
            self._reader = self._loop.create_future()
            await self._reader
        events, self._events = self._events, []
        _wake(self._writer)
        return events, self._ended

    def close(self) -> None:
        """The reader takes nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    def _ring_at(self, due_s: float) -> None:
        self._due_s = due_s
        if self._timer is not None and self._timer.when() > due_s:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(due_s, self._rung)

    def _rung(self) -> None:
        self._timer = None
        if self._reader is None or self._reader.done():
            return
        if self._loop.time() >= self._due_s:
            _wake(self._reader)
        else:
            self._ring_at(self._due_s)


def _wake(sleeper: "asyncio.Future[None] | None") -> None:
    if sleeper is not None and not sleeper.done():
        sleeper.set_result(None)
