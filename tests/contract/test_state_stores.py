"""Every state store behaves the same."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from dragoman.state.memory_store import MemoryStateStore
from dragoman.state.store import StateKind, StateStore

TEXTS: Final = StateKind("texts", str.encode, bytes.decode, ttl_s=60, max_entries=3, max_bytes=100)
RENEWED: Final = StateKind("renewed", str.encode, bytes.decode, ttl_s=60, is_renewed=True, max_entries=3, max_bytes=100)
KEYS: Final = ("plain", "", "a:b/c*?[x]", "ключ", "half \ud800 surrogate", "x" * 2000, "new\nline\0zero")


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> StateStore:
    return MemoryStateStore(clock)


@pytest.mark.parametrize("key", KEYS, ids=range(len(KEYS)))
def test_value_is_found_under_its_key_and_kind(store: StateStore, key: str) -> None:
    store.put(TEXTS, key, "value", 5)
    assert store.get(TEXTS, key) == "value"
    assert store.get(RENEWED, key) is None
    assert store.delete(TEXTS, key)
    assert not store.delete(TEXTS, key)
    assert store.get(TEXTS, key) is None


def test_values_come_in_the_order_of_the_keys(store: StateStore) -> None:
    store.put(TEXTS, "a", "1", 1)
    store.put(TEXTS, "b", "2", 1)
    assert store.get_many(TEXTS, ["b", "missing", "a", "b"]) == ["2", None, "1", "2"]
    assert store.get_many(TEXTS, []) == []


def test_later_value_replaces_earlier(store: StateStore) -> None:
    store.put(TEXTS, "a", "1", 40)
    store.put(TEXTS, "a", "2", 50)
    assert store.get(TEXTS, "a") == "2"
    assert store.usage(TEXTS) == (1, 50)


def test_value_goes_after_its_time(store: StateStore, clock: Clock) -> None:
    store.put(TEXTS, "a", "1", 1)
    store.put(RENEWED, "a", "1", 1)
    clock.now_s += 40
    assert store.get(TEXTS, "a") == store.get(RENEWED, "a") == "1"
    clock.now_s += 40
    assert store.get(TEXTS, "a") is None
    assert store.get(RENEWED, "a") == "1", "each read gives it its whole time again"
    clock.now_s += 61
    assert store.get(RENEWED, "a") is None


def test_least_recently_used_goes_first(store: StateStore) -> None:
    for key in "abc":
        store.put(RENEWED, key, key, 1)
    store.get_many(RENEWED, ["b", "a"])
    store.put(RENEWED, "d", "d", 1)
    assert store.get_many(RENEWED, ["a", "b", "c", "d"]) == ["a", "b", None, "d"]
    store.put(RENEWED, "large", "x", 98)
    assert store.usage(RENEWED) == (3, 100)


def test_only_one_of_many_claims_a_key(store: StateStore) -> None:
    start = threading.Barrier(8)

    def claim(number: int) -> bool:
        start.wait()
        return store.put_if_absent(TEXTS, "claim", str(number), 1)

    with ThreadPoolExecutor(8) as threads:
        won = list(threads.map(claim, range(8)))
    assert sum(won) == 1
    assert store.get(TEXTS, "claim") == str(won.index(True))


def test_claim_ends_with_its_time(store: StateStore, clock: Clock) -> None:
    assert store.put_if_absent(TEXTS, "claim", "1", 1)
    assert not store.put_if_absent(TEXTS, "claim", "2", 1)
    clock.now_s += 61
    assert store.put_if_absent(TEXTS, "claim", "3", 1)


def test_log_has_what_was_added_after_a_position(store: StateStore) -> None:
    store.append("news", b"before")
    position, values = store.read_log("news")
    assert values == []
    store.append("news", b"1")
    store.append("other", b"x")
    store.append("news", b"2")
    page = store.read_log("news", position)
    assert page.values == [b"1", b"2"]
    assert store.read_log("news", page.position).values == []
    assert store.read_log("news", position).values == [b"1", b"2"], "each reader has a position of its own"


def test_nothing_is_lost_by_writers_at_the_same_time(store: StateStore) -> None:
    position = store.read_log("news").position
    write: Callable[[int], None] = lambda number: store.append("news", b"%d" % number)  # noqa: E731
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(200)))
    assert sorted(store.read_log("news", position).values) == sorted(b"%d" % number for number in range(200))


def test_closed_store_opens_again(store: StateStore) -> None:
    store.close()
    store.put(TEXTS, "a", "1", 1)
    assert store.get(TEXTS, "a") == "1"
    store.close()
