"""Every state store behaves the same."""

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from dragoman.state.memory_store import MemoryStateStore
from dragoman.state.redis_store import RedisStateStore
from dragoman.state.sqlite_store import SqliteStateStore
from dragoman.state.store import StateKind, StateStore
from support import postgresql, redis_server

TEXTS: Final = StateKind("texts", str.encode, bytes.decode, ttl_s=60, max_entries=3, max_bytes=100)
RENEWED: Final = StateKind("renewed", str.encode, bytes.decode, ttl_s=60, is_renewed=True, max_entries=3, max_bytes=100)
NUMBERS: Final = StateKind("texts", lambda number: b"%d" % number, int, ttl_s=60)
"""The same kind in another version, which cannot read texts."""
KEYS: Final = ("plain", "", "a:b/c*?[x]", "ключ", "half \ud800 surrogate", "x" * 2000, "new\nline\0zero")


class Clock(ABC):
    """The time that a store measures; `advance` replaces waiting."""

    @abstractmethod
    def advance(self, seconds: float) -> None: ...


class SetClock(Clock):
    """The clock of a store in this process."""

    def __init__(self) -> None:
        self._now_s = 1_000_000.0

    def __call__(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        self._now_s += seconds


class RedisClock(Clock):
    """Brings the end of all values nearer."""

    def __init__(self, url: str) -> None:
        from redis import Redis

        self._client = Redis.from_url(url)

    def advance(self, seconds: float) -> None:
        for key in self._client.scan_iter("dragoman:state:*"):
            self._client.pexpire(key, self._client.pttl(key) - round(seconds * 1000))


class PostgresqlClock(Clock):
    """Brings the end of all values nearer."""

    def __init__(self, url: str) -> None:
        self._url = url

    def advance(self, seconds: float) -> None:
        import psycopg

        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("UPDATE dragoman_state SET expires = expires - %s * interval '1 second'", (seconds,))


@pytest.fixture(scope="session")
def database_url() -> Iterator[str]:
    if postgresql.programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    with postgresql.running() as server:
        yield server.new_database()


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    if redis_server.PROGRAM is None:
        pytest.skip("redis-server is not installed")
    with redis_server.running() as server:
        yield server.url


@pytest.fixture(params=["memory", "sqlite", "redis", "postgresql"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[StateStore, Clock]]:
    """An empty store and its clock."""
    set_clock = SetClock()
    match request.param:
        case "memory":
            yield MemoryStateStore(set_clock), set_clock
        case "sqlite":
            with closing(SqliteStateStore(tmp_path / "state.sqlite", set_clock)) as file:
                yield file, set_clock
        case "redis":
            url = request.getfixturevalue("redis_url")
            from redis import Redis

            with Redis.from_url(url) as client:
                client.flushall()
            with closing(RedisStateStore(url)) as server:
                yield server, RedisClock(url)
        case "postgresql":
            import psycopg

            from dragoman.state.postgresql_store import PostgresqlStateStore

            url = request.getfixturevalue("database_url")
            with psycopg.connect(url, autocommit=True) as connection:
                for table in ("", "_logs", "_log_entries", "_version"):
                    connection.execute(f"DROP TABLE IF EXISTS dragoman_state{table}")
            with closing(PostgresqlStateStore(url)) as database:
                yield database, PostgresqlClock(url)


@pytest.fixture
def store(stored: tuple[StateStore, Clock]) -> StateStore:
    return stored[0]


@pytest.fixture
def clock(stored: tuple[StateStore, Clock]) -> Clock:
    return stored[1]


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
    store.put(TEXTS, "a", "1" * 40, 40)
    store.put(TEXTS, "a", "2" * 50, 50)
    assert store.get(TEXTS, "a") == "2" * 50
    assert store.usage(TEXTS) == (1, 50)
    assert store.usage(RENEWED) == (0, 0)


def test_value_goes_after_its_time(store: StateStore, clock: Clock) -> None:
    store.put(TEXTS, "a", "1", 1)
    store.put(RENEWED, "a", "1", 1)
    clock.advance(40)
    assert store.get(TEXTS, "a") == store.get(RENEWED, "a") == "1"
    clock.advance(40)
    assert store.get(TEXTS, "a") is None
    assert store.get(RENEWED, "a") == "1", "each read gives it its whole time again"
    clock.advance(61)
    assert store.get(RENEWED, "a") is None


@pytest.mark.parametrize("stored", ["memory", "sqlite"], indirect=True)
def test_least_recently_used_goes_first(store: StateStore) -> None:
    for key in "abc":
        store.put(RENEWED, key, key, 1)
    store.get_many(RENEWED, ["b", "a"])
    store.put(RENEWED, "d", "d", 1)
    assert store.get_many(RENEWED, ["a", "b", "c", "d"]) == ["a", "b", None, "d"]
    store.put(RENEWED, "large", "x", 98)
    assert store.usage(RENEWED) == (3, 100)


@pytest.mark.parametrize("stored", ["memory", "sqlite"], indirect=True)
def test_value_can_count_as_used_before_others(store: StateStore) -> None:
    for key in "abc":
        store.put(RENEWED, key, key, 1)
    store.put(RENEWED, "d", "d", 1, then_used=("a", "missing"))
    assert store.get_many(RENEWED, ["d", "c", "a"]) == ["d", "c", "a"]
    store.put(RENEWED, "new", "n", 1, then_used=("d", "c", "a"))
    assert store.get_many(RENEWED, ["new", "d", "c", "a"]) == [None, "d", "c", "a"], "it is the first to go itself"


def test_values_used_after_another_need_not_exist(store: StateStore) -> None:
    store.put(RENEWED, "a", "1", 1, then_used=("missing",))
    assert store.get_many(RENEWED, ["a", "missing"]) == ["1", None]


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
    clock.advance(61)
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


def test_value_of_another_version_counts_as_not_stored(store: StateStore) -> None:
    if not store.does_io:
        pytest.skip("nothing is encoded")
    store.put(TEXTS, "a", "text", 4)
    assert store.get_many(NUMBERS, ["a", "b"]) == [None, None]
    assert store.put_if_absent(NUMBERS, "a", 1, 1)
    assert not store.put_if_absent(NUMBERS, "a", 2, 1)
    assert store.get(NUMBERS, "a") == 1


def test_log_has_its_latest_entries(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[type(store).__module__], "LOG_ENTRIES", 200)
    store.append("news", b"first")
    position, _ = store.read_log("news")
    written = [b"%d" % number for number in range(700)]
    for value in written:
        store.append("news", value)
    values = store.read_log("news", position).values
    assert 200 <= len(values) < 700
    assert values == written[-len(values) :]


def test_first_position_of_an_empty_log_is_its_beginning(store: StateStore) -> None:
    position, values = store.read_log("news")
    assert values == []
    assert store.read_log("news", position) == (position, [])
    store.append("news", b"1")
    assert store.read_log("news", position).values == [b"1"]


def test_readers_see_each_entry_once_and_in_the_same_order_while_others_write(store: StateStore) -> None:
    start = store.read_log("news").position
    count = 120

    def write(writer: int) -> None:
        for number in range(count // 4):
            store.append("news", b"%d:%d" % (writer, number))

    def read(_: int) -> list[bytes]:
        position, found = start, []
        while len(found) < count:
            position, values = store.read_log("news", position)
            found += values
        return found

    with ThreadPoolExecutor(6) as threads:
        readers = [threads.submit(read, number) for number in range(2)]
        list(threads.map(write, range(4)))
        first, second = (reader.result() for reader in readers)
    assert first == second
    assert len(set(first)) == count
    for writer in range(4):
        own = [entry for entry in first if entry.startswith(b"%d:" % writer)]
        assert own == [b"%d:%d" % (writer, number) for number in range(count // 4)]
