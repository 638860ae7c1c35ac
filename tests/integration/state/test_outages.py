"""Servers of shared state that are killed, frozen or restarted while stores use them.

stores in threads ─→ Debian's redis-server and PostgreSQL
"""

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Protocol

import pytest

from dragoman.core.errors import BackendUnavailableError
from dragoman.state.postgresql_store import PostgresqlStateStore
from dragoman.state.redis_store import RedisStateStore
from dragoman.state.store import StateKind, StateStore
from support import postgresql, redis_server
from support.gateway import until

TEXTS = StateKind("texts", str.encode, bytes.decode, ttl_s=60)
RENEWED = StateKind("renewed", str.encode, bytes.decode, ttl_s=60, is_renewed=True)
OPERATIONS: dict[str, Callable[[StateStore], object]] = {
    "get": lambda store: store.get(TEXTS, "a"),
    "get_renewed": lambda store: store.get_many(RENEWED, ["a", "b"]),
    "put": lambda store: store.put(TEXTS, "a", "1", 1),
    "put_if_absent": lambda store: store.put_if_absent(TEXTS, "b", "1", 1),
    "delete": lambda store: store.delete(TEXTS, "c"),
    "usage": lambda store: store.usage(TEXTS),
    "append": lambda store: store.append("news", b"1"),
    "read_log": lambda store: store.read_log("news", store.read_log("news").position),
}


class Server(Protocol):
    """A server that tests stop and start again, at the same address."""

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def freeze(self) -> None: ...

    def unfreeze(self) -> None: ...


@pytest.fixture(params=["redis", "postgresql"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Server, StateStore]]:
    """A server that has written each command to a file when it responds, and a store that uses it."""
    if request.param == "redis":
        if redis_server.PROGRAM is None:
            pytest.skip("redis-server is not installed")
        options = ("--dir", str(tmp_path), "--appendonly", "yes", "--appendfsync", "no")
        with redis_server.running(*options) as redis, closing(RedisStateStore(redis.url)) as store:
            yield redis, store
    else:
        database: postgresql.Server = request.getfixturevalue("database_server")
        with closing(PostgresqlStateStore(database.new_database())) as store:
            yield database, store


@pytest.fixture
def server(opened: tuple[Server, StateStore]) -> Server:
    return opened[0]


@pytest.fixture
def store(opened: tuple[Server, StateStore]) -> StateStore:
    return opened[1]


@pytest.fixture
def stop_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[StateStore], None]:
    """Stops the clock that decides when a store is tried again."""
    return lambda store: monkeypatch.setattr(store._breaker, "_now_s", lambda: 0.0)  # type: ignore[attr-defined]


def works(operation: Callable[[], object]) -> bool:
    try:
        operation()
    except BackendUnavailableError:
        return False
    return True


def test_all_operations_fail_at_once_and_work_after_a_restart(server: Server, store: StateStore) -> None:
    for use in OPERATIONS.values():
        use(store)
    server.kill()
    for use in OPERATIONS.values():
        with pytest.raises(BackendUnavailableError) as caught:
            use(store)
        assert caught.value.retry_after_s
        assert re.search(r"[/\d]", caught.value.message) is None, "no address, no path"
    server.start()
    until(lambda: works(lambda: store.get(TEXTS, "a")), "the store after a restart")
    for use in OPERATIONS.values():
        use(store)
    assert store.get(TEXTS, "a") == "1"


def test_kept_connections_of_a_restarted_server_are_replaced(server: Server, store: StateStore) -> None:
    store.put(TEXTS, "a", "1", 1)
    server.kill()
    server.start()
    assert store.get(TEXTS, "a") == "1"


def test_frozen_server_costs_many_threads_one_time_limit(
    server: Server, store: StateStore, stop_time: Callable[[StateStore], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(TEXTS, "a", "1", 1)
    server.freeze()
    began_s = time.monotonic()
    with ThreadPoolExecutor(30) as threads:
        assert not any(threads.map(lambda _: works(lambda: store.get(TEXTS, "a")), range(60)))
    stop_time(store)
    for _ in range(1000):
        assert not works(lambda: store.get(TEXTS, "a"))
    assert time.monotonic() - began_s < 30, "60 calls, one after the other, and 1000 more would take their time limits"
    monkeypatch.undo()
    server.unfreeze()
    until(lambda: works(lambda: store.get(TEXTS, "a")), "the store after the freeze")
    assert store.get(TEXTS, "a") == "1"


def test_killed_server_leaves_whole_values_one_winner_and_logs_without_holes(server: Server, store: StateStore) -> None:
    position = store.read_log("news").position
    claims: list[int] = []
    appended: list[bytes] = []
    stop = threading.Event()

    def write(writer: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            entry = b"%d:%d" % (writer, number)
            text = f"{writer}:{number}:" * 5000
            try:
                store.put(TEXTS, "shared", text, len(text))
                claims.extend([number] if store.put_if_absent(TEXTS, f"claim {number}", str(writer), 1) else [])
                store.append("news", entry)
                appended.append(entry)
            except BackendUnavailableError:
                stop.wait(0.01)

    with ThreadPoolExecutor(6) as threads:
        writers = [threads.submit(write, writer) for writer in range(6)]
        for _ in range(2):
            count = len(appended)
            until(lambda count=count: len(appended) > count + 30, "more entries")  # type: ignore[misc]
            server.kill()
            server.start()
        count = len(appended)
        until(lambda: len(appended) > count + 30, "more entries")
        stop.set()
        for writer in writers:
            writer.result()
    shared = store.get(TEXTS, "shared")
    assert shared is not None
    assert shared == shared[: len(shared) // 5000] * 5000
    assert len(claims) == len(set(claims))
    entries = list(store.read_log("news", position).values)
    assert not set(appended) - set(entries), "an entry that was added is read"
    assert len(entries) == len(set(entries))


@pytest.mark.skipif(redis_server.PROGRAM is None, reason="redis-server is not installed")
def test_log_that_redis_has_lost_is_read_from_its_new_beginning() -> None:
    with redis_server.running() as server, closing(RedisStateStore(server.url)) as store:
        store.append("news", b"1")
        far = f"{2**50}-0"
        assert store.read_log("news", far).values == [b"1"], "the clock of the server was set back"
        server.kill()
        server.start()
        page = store.read_log("news", far)
        assert page.values == []
        store.append("news", b"2")
        assert store.read_log("news", page.position).values == [b"2"]
