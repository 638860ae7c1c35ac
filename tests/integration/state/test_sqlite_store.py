"""What only a file has: processes that use it and are killed, its mode, its version, and what makes it unusable.

stores in several processes ─→ one SQLite file
"""

import sqlite3
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from dragoman.core.errors import BackendUnavailableError, ConfigError
from dragoman.state import sqlite_store
from dragoman.state.sqlite_store import SqliteStateStore
from dragoman.state.store import StateKind
from support.gateway import until
from support.processes import python_process

TEXTS = StateKind("texts", str.encode, bytes.decode, ttl_s=3600, max_entries=10**6)
WORKER = textwrap.dedent("""
    import sys
    from pathlib import Path
    from dragoman.state.sqlite_store import SqliteStateStore
    from dragoman.state.store import StateKind

    path, name = sys.argv[1:]
    texts = StateKind("texts", str.encode, bytes.decode, ttl_s=3600, max_entries=10**6)
    store = SqliteStateStore(Path(path), survives_power_loss=False)
    for number in range(int(sys.stdin.readline())):
        store.put(texts, f"{name}{number}", name * 5000, 5000)
        store.append("news", f"{name}{number}".encode())
        won = store.put_if_absent(texts, f"claim {number}", name, 1)
        print(f"{name}{number}", won, flush=True)
""")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStateStore]:
    with closing(SqliteStateStore(path)) as store:
        yield store


def works(store: SqliteStateStore) -> bool:
    try:
        store.put(TEXTS, "a", "1", 1)
    except BackendUnavailableError:
        return False
    return True


def test_processes_share_state_and_survive_a_kill(path: Path) -> None:
    """What a process reported as stored can be read by another, also if it was killed while it wrote."""
    with ExitStack() as stack:
        a, b, killed = (stack.enter_context(python_process(WORKER, path, name)) for name in "abk")
        for process, count in ((a, 100), (b, 100), (killed, 100_000)):
            process.write(str(count))
        lines = [killed.read() for _ in range(50)]
        killed.kill()
        lines += [*killed.rest(), *a.rest(), *b.rest()]
    names, won = zip(*(line.split() for line in lines), strict=True)
    with closing(SqliteStateStore(path)) as store:
        assert store.get_many(TEXTS, names) == [name[0] * 5000 for name in names]
        entries = [value.decode() for value in store.read_log("news", "0").values]
        assert set(names) <= set(entries)
        assert len(set(entries)) == len(entries) <= len(names) + 1, "the last one of the killed process is not reported"
        claims = [name[1:] for name, is_won in zip(names, won, strict=True) if is_won == "True"]
        assert len(claims) == len(set(claims)) >= 99


def test_files_are_private(store: SqliteStateStore, path: Path) -> None:
    store.put(TEXTS, "a", "1", 1)
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes == dict.fromkeys(("state.sqlite", "state.sqlite-wal", "state.sqlite-shm"), 0o600)


def test_deleted_content_is_not_left_in_the_file(store: SqliteStateStore, path: Path) -> None:
    store.put(TEXTS, "a", "a very secret text", 18)
    assert store.delete(TEXTS, "a")
    store.close()
    assert b"very secret" not in path.read_bytes()


def test_tables_of_an_older_version_are_replaced(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE contents (id TEXT)")
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    with closing(SqliteStateStore(path)) as store:
        assert works(store)


def test_file_of_a_newer_version_is_not_changed(store: SqliteStateStore, path: Path) -> None:
    store.put(TEXTS, "a", "1", 1)
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ConfigError, match=r"a newer version of Dragoman has written it \(format 99\) - at x\.path"):
        SqliteStateStore(path, setting="x.path")


@pytest.mark.parametrize("content", [None, b"not a database, and long enough to be read as one" * 100])
def test_unusable_file_is_a_config_error(path: Path, content: bytes | None) -> None:
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"expected a writable SQLite file, got .*state\.sqlite: .* - at x\.path$"):
        SqliteStateStore(path, setting="x.path")


def test_broken_file_fails_at_once_until_it_is_replaced(store: SqliteStateStore, path: Path) -> None:
    assert works(store)
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE totals")
    connection.close()
    with pytest.raises(BackendUnavailableError, match=r"the state in state\.sqlite cannot be used") as caught:
        store.put(TEXTS, "a", "1", 1)
    assert caught.value.retry_after_s == 1.0
    for file in path.parent.iterdir():
        file.unlink()
    until(lambda: works(store), "the new file")
    assert store.get(TEXTS, "a") == "1"


def test_file_that_another_program_has_locked_costs_one_time_limit(
    store: SqliteStateStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(TEXTS, "b", "2", 1)
    store.close()
    monkeypatch.setattr(sqlite_store, "_BUSY_TIMEOUT_S", 0.05)
    assert store.get(TEXTS, "b") == "2"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert store.get(TEXTS, "b") == "2", "readers do not wait"
        assert [works(store) for _ in range(100)] == [False] * 100
        other.execute("ROLLBACK")
    until(lambda: works(store), "the file without the lock")
