"""State of backends that all processes of a gateway share: circuit breakers, concurrency slots, locks of probes.

    shared = SharedState(shared_dir)        None: the gateway has one process, and all state is in its memory
    shared.breaker("far"), shared.limiter("far", 1, 16), shared.probe_lock("far model")

The parts are files in `shared_dir`, a private folder that lasts as long as the gateway (`shared_files`). With a store
of several machines, these share circuit breakers and quota times (`replica_news`), and locks of probes.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dragoman.backends.concurrency_limit import ConcurrencyLimiter
from dragoman.backends.http.circuit_breaker import BreakerState, CircuitBreaker
from dragoman.backends.quota import QuotaTimes, SharedQuotaTimes
from dragoman.state.store import StateStore

if TYPE_CHECKING:
    from dragoman.backends.replica_news import ReplicaNews

_SEATS: Final = "seats"
_PROBE_POLL_S: Final = 0.1
"""Time between two looks whether another process has ended its probe."""


class SharedState:
    """The shared state of one gateway; each process has one object, with the same folder."""

    def __init__(self, shared_dir: Path | None = None, store: StateStore | None = None) -> None:
        """Args:
        shared_dir: The folder of all processes of the gateway; None: there is one.
        store: The store of several machines; None: there is one machine.
        """
        self._dir, self.store = shared_dir, store

    @property
    def is_shared(self) -> bool:
        """Whether there are other processes."""
        return self._dir is not None or self.store is not None

    def breaker(self, name: str, settings: bytes = b"") -> CircuitBreaker:
        """Returns the circuit breaker of the server with this name and these settings."""
        if self.store is None:
            return CircuitBreaker(name, state=self._breaker_state(name, settings))
        from dragoman.backends.replica_breaker import ReplicaBreaker

        topic = f"breaker {_digest(name, settings)}"
        return ReplicaBreaker(name, self._breaker_state(name, settings), self._news, topic)

    def quota_times(self, name: str, settings: bytes = b"") -> QuotaTimes:
        """Returns the times until which models of the server with this name and these settings reached a limit."""
        times = QuotaTimes()
        if self._dir is not None:
            times = SharedQuotaTimes(self._dir / f"quota-{_file_name(name, settings)}")
        if self.store is None:
            return times
        from dragoman.backends.replica_breaker import ReplicaQuotaTimes

        return ReplicaQuotaTimes(times, self._news, f"quota {_digest(name, settings)}")

    def limiter(self, name: str, max_concurrency: int, max_queue: int, settings: bytes = b"") -> ConcurrencyLimiter:
        """Returns the concurrency slots of the server with this name and these settings.

        Args:
            name: the server's name.
            max_concurrency: concurrent requests; 0: unlimited.
            max_queue: requests that may wait.
            settings: its settings; with other ones, as after a reload, it has slots of its own.
        """
        if self._dir is None:
            return ConcurrencyLimiter(name, max_concurrency, max_queue)
        from dragoman.backends.shared_slots import SharedConcurrencyLimiter, SlotPool

        slots = self._dir / f"slots-{_file_name(name, settings)}"
        pool = SlotPool(slots, max_concurrency, self._dir / _SEATS, self._seat)
        return SharedConcurrencyLimiter(name, max_concurrency, max_queue, pool)

    @asynccontextmanager
    async def probe_lock(self, name: str) -> AsyncIterator[None]:
        """Waits until no other process is in a block with this name."""
        if self.store is not None:
            from dragoman.backends.probe import shared_results

            async with shared_results.claim(self.store, name):
                yield
            return
        if self._dir is None:
            yield
            return
        from dragoman import shared_files

        lock = shared_files.FileLock(self._dir / f"probe-{shared_files.file_name(name)}")
        try:
            while not lock.try_acquire():
                await asyncio.sleep(_PROBE_POLL_S)
            yield
        finally:
            lock.close()

    def close(self) -> None:
        """Ends the reports to other replicas."""
        if "_news" in vars(self):
            self._news.close()

    def _breaker_state(self, name: str, settings: bytes) -> BreakerState:
        if self._dir is None:
            return BreakerState()
        from dragoman.backends.shared_breaker import SharedBreakerState

        return SharedBreakerState(self._dir / f"breaker-{_file_name(name, settings)}")

    @cached_property
    def _news(self) -> "ReplicaNews":
        from dragoman.backends.replica_news import ReplicaNews

        assert self.store is not None
        news = ReplicaNews(self.store)
        news.start()
        return news

    @cached_property
    def _seat(self) -> int:
        from dragoman import shared_files

        assert self._dir is not None
        return shared_files.claim_seat(self._dir / _SEATS)


def _file_name(name: str, settings: bytes) -> str:
    from dragoman import shared_files

    return shared_files.file_name(name + hashlib.sha256(settings).hexdigest())


def _digest(name: str, settings: bytes) -> str:
    """Returns what identifies a server on all machines."""
    return hashlib.sha256(name.encode() + b"\0" + settings).hexdigest()[:24]
