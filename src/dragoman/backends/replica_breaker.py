"""Circuit breakers and quota times that several machines share; requests read local memory only.

A replica that opens its breaker reports that. Another replica then opens its own after one failure instead of several,
and at once if two others have reported it: one replica that has lost its network does not close the server to all.
Each replica tries the server after its cool-down, which reports do not extend. The first success lets all others try at
once; the replica ignores reports for a minute then, as others may have lost their network.

A limit of an account is the same for all replicas, so a report of it applies at once.
"""

import time
from collections.abc import Callable
from typing import Final

from dragoman.backends.http.circuit_breaker import COOL_DOWN_S, FAILURE_THRESHOLD, BreakerState, CircuitBreaker
from dragoman.backends.quota import MAX_BLOCK_S, QuotaTimes
from dragoman.backends.replica_news import NewsEntry, ReplicaNews

_REPORTS_TO_OPEN: Final = 2
_MAX_LATE_S: Final = 5.0
"""A report that may be older, after an outage of the store, says nothing about the server now."""
_IGNORED_S: Final = 60.0
"""How long a replica that reached the server ignores what others report."""


class ReplicaBreaker(CircuitBreaker):
    """The circuit breaker of one server, which reports to other replicas."""

    def __init__(
        self,
        name: str,
        state: BreakerState,
        news: ReplicaNews,
        topic: str,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        name: The server's name.
        state: What this machine knows of it.
        news: The reports.
        topic: The server, for the reports.
        now_s: Monotonic clock, in seconds.
        """
        super().__init__(name, now_s, state)
        self._news, self._topic = news, topic
        self._reported_until_s: dict[str, float] = {}
        """When the cool-downs of other replicas end."""
        self._ignored_until_s = 0.0
        news.listen(topic, self)

    def end(self, trial: float | None, *, succeeded: bool, failed: bool) -> None:
        """See `CircuitBreaker`; a breaker that opens is reported.

        Args:
            trial: what `begin` returned.
            succeeded: whether the server has answered.
            failed: whether the server failed.
        """
        super().end(trial, succeeded=succeeded, failed=failed)
        if failed and self._state.failures >= FAILURE_THRESHOLD:
            self._news.publish(self._topic, COOL_DOWN_S)

    def limit_failures(self, limit: int) -> None:
        """See `CircuitBreaker`; a breaker that closes is reported."""
        was_open = self._state.failures >= FAILURE_THRESHOLD
        super().limit_failures(limit)
        if was_open:
            self._ignored_until_s = self._now_s() + _IGNORED_S
            self._news.publish(self._topic, 0.0)

    def apply(self, entry: NewsEntry) -> None:
        """Applies the report of another replica.

        It runs in another thread and takes no lock: if a request fails at the same moment, one failure may be lost.
        """
        now_s, state = self._now_s(), self._state
        if not entry.left_s:
            self._reported_until_s = {}
            if state.failures >= FAILURE_THRESHOLD:
                state.open_until_s = min(state.open_until_s, now_s)
            return
        is_open = state.failures >= FAILURE_THRESHOLD
        if is_open or entry.late_s > _MAX_LATE_S or now_s < self._ignored_until_s:
            return
        until_s = now_s + min(entry.left_s, COOL_DOWN_S)
        reported = {sender: until for sender, until in self._reported_until_s.items() if until > now_s}
        self._reported_until_s = {**reported, entry.sender: until_s}
        if len(self._reported_until_s) >= _REPORTS_TO_OPEN:
            state.open_until_s = until_s
            state.failures = FAILURE_THRESHOLD
        else:
            state.failures = FAILURE_THRESHOLD - 1


class ReplicaQuotaTimes(QuotaTimes):
    """The times of the models of one server, which are reported to other replicas."""

    def __init__(
        self, times: QuotaTimes, news: ReplicaNews, topic: str, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Args:
        times: The times that this machine knows.
        news: The reports.
        topic: The server, for the reports.
        now_s: Monotonic clock, in seconds.
        """
        self._times, self._news, self._topic, self._now_s = times, news, topic, now_s
        news.listen(topic, self)

    def get(self, model: str) -> float:
        """Returns the time of this model; 0: it has not reached a limit."""
        return self._times.get(model)

    def set(self, model: str, until_s: float) -> None:
        """Sets the time of this model, and reports it."""
        self._times.set(model, until_s)
        self._news.publish(self._topic, max(0.0, until_s - self._now_s()) if until_s else 0.0, model)

    def apply(self, entry: NewsEntry) -> None:
        """Applies the report of another replica."""
        left_s = min(entry.left_s, MAX_BLOCK_S)
        self._times.set(entry.model, self._now_s() + left_s if left_s else 0.0)
