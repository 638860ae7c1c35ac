"""The breaker of a store: what it refuses, and when it tries again."""

from collections.abc import Callable

import pytest

from dragoman.core.errors import BackendUnavailableError
from dragoman.state.outage import RETRY_S, OutageBreaker


class Refused(Exception):
    """The store works, but not for this operation."""


class Store:
    """A store that fails while `error` is set."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.calls = 0
        self.error: Exception | None = None
        self.breaker = OutageBreaker("the store", (OSError,), (TimeoutError,), (Refused,), lambda: self.now_s)

    def use(self, meanwhile: Callable[[], object] = lambda: None) -> str:
        def operation() -> str:
            error = self.error
            self.calls += 1
            meanwhile()
            if error is not None:
                raise error
            return "result"

        return self.breaker.run(operation)

    def fail(self) -> BackendUnavailableError:
        with pytest.raises(BackendUnavailableError) as caught:
            self.use()
        return caught.value


def test_store_is_not_used_after_two_failures_until_its_time() -> None:
    store = Store()
    store.error = ConnectionRefusedError("redis://:secret@host")
    for _ in range(5):
        error = store.fail()
        assert error.retry_after_s == 1.0
        assert "secret" not in error.message
        assert error.__suppress_context__ or error.__context__ is None
    assert store.calls == 2
    store.now_s += RETRY_S
    store.fail()
    store.fail()
    assert store.calls == 3, "one call tries it"
    store.error = None
    store.now_s += RETRY_S
    assert store.use() == store.use() == "result"


def test_store_is_tried_by_one_call_at_a_time() -> None:
    store = Store()
    store.error = TimeoutError()
    store.fail()
    store.now_s += RETRY_S

    def others() -> None:
        for _ in range(20):
            store.now_s += 0.1
            store.fail()

    with pytest.raises(BackendUnavailableError):
        store.use(others)
    assert store.calls == 2


def test_one_timeout_is_an_outage() -> None:
    store = Store()
    store.error = TimeoutError()
    store.fail()
    store.error = None
    store.fail()
    assert store.calls == 1


def test_failures_between_successes_are_no_outage() -> None:
    store = Store()
    for _ in range(5):
        store.error = ConnectionResetError()
        store.fail()
        store.error = None
        assert store.use() == "result"


def test_refused_operations_are_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    store.error = Refused("value")
    for _ in range(5):
        store.fail()
    assert store.calls == 5
    assert [each.getMessage() for each in caplog.records] == ["the store cannot be used: Refused"]


def test_call_that_began_before_the_last_success_is_no_outage() -> None:
    store = Store()
    store.error = TimeoutError()

    def recovers() -> None:
        store.error = None
        store.now_s += 1
        store.use()

    with pytest.raises(BackendUnavailableError):
        store.use(recovers)
    assert store.use() == "result"


def test_outage_and_its_end_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    store.error = ConnectionRefusedError("nothing listens\nmore")
    for _ in range(20):
        store.fail()
        store.now_s += RETRY_S / 10
    store.error = None
    store.now_s += RETRY_S
    store.use()
    store.use()
    assert [each.getMessage() for each in caplog.records] == [
        "the store cannot be used: ConnectionRefusedError: nothing listens",
        "the store can be used again",
    ]
