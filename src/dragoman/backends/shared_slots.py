"""Concurrency slots of one server for all processes of a gateway, first come first served.

A slot is a locked file, so the slots of a killed process are free at once. The first waiting request of each process
looks for a free slot every few milliseconds, and leaves it to a process whose first one arrived earlier. For that each
process publishes in a mapped file how many wait, when the first one arrived, and when it last looked. A process that
has not looked for long does not count: it was killed, or is stopped. For `/health` it also publishes how many run.
"""

import asyncio
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from dragoman.backends.concurrency_limit import ConcurrencyLimiter
from dragoman.shared_files import MAX_PROCESSES, FileLock, is_locked, map_file, write_mapped

_FIRST_POLL_S: Final = 0.002
_MAX_POLL_S: Final = 0.025
"""A slot that another process releases is unused for half of this time on average."""
_POLL_GROWTH: Final = 1.5
_LATE_S: Final = 0.1
"""Of a process whose last look is older, the kernel knows whether it still runs."""
_SILENT_S: Final = 5.0
"""A process whose last look is older is stopped, so that others need not wait for it."""


class _Queue(NamedTuple):
    """The waiting requests of one process."""

    waiting: float
    since_s: float
    polled_s: float


_NUMBERS: Final = 4
"""Numbers of each process: those of its queue, and its active requests."""
# Native formats copy a number at once, not byte by byte.
_QUEUE, _ACTIVE = struct.Struct("ddd"), struct.Struct("d")
_QUEUES = struct.Struct(f"{_NUMBERS * MAX_PROCESSES}d")
_ROW_BYTES: Final = _QUEUES.size // MAX_PROCESSES


class SlotPool:
    """The slots and queues of all processes, as one of them sees them."""

    def __init__(
        self, folder: Path, slots: int, seats: Path, seat: int, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """
        Args:
            folder: the folder of this server's slots; created if missing.
            slots: number of slots; 0: requests are not limited.
            seats: the folder in which each process has its number.
            seat: number of this process.
            now_s: monotonic clock of the whole machine, in seconds.
        """
        folder.mkdir(mode=0o700, exist_ok=True)
        self._slots = [FileLock(folder / str(number)) for number in range(slots)]
        self._queues = map_file(folder / "queues", _QUEUES.size)
        self._seats, self._seat, self._now_s = seats, seat, now_s
        self.publish(0, 0.0)
        self.publish_active(0)

    def take(self, since_s: float) -> FileLock | None:
        """Returns a free slot; None if there is none, or if a request of another process waits for it since earlier."""
        if any(queue.since_s < since_s for queue in self._other_queues()):
            return None
        return next((slot for slot in self._slots if slot.try_acquire()), None)

    def waiting_elsewhere(self) -> int:
        """Returns the number of waiting requests of other processes."""
        return round(sum(queue.waiting for queue in self._other_queues()))

    def publish(self, waiting: int, since_s: float) -> None:
        """Publishes how many requests of this process wait, and when the first one arrived."""
        write_mapped(self._queues, self._seat * _ROW_BYTES, _QUEUE.pack(waiting, since_s, self._now_s()))

    def active_elsewhere(self) -> int:
        """Returns the number of active requests of other processes that run."""
        active: tuple[float, ...] = _QUEUES.unpack_from(self._queues)[_NUMBERS - 1 :: _NUMBERS]
        others = ((seat, count) for seat, count in enumerate(active) if count and seat != self._seat)
        return round(sum(count for seat, count in others if is_locked(self._seats / str(seat))))

    def publish_active(self, active: int) -> None:
        """Publishes how many requests of this process are active."""
        write_mapped(self._queues, self._seat * _ROW_BYTES + _QUEUE.size, _ACTIVE.pack(active))

    def _other_queues(self) -> Iterator[_Queue]:
        now_s, rows = self._now_s(), _QUEUES.unpack_from(self._queues)
        waiting = rows[::_NUMBERS]
        if not any(waiting):
            return
        for seat in (seat for seat, count in enumerate(waiting) if count and seat != self._seat):
            queue = _Queue(*rows[_NUMBERS * seat : _NUMBERS * seat + 3])
            if self._is_polling(seat, now_s - queue.polled_s):
                yield queue

    def _is_polling(self, seat: int, silent_s: float) -> bool:
        return silent_s < _LATE_S or (silent_s < _SILENT_S and is_locked(self._seats / str(seat)))


class SharedConcurrencyLimiter(ConcurrencyLimiter):
    """A limiter whose slots and queue are those of all processes; `active` and `waiting` count this process."""

    def __init__(
        self,
        name: str,
        max_concurrency: int,
        max_queue: int,
        pool: SlotPool,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            name: the server's name, for errors.
            max_concurrency: concurrent requests of all processes; 0: unlimited.
            max_queue: requests of all processes that may wait.
            pool: the slots.
            now_s: monotonic clock of the whole machine, in seconds.
        """
        super().__init__(name, max_concurrency, max_queue, now_s)
        self._pool = pool
        self._turn = asyncio.Lock()
        """Held by the first waiting request of this process."""
        self._released = asyncio.Event()
        self._first_since_s = 0.0

    def total(self) -> tuple[int, int]:
        """Returns the numbers of active and waiting requests of all processes of the gateway."""
        return self.active + self._pool.active_elsewhere(), self.waiting + self._pool.waiting_elsewhere()

    async def begin(self, may_exceed_queue: bool) -> tuple[float, Callable[[], None]]:
        """Waits for a slot; returns when it was taken, and the function that releases it."""
        slot = await super().begin(may_exceed_queue)
        self._pool.publish_active(self.active)
        return slot

    def end(self, began_s: float, release: Callable[[], None]) -> None:
        """Releases a slot."""
        super().end(began_s, release)
        self._pool.publish_active(self.active)

    async def _take_slot(self, may_exceed_queue: bool) -> Callable[[], None]:
        if not self._max_concurrency:
            return await super()._take_slot(may_exceed_queue)
        since_s = self._now_s()
        slot = None if self.waiting else self._pool.take(since_s)
        if slot is None:
            self._enter_queue(since_s, may_exceed_queue)
            try:
                async with self._turn:
                    self._first_since_s = since_s
                    slot = await self._wait_for_slot(since_s)
            finally:
                self._count_waiting(-1)
        return partial(self._release, slot)

    def _enter_queue(self, since_s: float, may_exceed_queue: bool) -> None:
        if not self.waiting:
            self._first_since_s = since_s
        self._count_waiting(1)  # first, so that of two processes that see the last place free not both take it
        waiting = self.waiting + self._pool.waiting_elsewhere()
        if not may_exceed_queue and waiting > self._max_queue:
            self._count_waiting(-1)
            raise self._queue_full(waiting - 1)

    async def _wait_for_slot(self, since_s: float) -> FileLock:
        delay_s = _FIRST_POLL_S
        while (slot := self._pool.take(since_s)) is None:
            self._pool.publish(self.waiting, since_s)
            self._released.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._released.wait()
            delay_s = min(delay_s * _POLL_GROWTH, _MAX_POLL_S)
        return slot

    def _count_waiting(self, change: int) -> None:
        self.waiting += change
        self._pool.publish(self.waiting, self._first_since_s)

    def _release(self, slot: FileLock) -> None:
        slot.release()
        self._released.set()
