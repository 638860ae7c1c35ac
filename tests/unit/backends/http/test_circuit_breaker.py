"""A server that fails repeatedly gets no requests until a trial request succeeds."""

import contextlib

import pytest

from dragoman.backends.http.circuit_breaker import COOL_DOWN_S, FAILURE_THRESHOLD, CircuitBreaker
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


@pytest.fixture
def breaker(clock: Clock) -> CircuitBreaker:
    return CircuitBreaker("far", clock)


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
