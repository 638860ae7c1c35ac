"""Counts requests and tokens of the last minute, by the sliding windows of the package `limits`.

A window has two counters, of the current and the previous minute; the previous one counts less the longer it is past.
The storage is memory, files that the processes of a gateway share, or Redis.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from limits.aio.storage import MemoryStorage

log = logging.getLogger("dragoman.usage_limits")

T = TypeVar("T")

WINDOW_S: Final = 60
_UNLIMITED: Final = 1 << 52
"""A limit for corrections, which are counted in any case; Redis counts in numbers of 53 bits."""
_RETRY_S: Final = 10.0
"""Time for which memory is used after an error of the server."""


class WindowStorage(Protocol):
    """A storage of the package `limits` with sliding windows."""

    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Adds the amount if the limit allows it; returns whether it does.

        Args:
            key: The name of the window.
            limit: The maximum.
            expiry: The length of the window, in seconds.
            amount: What is added; it may be negative.
        """

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """Returns counter and time to live of the previous window, then of the current one."""


class WindowState(NamedTuple):
    """What a key has used of a limit."""

    limit: int
    previous: int = 0
    previous_ttl_s: float = 0.0
    current: int = 0
    current_ttl_s: float = 0.0
    """Time until the counter no longer counts, as the previous one in the end: up to two windows."""

    @property
    def used(self) -> float:
        """What counts now."""
        return self.previous * self.previous_ttl_s / WINDOW_S + self.current

    @property
    def remaining(self) -> int:
        """What may be used now."""
        return max(0, min(self.limit, int(self.limit - self.used)))

    @property
    def reset_s(self) -> float:
        """Time until nothing counts any more."""
        if self.current > 0:
            return self.current_ttl_s
        return self.previous_ttl_s if self.previous > 0 else 0.0

    def wait_s(self, amount: int) -> float:
        """Returns the time until this amount may be used; it is at most the limit."""
        spare = self.limit - amount
        if self.used <= spare:
            return 0.0
        if self.current <= spare and self.previous > 0:
            return max(0.0, self.previous_ttl_s - (spare - self.current) * WINDOW_S / self.previous)
        until_next_s = max(0.0, self.current_ttl_s - WINDOW_S)
        return until_next_s + (WINDOW_S * (1 - spare / self.current) if self.current > 0 else 0.0)


class RateWindows:
    """The windows of all keys."""

    def __init__(
        self,
        storage: WindowStorage,
        fallback_errors: tuple[type[Exception], ...] = (),
        on_close: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """Args:
        storage: Where the counters are.
        fallback_errors: Errors of a server, after which this process counts in its memory for some time.
        on_close: Closes the connections of the storage; None: it has none.
        """
        self._storage, self._errors, self._on_close = storage, fallback_errors, on_close
        self._memory: MemoryStorage | None = None
        self._memory_until_s = 0.0

    async def take(self, name: str, limit: int, amount: int) -> bool:
        """Counts the amount if the limit allows it.

        Args:
            name: What is counted, and for which key.
            limit: The maximum of a minute.
            amount: What is added.
        """
        return await self._call(lambda storage: storage.acquire_sliding_window_entry(name, limit, WINDOW_S, amount))

    async def add(self, name: str, amount: int) -> None:
        """Counts an amount whatever the limit is, or with a negative one gives back what was counted."""
        await self.take(name, _UNLIMITED, amount)

    async def state(self, name: str, limit: int) -> WindowState:
        """Returns what is used of the limit."""
        return WindowState(limit, *await self._call(lambda storage: storage.get_sliding_window(name, WINDOW_S)))

    async def close(self) -> None:
        """Closes the connections of the storage."""
        if self._on_close is not None:
            await self._on_close()

    async def _call(self, use: Callable[[WindowStorage], Awaitable[T]]) -> T:
        """Uses the storage, or memory while it cannot be used: then each process counts for itself."""
        if not self._errors:
            return await use(self._storage)
        if time.monotonic() >= self._memory_until_s:
            try:
                return await use(self._storage)
            except self._errors as error:
                log.warning(
                    "the server of limits.url cannot be used (%s); each process counts by itself for %g s",
                    type(error).__name__,
                    _RETRY_S,
                )
                self._memory_until_s = time.monotonic() + _RETRY_S
        if self._memory is None:
            from limits.aio.storage import MemoryStorage

            self._memory = MemoryStorage()
        return await use(self._memory)
