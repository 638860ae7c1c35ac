"""Concurrency limiter with a bounded wait queue; waiting requests can be cancelled.

A local model serves one request at a time, or a few. Requests queued inside a server cannot be told from running ones,
and not every server can cancel them; so they wait here.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from dragoman.core.errors import QueueFullError

_MIN_WAIT_S: Final = 1.0
_MAX_WAIT_S: Final = 60.0
_INITIAL_DURATION_S: Final = 2.0
_LATEST_WEIGHT: Final = 0.3
"""Weight of the latest duration in the moving average."""


class ConcurrencyLimiter:
    """The concurrency slots of one server, in FIFO order."""

    def __init__(
        self, name: str, max_concurrency: int, max_queue: int, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """
        Args:
            name: the server's name, for errors.
            max_concurrency: concurrent requests; 0: unlimited.
            max_queue: requests that may wait.
            now_s: monotonic clock, in seconds.
        """
        self._name, self._max_concurrency, self._max_queue, self._now_s = name, max_concurrency, max_queue, now_s
        self._slots = asyncio.Semaphore(max_concurrency) if max_concurrency else None
        self._mean_duration_s = _INITIAL_DURATION_S
        self.active = 0
        self.waiting = 0

    @asynccontextmanager
    async def acquire(self, *, may_exceed_queue: bool = False) -> AsyncIterator[None]:
        """Waits for a slot and holds it to the end of the block.

        Args:
            may_exceed_queue: whether to wait also if the queue is full, for a request whose response has begun.

        Raises:
            QueueFullError: the queue is full; `retry_after_s` estimates when a slot is free.
        """
        release = await self._take_slot(may_exceed_queue)
        self.active += 1
        began_s = self._now_s()
        try:
            yield
        finally:
            self.active -= 1
            self._mean_duration_s += _LATEST_WEIGHT * (self._now_s() - began_s - self._mean_duration_s)
            release()

    async def _take_slot(self, may_exceed_queue: bool) -> Callable[[], None]:
        """Waits for a slot and returns the function that releases it."""
        if self._slots is None:
            return _nothing_to_release
        if not may_exceed_queue and self._slots.locked() and self.waiting >= self._max_queue:
            raise self._queue_full(self.waiting)
        self.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.waiting -= 1
        return self._slots.release

    def _queue_full(self, waiting: int) -> QueueFullError:
        """Returns the error, with the expected wait after so many requests, from the duration of recent ones."""
        limit = "the one place" if self._max_concurrency == 1 else f"all {self._max_concurrency} places"
        message = f"{limit} at {self._name} and the {self._max_queue} in its queue are taken"
        wait_s = self._mean_duration_s * (waiting + 1) / self._max_concurrency
        return QueueFullError(message, retry_after_s=min(max(wait_s, _MIN_WAIT_S), _MAX_WAIT_S))


def _nothing_to_release() -> None:
    """Ends a request that needed no slot."""
