"""The outbox: what waits, what is dropped, and what happens when a client deletes a response that waits."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import pytest

from dragoman.core import messages as v
from dragoman.core.errors import BackendUnavailableError
from dragoman.gateway.storage.response_outbox import ResponseOutbox
from dragoman.gateway.storage.response_store import ResponseStore
from dragoman.gateway.storage.stored_response import StoredResponse, decode, encode
from dragoman.state.memory_store import MemoryStateStore
from dragoman.state.store import StateKind
from support.gateway import until

T = TypeVar("T")
LATER_S = 1000.0
"""The thread of the outbox does nothing before the end of a test."""
KIND = StateKind("responses", encode, decode, 60, is_renewed=True)


class Store(MemoryStateStore):
    """A store that can be down, and that refuses keys which begin with `refused`."""

    does_io = True

    def __init__(self) -> None:
        super().__init__()
        self.is_down = False
        self.puts = 0

    def put(self, kind: StateKind[T], key: str, value: T, size_bytes: int, then_used: Sequence[str] = ()) -> None:
        self.puts += 1
        if self.is_down or key.startswith("refused"):
            raise BackendUnavailableError("the store cannot be used now", retry_after_s=1.0)
        super().put(kind, key, value, size_bytes, then_used)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def outbox(store: Store, clock: Clock) -> Iterator[ResponseOutbox]:
    outbox = ResponseOutbox(store, KIND, 1000, LATER_S, clock)
    yield outbox
    store.is_down = False
    outbox.close()


def response(text: str = "x") -> StoredResponse:
    return StoredResponse((), (), (v.Text(text),), b"{}")


def test_store_that_failed_is_not_tried_by_each_response(store: Store, outbox: ResponseOutbox) -> None:
    store.is_down = True
    outbox.put("a", response(), 1, ())
    tried = store.puts
    store.is_down = False
    outbox.put("b", response(), 1, ())
    assert (len(outbox), tried) == (2, 1)
    outbox.flush()
    assert (len(outbox), store.usage(KIND)) == (0, (2, 2))
    outbox.put("c", response(), 1, ())
    assert store.usage(KIND)[0] == 3, "stored at once again"


def test_oldest_response_is_dropped_at_the_limit(
    store: Store, outbox: ResponseOutbox, caplog: pytest.LogCaptureFixture
) -> None:
    store.is_down = True
    for id in "abc":
        outbox.put(id, response(), 400, ())
    assert [outbox.get(id) is not None for id in "abc"] == [False, True, True]
    assert outbox.dropped == 1
    assert "a response could not be stored and cannot be continued" in caplog.text


def test_refused_response_is_dropped_and_holds_up_no_other(store: Store, outbox: ResponseOutbox, clock: Clock) -> None:
    outbox.put("refused", response(), 1, ())
    for number in range(10):
        clock.now_s += 2 * LATER_S
        outbox.put(str(number), response(), 1, ())
        assert store.get(KIND, str(number)) is not None
        outbox.flush()
    assert (len(outbox), outbox.dropped) == (0, 1)


def test_response_that_waits_can_be_deleted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    responses = ResponseStore(store)
    store.is_down = True
    text = (v.Message("user", (v.Text("hi"),)),)
    asked = responses.resolve(v.Request("m", text, store=True))
    waits = ResponseOutbox(store, KIND, retry_s=LATER_S)
    monkeypatch.setattr(responses, "_outbox", waits)
    responses.add(asked, v.Reply("1", "m", 0, (v.Text("x"),), "stop"), b"{}")
    assert responses.response_body("1") == b"{}"
    assert responses.delete("1")
    assert responses.response_body("1") is None
    store.is_down = False
    responses.close()
    assert len(responses) == 0


def test_response_deleted_while_it_is_written_is_not_stored(store: Store, outbox: ResponseOutbox) -> None:
    store.is_down = True
    outbox.put("a", response(), 1, ())
    store.is_down = False
    write = store.put

    def put(*args: object) -> None:
        outbox.discard("a")
        write(*args)  # type: ignore[arg-type]

    store.put = put  # type: ignore[method-assign]
    outbox.flush()
    assert (len(outbox), store.usage(KIND)) == (0, (0, 0))


def test_closing_stores_what_waits_or_reports_it(
    store: Store, outbox: ResponseOutbox, caplog: pytest.LogCaptureFixture
) -> None:
    store.is_down = True
    outbox.put("a", response(), 1, ())
    outbox.close()
    assert "1 responses were not stored" in caplog.text
    store.is_down = False
    outbox.put("b", response(), 1, ())
    outbox.close()
    assert store.usage(KIND)[0] == 2


def test_thread_stores_what_waits_when_the_store_works(store: Store) -> None:
    outbox = ResponseOutbox(store, KIND)
    store.is_down = True
    outbox.put("a", response(), 1, ())
    store.is_down = False
    until(lambda: not len(outbox))
    assert store.get(KIND, "a") == response()
