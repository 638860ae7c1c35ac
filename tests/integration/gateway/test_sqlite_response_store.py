"""Stored responses in a file: over restarts, from several processes, and when the file cannot be used."""

import sqlite3
import textwrap
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dragoman import compose
from dragoman.config import Config
from dragoman.config.server import ServerConfig
from dragoman.core import messages as v
from dragoman.core.errors import BackendUnavailableError, ConfigError, UnknownResponseError
from dragoman.gateway.config import ResponseStoreConfig
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.storage.response_store import ResponseStore
from dragoman.server.app import App
from dragoman.state.sqlite_store import SqliteStateStore
from dragoman.state.store import StateKind
from support.processes import python_process
from support.scripted_backend import Scripted, plain


def asked(text: str, before: str = "") -> v.Request:
    previous = v.PreviousResponseRef(before) if before else None
    return v.Request("m", (v.Message("user", (v.Text(text),)),), previous_response=previous, store=True)


def reply(id: str) -> v.Reply:
    return v.Reply(id, "m", 0, (v.Text(f"answer {id}"),), "stop")


def texts(request: v.Request) -> list[str]:
    return [part.text for message in request.messages for part in message.parts if isinstance(part, v.Text)]


def opened(path: Path, **settings: int) -> ResponseStore:
    return ResponseStore(SqliteStateStore(path, setting="response_store.path"), **settings)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "responses.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[ResponseStore]:
    store = opened(path)
    yield store
    store.close()


def test_responses_outlive_the_store(path: Path) -> None:
    first = opened(path)
    first.add(first.resolve(asked("one")), reply("1"), b'{"n" : 1.50}')
    first.close()
    second = opened(path)
    assert texts(second.resolve(asked("two", "1")).request) == ["one", "answer 1", "two"]
    assert second.response_body("1") == b'{"n" : 1.50}'
    second.close()
    assert second.response_body("1") == b'{"n" : 1.50}', "a closed store opens its file again"
    second.close()


def test_files_are_private(store: ResponseStore, path: Path) -> None:
    store.add(store.resolve(asked("one")), reply("1"))
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes == dict.fromkeys(("responses.sqlite", "responses.sqlite-wal", "responses.sqlite-shm"), 0o600)


def test_existing_file_is_made_private(path: Path) -> None:
    path.touch(0o644)
    opened(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_responses_of_an_older_version_are_deleted(store: ResponseStore, path: Path) -> None:
    store.add(store.resolve(asked("one")), reply("1"))
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    assert len(store) == 0
    store.add(store.resolve(asked("two")), reply("2"))
    assert len(store) == 1


@pytest.mark.parametrize("in_memory", [True, False])
def test_responses_belong_to_their_key(store: ResponseStore, in_memory: bool) -> None:
    kept: ResponseStore = ResponseStore() if in_memory else store
    kept.add(kept.resolve(asked("one"), "alice"), reply("1"), b"body")
    kept.add(kept.resolve(asked("two", "1"), "alice"), reply("2"), b"body")
    assert texts(kept.resolve(asked("three", "2"), "alice").request) == ["one", "answer 1", "two", "answer 2", "three"]
    assert [kept.response_body("2", owner) for owner in ("alice", "bob", "")] == [b"body", None, b"body"]
    assert texts(kept.resolve(asked("three", "2")).request)[0] == "one", "keys without a name see all"
    with pytest.raises(UnknownResponseError, match="not found"):
        kept.resolve(asked("three", "2"), "bob")
    reference = v.PreviousResponseRef("2", number=0)
    named = v.Request("m", (v.Message("user", (v.Text("four"), reference)),), store=True)
    assert texts(kept.resolve(named, "bob").request) == ["four"]
    assert texts(kept.resolve(named, "alice").request) == ["four", "answer 2"]


def test_unreadable_response_counts_as_not_stored(store: ResponseStore, path: Path) -> None:
    store.add(store.resolve(asked("one")), reply("1"))
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE contents SET value = x'7b7d'")
    connection.close()
    with pytest.raises(UnknownResponseError):
        store.resolve(asked("two", "1"))


@pytest.mark.parametrize("id", ["\ud800", "nul\0", "'; DROP TABLE responses", "é"])
def test_any_id_can_be_requested(store: ResponseStore, id: str) -> None:
    with pytest.raises(UnknownResponseError):
        store.resolve(asked("one", id))
    assert (store.response_body(id), store.delete(id)) == (None, False)


def test_deleted_content_is_not_left_in_file(store: ResponseStore, path: Path) -> None:
    store.add(store.resolve(asked("a very secret question")), reply("1"))
    assert store.delete("1")
    store.close()
    assert b"very secret" not in path.read_bytes()


@pytest.mark.parametrize("content", [None, b"not a database, and long enough to be read as one" * 100])
def test_unusable_file_is_a_config_error(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "file"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"expected a writable SQLite file, got .* - at response_store\.path"):
        opened(path)


def test_broken_file_is_reported_and_does_not_break_responses(
    store: ResponseStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE totals")
    connection.close()
    store.add(store.resolve(asked("one")), reply("1"))
    assert "responses stay in memory until they can be stored" in caplog.text
    assert texts(store.resolve(asked("two", "1")).request) == ["one", "answer 1", "two"]
    with pytest.raises(BackendUnavailableError, match=r"the state in responses\.sqlite cannot be used"):
        store.resolve(asked("two", "other"))


async def test_gateways_with_one_file_continue_and_delete_each_others_responses(tmp_path: Path) -> None:
    """Over HTTP, as two processes of one gateway do it."""
    stores = [opened(tmp_path / "responses.sqlite") for _ in range(2)]
    gateways = [Gateway([Scripted(plain)], response_store=store) for store in stores]
    one, two = (
        httpx2.AsyncClient(transport=httpx2.ASGITransport(App(gateway, ServerConfig())), base_url="http://127.0.0.1")
        for gateway in gateways
    )
    async with one, two:
        first = (await one.post("/v1/responses", json={"model": "m", "input": "hi"})).json()
        more = {"model": "m", "input": "more", "previous_response_id": first["id"]}
        second = await two.post("/v1/responses", json=more)
        assert second.json()["previous_response_id"] == first["id"]
        assert (await one.get(f"/v1/responses/{second.json()['id']}")).json() == second.json()
        counted = await two.post("/v1/responses/input_tokens", json=more)
        assert counted.status_code == 200
        assert (await two.delete(f"/v1/responses/{first['id']}")).status_code == 200
        assert (await one.get(f"/v1/responses/{first['id']}")).status_code == 404
        refused = await one.post("/v1/responses", json=more)
        assert refused.json()["error"]["code"] == "previous_response_not_found"
    for gateway in gateways:
        await gateway.close()


class ThreadsOfStore(SqliteStateStore):
    """Records in which threads it is used."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.in_main_thread: list[bool] = []

    def put(self, kind: StateKind[Any], key: str, value: Any, size_bytes: int, then_used: Sequence[str] = ()) -> None:
        self.in_main_thread.append(threading.current_thread() is threading.main_thread())
        super().put(kind, key, value, size_bytes, then_used)

    def get_many(self, kind: StateKind[Any], keys: Sequence[str]) -> list[Any]:
        self.in_main_thread.append(threading.current_thread() is threading.main_thread())
        return super().get_many(kind, keys)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_store_is_not_used_in_the_event_loop(path: Path, stream: bool) -> None:
    """A disk, Redis or PostgreSQL may take seconds, in which other requests would wait."""
    used = ThreadsOfStore(path)
    gateway = Gateway([Scripted(plain)], response_store=ResponseStore(used))
    transport = httpx2.ASGITransport(App(gateway, ServerConfig()))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        first = (await client.post("/v1/responses", json={"model": "m", "input": "hi"})).json()["id"]
        body = {"model": "m", "input": "more", "previous_response_id": first, "stream": stream}
        assert (await client.post("/v1/responses", json=body)).status_code == 200
    await gateway.close()
    assert len(used.in_main_thread) >= 3
    assert not any(used.in_main_thread)


WORKER = textwrap.dedent("""
    import sys
    from pathlib import Path
    from dragoman.core import messages as v
    from dragoman.gateway.storage.response_store import ResponseStore
    from dragoman.state.sqlite_store import SqliteStateStore

    path, name = sys.argv[1:]
    store, before = ResponseStore(SqliteStateStore(Path(path), survives_power_loss=False), 10**9), ""
    for number in range(int(sys.stdin.readline())):
        previous = v.PreviousResponseRef(before) if before else None
        request = v.Request("m", (v.Message("user", (v.Text("x" * 50),)),), previous_response=previous, store=True)
        id = f"{name}{number}"
        store.add(store.resolve(request), v.Reply(id, "m", 0, (v.Text("y"),), "stop"), b"{}")
        before = id if number % 20 != 19 else ""
        print(id, flush=True)
""")


def test_processes_share_responses_and_survive_a_kill(path: Path) -> None:
    """Every response that a process reported as stored can be read by another, also if it was killed while writing."""
    with python_process(WORKER, path, "a") as a, python_process(WORKER, path, "b") as b:
        with python_process(WORKER, path, "killed") as killed:
            for process, count in ((a, 200), (b, 200), (killed, 100_000)):
                process.write(str(count))
            stored = [killed.read() for _ in range(60)]
            killed.kill()
            stored += killed.rest()
        stored += [*a.rest(), *b.rest()]
    assert len(stored) >= 460
    store = opened(path, max_responses=10**9)
    assert [id for id in stored[-400:] if store.response_body(id) is None] == []
    store.close()


def test_gateway_keeps_responses_where_settings_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path / "home"))
    shared_dir, own = tmp_path / "shared", tmp_path / "own.sqlite"
    shared_dir.mkdir()
    memory = compose.build_gateway(Config(), embedded=False)
    assert not memory.response_store.does_io
    shared = compose.build_gateway(Config(), embedded=False, shared_dir=shared_dir)
    assert (shared_dir / "state.sqlite").exists()
    persistent = compose.build_gateway(
        Config(response_store=ResponseStoreConfig(path=str(own))), embedded=False, shared_dir=shared_dir
    )
    assert own.exists()
    for gateway in (memory, shared, persistent):
        gateway.response_store.close()
