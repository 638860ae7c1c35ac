"""Circuit breakers and quota times of several replicas with one store; most tests read its log instead of a thread."""

from collections.abc import Sequence

import msgspec
import pytest

from dragoman.backends.http.circuit_breaker import COOL_DOWN_S, FAILURE_THRESHOLD, BreakerState
from dragoman.backends.quota import QuotaTimes, UpstreamQuota
from dragoman.backends.replica_breaker import ReplicaBreaker, ReplicaQuotaTimes
from dragoman.backends.replica_news import NewsEntry, ReplicaNews
from dragoman.core.errors import BackendUnavailableError, UpstreamError
from dragoman.state.memory_store import MemoryStateStore
from support.clock import Clock

SUBJECT = "breaker far"


class FailingStore(MemoryStateStore):
    is_down = False

    def append(self, log: str, value: bytes) -> None:
        if self.is_down:
            raise BackendUnavailableError("down")
        super().append(log, value)


class Replica:
    def __init__(self, store: MemoryStateStore) -> None:
        self.clock = Clock()
        self.news = ReplicaNews(store, self.clock)
        self.breaker = ReplicaBreaker("far", BreakerState(), self.news, SUBJECT, self.clock)
        self.times = ReplicaQuotaTimes(QuotaTimes(), self.news, "quota far", self.clock)
        self.quota = UpstreamQuota("far", self.times, self.clock)
        self.news.exchange()

    def fail(self, times: int = 1) -> None:
        for _ in range(times):
            with pytest.raises(UpstreamError), self.breaker.guard():
                raise UpstreamError("down")

    def succeed(self) -> None:
        with self.breaker.guard() as on_first_byte:
            on_first_byte()


@pytest.fixture
def store() -> FailingStore:
    return FailingStore()


def replicas(store: MemoryStateStore, count: int) -> list[Replica]:
    return [Replica(store) for _ in range(count)]


def exchange(all_replicas: Sequence[Replica]) -> None:
    for _ in range(2):
        for each in all_replicas:
            each.news.exchange()


def test_one_failure_opens_the_breaker_after_a_report(store: FailingStore) -> None:
    one, two = replicas(store, 2)
    one.fail(FAILURE_THRESHOLD)
    exchange([one, two])
    assert (one.breaker.state, two.breaker.state) == ("open", "closed")
    two.fail()
    assert two.breaker.state == "open"


def test_reports_of_two_replicas_open_the_breaker(store: FailingStore) -> None:
    one, two, three = replicas(store, 3)
    one.fail(FAILURE_THRESHOLD)
    exchange([one, two, three])
    two.fail()
    exchange([one, two, three])
    assert three.breaker.state == "open"
    with pytest.raises(BackendUnavailableError) as refused:
        three.breaker.ensure_closed()
    assert 1 <= (refused.value.retry_after_s or 0) <= COOL_DOWN_S


def test_success_of_one_lets_all_try_at_once(store: FailingStore) -> None:
    one, two = both = replicas(store, 2)
    for each in both:
        each.fail(FAILURE_THRESHOLD)
    exchange(both)
    one.clock.s += COOL_DOWN_S
    one.succeed()
    exchange(both)
    assert (one.breaker.state, two.breaker.state) == ("closed", "open")
    two.succeed()
    assert two.breaker.state == "closed"


def test_replica_that_reaches_the_server_ignores_those_that_do_not(store: FailingStore) -> None:
    healthy, *others = all_replicas = replicas(store, 3)
    for each in others:
        each.fail(FAILURE_THRESHOLD)
    exchange(all_replicas)
    assert healthy.breaker.state == "open"
    for each in all_replicas:
        each.clock.s += COOL_DOWN_S
    for each in others:
        each.fail()
    exchange(all_replicas)  # does not extend its cool-down
    healthy.succeed()
    for each in others:
        each.clock.s += COOL_DOWN_S
        each.fail()
    exchange(all_replicas)
    assert healthy.breaker.state == "closed"


def test_old_reports_are_ignored(store: FailingStore) -> None:
    """What others reported while this replica could not read the log."""
    one, two, late = replicas(store, 3)
    for each in (one, two):
        each.fail(FAILURE_THRESHOLD)
        each.news.exchange()
    late.clock.s += 60
    late.news.exchange()
    late.fail()
    assert late.breaker.state == "closed"


def test_report_that_could_not_be_sent_states_what_is_left(store: FailingStore) -> None:
    one, two = both = replicas(store, 2)
    store.is_down = True
    one.times.set("m", one.clock.s + 3600)
    one.fail(FAILURE_THRESHOLD)
    with pytest.raises(BackendUnavailableError):
        one.news.exchange()
    one.clock.s += 600
    store.is_down = False
    exchange(both)
    assert two.quota.limited_for_s("m") == 3000
    two.fail()
    assert two.breaker.state == "closed"  # the report of the breaker was too old


def test_limit_of_a_model_is_that_of_all_replicas(store: FailingStore) -> None:
    one, two = both = replicas(store, 2)
    two.clock.s += 1e6  # the clocks of machines differ
    two.news.exchange()
    one.quota.observe("m", UpstreamError("spent", status=429, retry_after_s=3600))
    exchange(both)
    with pytest.raises(UpstreamError, match="a limit has been reached") as refused:
        two.quota.ensure_available("m")
    assert refused.value.retry_after_s == 3600
    two.quota.ensure_available("other")
    one.quota.clear("m")
    exchange(both)
    two.quota.ensure_available("m")


@pytest.mark.parametrize(
    "value",
    [b"", b"\xff", msgspec.msgpack.encode(["x", SUBJECT, "soon"]), msgspec.msgpack.encode(["x", SUBJECT, -1.0])],
)
def test_invalid_entries_change_nothing(store: FailingStore, value: bytes) -> None:
    (one,) = replicas(store, 1)
    store.append("upstreams", value)
    store.append("upstreams", msgspec.msgpack.encode(NewsEntry("x", "quota far", float("inf"), "m")))
    one.news.exchange()
    assert one.breaker.state == "closed"
    assert 0 < one.quota.limited_for_s("m") <= 86_400


def test_thread_sends_at_once(store: FailingStore) -> None:
    one, two = replicas(store, 2)
    two.news.start()
    one.news.start()
    one.fail(FAILURE_THRESHOLD)
    one.news.close()
    two.news.close()  # reads once more
    two.fail()
    assert two.breaker.state == "open"
