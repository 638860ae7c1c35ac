"""How many requests a server gets at once: the others wait here, where they can leave, and only so many of those.

A local model answers one at a time, or a few; what waits inside a server cannot be told from what it works on, nor
stopped by all of them.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from dragoman.core.errors import BusyError

_SHORTEST_S: Final = 1.0
_LONGEST_S: Final = 60.0
_FIRST_GUESS_S: Final = 2.0
_NEWEST: Final = 0.3
"""How much of the usual time is that of the last answer."""


class Places:
    """Of one server, given in the order in which they are asked for."""

    def __init__(self, name: str, parallel: int, queue: int, now_s: Callable[[], float] = time.monotonic) -> None:
        """`parallel` 0: as many as come."""
        self._name, self._parallel, self._queue, self._now_s = name, parallel, queue, now_s
        self._free = asyncio.Semaphore(parallel) if parallel else None
        self._usual_s = _FIRST_GUESS_S
        self.active = 0
        self.waiting = 0

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """A place, from when there is one to the end of the block.

        Raises: BusyError: as many wait as may; try again when one of them should be through.
        """
        if self._free is not None:
            await self._wait(self._free)
        self.active += 1
        began_s = self._now_s()
        try:
            yield
        finally:
            self.active -= 1
            self._usual_s += _NEWEST * (self._now_s() - began_s - self._usual_s)
            if self._free is not None:
                self._free.release()

    async def _wait(self, free: asyncio.Semaphore) -> None:
        if free.locked() and self.waiting >= self._queue:
            places = "the one place" if self._parallel == 1 else f"all {self._parallel} places"
            told = f"{places} at {self._name} and the {self._queue} in its queue are taken"
            raise BusyError(told, retry_after_s=self._until_one_is_free_s())
        self.waiting += 1
        try:
            await free.acquire()
        finally:
            self.waiting -= 1

    def _until_one_is_free_s(self) -> float:
        """By how long the last answers took."""
        return min(max(self._usual_s * (self.waiting + 1) / self._parallel, _SHORTEST_S), _LONGEST_S)
