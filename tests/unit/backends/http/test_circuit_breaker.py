"""A server that failed again and again is left alone, then tried by one."""

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
def test_failures_in_a_row_open_it(error: DragomanError, breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, error, FAILURE_THRESHOLD - 1)
    assert breaker.state == "closed"
    breaker.ensure_closed()
    fail(breaker, error)
    assert breaker.state == "open"
    clock.s += COOL_DOWN_S - 2.5
    with pytest.raises(
        BackendUnavailableError, match=f"far failed {FAILURE_THRESHOLD} times in a row and is left alone"
    ) as refused:
        breaker.ensure_closed()
    assert refused.value.retry_after_s == 3


WELL = [UpstreamError("no", status=404), UpstreamError("later", status=429), ContextOverflowError(5, 4)]


@pytest.mark.parametrize("error", WELL, ids=str)
def test_a_refusal_shows_that_it_is_well(error: DragomanError, breaker: CircuitBreaker) -> None:
    fail(breaker, BackendUnavailableError("gone"), FAILURE_THRESHOLD - 1)
    fail(breaker, error)
    fail(breaker, BackendUnavailableError("gone"), FAILURE_THRESHOLD - 1)
    assert breaker.state == "closed"


def test_so_does_an_answer(breaker: CircuitBreaker) -> None:
    fail(breaker, BackendUnavailableError("gone"), FAILURE_THRESHOLD - 1)
    with breaker.guard() as heard:
        heard()
    fail(breaker, BackendUnavailableError("gone"), FAILURE_THRESHOLD - 1)
    assert breaker.state == "closed"


def test_answers_that_all_break_in_the_middle_open_it(breaker: CircuitBreaker) -> None:
    for _ in range(FAILURE_THRESHOLD):
        with contextlib.suppress(UpstreamTimeoutError), breaker.guard() as heard:
            heard()
            raise UpstreamTimeoutError("nothing more")
    assert breaker.state == "open"


def test_an_answer_that_is_left_shows_that_it_is_well(breaker: CircuitBreaker) -> None:
    for _ in range(FAILURE_THRESHOLD):
        fail(breaker, BackendUnavailableError("gone"))
        with contextlib.suppress(GeneratorExit), breaker.guard() as heard:
            heard()
            raise GeneratorExit
    assert breaker.state == "closed"


def opened(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, BackendUnavailableError("gone"), FAILURE_THRESHOLD)
    clock.s += COOL_DOWN_S


def test_one_tries_it_then(breaker: CircuitBreaker, clock: Clock) -> None:
    opened(breaker, clock)
    with breaker.guard():
        assert breaker.state == "trying"
        with pytest.raises(BackendUnavailableError) as refused, breaker.guard():
            pass
        assert refused.value.retry_after_s == 1
        assert breaker.state == "trying", "who was refused was not the one"
    assert breaker.state == "closed"


def test_others_need_not_wait_for_the_end_of_its_answer(breaker: CircuitBreaker, clock: Clock) -> None:
    opened(breaker, clock)
    with breaker.guard() as heard:
        heard()
        breaker.ensure_closed()
        assert breaker.state == "closed"


def test_if_it_fails_it_rests_again(breaker: CircuitBreaker, clock: Clock) -> None:
    opened(breaker, clock)
    fail(breaker, BackendUnavailableError("still gone"))
    assert breaker.state == "open"
    with pytest.raises(BackendUnavailableError) as refused:
        breaker.ensure_closed()
    assert refused.value.retry_after_s == COOL_DOWN_S


def test_a_try_that_nobody_waits_for_any_more_leaves_it_to_the_next(breaker: CircuitBreaker, clock: Clock) -> None:
    opened(breaker, clock)
    fail(breaker, GeneratorExit())
    assert breaker.state == "open"
    with breaker.guard():
        assert breaker.state == "trying"
    assert breaker.state == "closed"
