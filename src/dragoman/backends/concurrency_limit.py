"""Concurrency limiter with a bounded wait queue; waiting requests can be cancelled.

A local model serves one request at a time, or a few. Requests queued inside a server cannot be told from running ones,
and not every server can cancel them; so they wait here.
"""

import asyncio
import time
from collections.abc import Callable
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

    def total(self) -> tuple[int, int]:
        """Returns the numbers of active and waiting requests of all processes of the gateway."""
        return self.active, self.waiting

    def acquire(self, *, may_exceed_queue: bool = False) -> "_Slot":
        """Returns a context manager that waits for a slot and holds it to the end of the block.

        Args:
            may_exceed_queue: whether to wait also if the queue is full, for a request whose response has begun.

        Raises:
            QueueFullError: the queue is full; `retry_after_s` estimates when a slot is free.
        """
        return _Slot(self, may_exceed_queue)

    async def begin(self, may_exceed_queue: bool) -> "tuple[float, Callable[[], None]]":
        """Waits for a slot; returns when it was taken, and the function that releases it."""
        release = await self._take_slot(may_exceed_queue)
        self.active += 1
        return self._now_s(), release

    def end(self, began_s: float, release: Callable[[], None]) -> None:
        """Releases a slot."""
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
        number = self._max_concurrency
        limit = (
            f"the one concurrency slot of {self._name} is"
            if number == 1
            else f"all {number} concurrency slots of {self._name} are"
        )
        message = f"{limit} in use and its queue of {self._max_queue} is full"
        wait_s = self._mean_duration_s * (waiting + 1) / self._max_concurrency
        return QueueFullError(message, retry_after_s=min(max(wait_s, _MIN_WAIT_S), _MAX_WAIT_S))


class _Slot:
    """Holds a slot during a block; a class, as a generator would cost three times as much."""

    __slots__ = ("_limiter", "_may_exceed_queue", "_slot")

    def __init__(self, limiter: ConcurrencyLimiter, may_exceed_queue: bool) -> None:
        self._limiter, self._may_exceed_queue = limiter, may_exceed_queue

    async def __aenter__(self) -> None:
        self._slot = await self._limiter.begin(self._may_exceed_queue)

    async def __aexit__(self, *raised: object) -> None:
        self._limiter.end(*self._slot)


def _nothing_to_release() -> None:
    """Ends a request that needed no slot."""
