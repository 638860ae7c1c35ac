"""Gateways on one Redis server share what they know of an upstream server; a thread of each reads the reports."""

import time
from collections.abc import Iterator

import pytest

from dragoman.backends.http.circuit_breaker import FAILURE_THRESHOLD, CircuitBreaker
from dragoman.backends.shared_state import SharedState
from dragoman.core.errors import UpstreamError
from dragoman.state.redis_store import RedisStateStore
from support import redis_server
from support.gateway import until

pytestmark = pytest.mark.skipif(redis_server.PROGRAM is None, reason="redis-server is not installed")


@pytest.fixture
def machines() -> Iterator[list[SharedState]]:
    """Three machines that have read the log at least once."""
    with redis_server.running() as server:
        stores = [RedisStateStore(server.url) for _ in range(3)]
        machines = [SharedState(store=store) for store in stores]
        one, *others = [machine.quota_times("far", b"settings") for machine in machines]

        def has_arrived() -> bool:
            one.set("model", time.monotonic() + 60)
            return all(each.get("model") for each in others)

        until(has_arrived, "reports at all machines")
        yield machines
        for machine, store in zip(machines, stores, strict=True):
            machine.close()
            store.close()


def fail(breaker: CircuitBreaker) -> None:
    for _ in range(FAILURE_THRESHOLD):
        with pytest.raises(UpstreamError), breaker.guard():
            raise UpstreamError("down")


def test_breaker_opens_after_the_reports_of_two_machines(machines: list[SharedState]) -> None:
    one, two, three = [machine.breaker("far", b"settings") for machine in machines]
    other = machines[2].breaker("far", b"other settings")
    fail(one)
    fail(two)
    until(lambda: three.state == "open", "an open breaker")
    assert other.state == "closed"


def test_model_gets_requests_again_on_all_machines(machines: list[SharedState]) -> None:
    times = [machine.quota_times("far", b"settings") for machine in machines]
    times[2].set("model", time.monotonic() + 60)
    until(lambda: times[0].get("model"), "a used-up quota")
    times[1].set("model", 0.0)
    until(lambda: not times[0].get("model") and not times[2].get("model"), "a renewed quota")
