"""A server that fails repeatedly gets no requests until a trial request succeeds."""

import contextlib
from pathlib import Path

import pytest

from dragoman.backends.http.circuit_breaker import COOL_DOWN_S, FAILURE_THRESHOLD, CircuitBreaker
from dragoman.backends.shared_breaker import SharedBreakerState
from dragoman.core.errors import (
    BackendUnavailableError,
    ContextOverflowError,
    DragomanError,
    UpstreamError,
    UpstreamTimeoutError,
)
from support.clock import Clock


def fail(breaker: CircuitBreaker, error: BaseException, times: int = 1) -> None:
    for _ in range(times):
        with contextlib.suppress(type(error)), breaker.guard():
            raise error


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "shared"])
def breaker(request: pytest.FixtureRequest, clock: Clock, tmp_path: Path) -> CircuitBreaker:
    return CircuitBreaker("far", clock, SharedBreakerState(tmp_path / "far") if request.param == "shared" else None)


FAILED = [BackendUnavailableError("gone"), UpstreamTimeoutError("nothing"), UpstreamError("bad", status=500)]


@pytest.mark.parametrize("error", FAILED, ids=lambda e: type(e).__name__)
def test_consecutive_failures_open_circuit(error: DragomanError, breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, error, FAILURE_THRESHOLD - 1)
    assert breaker.state == "closed"
    breaker.ensure_closed()
    fail(breaker, error)
    assert breaker.state == "open"
    clock.s += COOL_DOWN_S - 2.5
    with pytest.raises(
        BackendUnavailableError, match=f"far failed {FAILURE_THRESHOLD} times in a row and gets no requests"
    ) as refused:
        breaker.ensure_closed()
    assert refused.value.retry_after_s == 3


HEALTHY = [UpstreamError("no", status=404), UpstreamError("later", status=429), ContextOverflowError(5, 4)]


@pytest.mark.parametrize("error", HEALTHY, ids=str)
def test_client_error_resets_failure_count(error: DragomanError, breaker: CircuitBreaker) -> None:
    fail(breaker, BackendUnavailableError("gone"), FAILURE_THRESHOLD - 1)
    fail(breaker, error)
    fail(breaker, BackendUnavailableError("gone"), FAILURE_THRESHOLD - 1)
    assert breaker.state == "closed"


def test_response_resets_failure_count(breaker: CircuitBreaker) -> None:
    fail(breaker, BackendUnavailableError("gone"), FAILURE_THRESHOLD - 1)
    with breaker.guard() as heard:
        heard()
    fail(breaker, BackendUnavailableError("gone"), FAILURE_THRESHOLD - 1)
    assert breaker.state == "closed"


def test_responses_that_break_midway_open_circuit(breaker: CircuitBreaker) -> None:
    for _ in range(FAILURE_THRESHOLD):
        with contextlib.suppress(UpstreamTimeoutError), breaker.guard() as heard:
            heard()
            raise UpstreamTimeoutError("nothing more")
    assert breaker.state == "open"


def test_cancelled_response_resets_failure_count(breaker: CircuitBreaker) -> None:
    for _ in range(FAILURE_THRESHOLD):
        fail(breaker, BackendUnavailableError("gone"))
        with contextlib.suppress(GeneratorExit), breaker.guard() as heard:
            heard()
            raise GeneratorExit
    assert breaker.state == "closed"


def open_circuit(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, BackendUnavailableError("gone"), FAILURE_THRESHOLD)
    clock.s += COOL_DOWN_S


def test_half_open_circuit_allows_one_request(breaker: CircuitBreaker, clock: Clock) -> None:
    open_circuit(breaker, clock)
    with breaker.guard():
        assert breaker.state == "trying"
        with pytest.raises(BackendUnavailableError) as refused, breaker.guard():
            pass
        assert refused.value.retry_after_s == 1
        assert breaker.state == "trying", "the rejected request was not the trial request"
    assert breaker.state == "closed"


def test_first_event_of_trial_request_closes_circuit(breaker: CircuitBreaker, clock: Clock) -> None:
    open_circuit(breaker, clock)
    with breaker.guard() as heard:
        heard()
        breaker.ensure_closed()
        assert breaker.state == "closed"


def test_failed_trial_request_reopens_circuit(breaker: CircuitBreaker, clock: Clock) -> None:
    open_circuit(breaker, clock)
    fail(breaker, BackendUnavailableError("still gone"))
    assert breaker.state == "open"
    with pytest.raises(BackendUnavailableError) as refused:
        breaker.ensure_closed()
    assert refused.value.retry_after_s == COOL_DOWN_S


def test_cancelled_trial_request_leaves_circuit_open(breaker: CircuitBreaker, clock: Clock) -> None:
    open_circuit(breaker, clock)
    fail(breaker, GeneratorExit())
    assert breaker.state == "open"
    with breaker.guard():
        assert breaker.state == "trying"
    assert breaker.state == "closed"


def shared(path: Path, clock: Clock) -> CircuitBreaker:
    """The breaker as another process sees it."""
    return CircuitBreaker("far", clock, SharedBreakerState(path / "far"))


def test_failures_of_all_processes_open_circuit_for_all(tmp_path: Path, clock: Clock) -> None:
    one, two = shared(tmp_path, clock), shared(tmp_path, clock)
    fail(one, BackendUnavailableError("gone"), FAILURE_THRESHOLD - 1)
    fail(two, BackendUnavailableError("gone"))
    assert (one.state, two.state, shared(tmp_path, clock).state) == ("open", "open", "open")
    clock.s += COOL_DOWN_S
    with two.guard():
        assert one.state == "trying"
        with pytest.raises(BackendUnavailableError), one.guard():
            pass
    assert (one.state, two.state) == ("closed", "closed")


def test_success_of_one_process_resets_failures_of_all(tmp_path: Path, clock: Clock) -> None:
    one, two = shared(tmp_path, clock), shared(tmp_path, clock)
    fail(one, BackendUnavailableError("gone"), FAILURE_THRESHOLD - 1)
    with two.guard():
        pass
    fail(one, BackendUnavailableError("gone"), FAILURE_THRESHOLD - 1)
    assert one.state == "closed"


def test_endless_trial_does_not_block_other_processes(tmp_path: Path, clock: Clock) -> None:
    one, two = shared(tmp_path, clock), shared(tmp_path, clock)
    open_circuit(one, clock)
    with one.guard():
        clock.s += 61
        with two.guard():
            assert one.state == "trying"
        assert one.state == "closed"
    assert (one.state, two.state) == ("closed", "closed")
