"""What only a database has: tables that several replicas create, and transactions at the same time.

stores ─→ Debian's PostgreSQL
"""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

from dragoman.core.errors import BackendUnavailableError, ConfigError
from dragoman.state import postgresql_store
from dragoman.state.postgresql_store import PostgresqlStateStore
from dragoman.state.store import StateKind
from support import postgresql
from support.gateway import until

TEXTS = StateKind("texts", str.encode, bytes.decode, ttl_s=60)


@pytest.fixture
def url(database_server: postgresql.Server) -> str:
    return database_server.new_database()


def test_replicas_that_start_together_create_the_tables_once(url: str) -> None:
    stores = [PostgresqlStateStore(url) for _ in range(6)]
    start = threading.Barrier(len(stores))

    def use(number: int) -> bool:
        start.wait()
        stores[number].append("news", b"%d" % number)
        return stores[number].put_if_absent(TEXTS, "claim", str(number), 1)

    with ThreadPoolExecutor(len(stores)) as threads:
        won = list(threads.map(use, range(len(stores))))
    assert sum(won) == 1
    assert stores[0].get(TEXTS, "claim") == str(won.index(True))
    assert sorted(stores[0].read_log("news", "0").values) == [b"%d" % number for number in range(len(stores))]
    for store in stores:
        store.close()


def test_reader_skips_no_entry_of_a_transaction_that_ends_late(url: str) -> None:
    with closing(PostgresqlStateStore(url)) as store, psycopg.connect(url) as late:
        store.append("news", b"0")
        position = store.read_log("news").position
        late.execute(postgresql_store._APPEND, ("news", b"1"))
        other = threading.Thread(target=store.append, args=("news", b"2"))
        other.start()
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        with psycopg.connect(url, autocommit=True) as watching:
            until(lambda: watching.execute(waiting).fetchone() == (1,), "the later entry to wait")
        page = store.read_log("news", position)
        assert page.values == []
        late.commit()
        other.join()
        assert store.read_log("news", page.position).values == [b"1", b"2"]


def test_expired_values_are_deleted(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql_store, "_PURGE_EVERY", 4)
    with closing(PostgresqlStateStore(url)) as store, psycopg.connect(url, autocommit=True) as database:
        store.put(TEXTS, "old", "1", 1)
        database.execute("UPDATE dragoman_state SET expires = now() - interval '1 second'")
        for _ in range(4):
            store.put(TEXTS, "new", "1", 1)
        assert database.execute("SELECT count(*) FROM dragoman_state").fetchone() == (1,)


def test_tables_that_were_dropped_are_created_again(url: str) -> None:
    with closing(PostgresqlStateStore(url)) as store, psycopg.connect(url, autocommit=True) as database:
        store.put(TEXTS, "a", "1", 1)
        database.execute(
            "DROP TABLE dragoman_state, dragoman_state_logs, dragoman_state_log_entries, dragoman_state_version"
        )
        assert store.get(TEXTS, "a") is None
        store.put(TEXTS, "a", "2", 1)
        assert store.get(TEXTS, "a") == "2"


def test_tables_of_a_newer_version_are_not_used(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with closing(PostgresqlStateStore(url)) as store, psycopg.connect(url, autocommit=True) as database:
        store.put(TEXTS, "a", "1", 1)
        database.execute("UPDATE dragoman_state_version SET version = 99")
    with closing(PostgresqlStateStore(url)) as store, pytest.raises(BackendUnavailableError):
        store.get(TEXTS, "a")
    assert "expected tables of version 1 or older in state.database_url, got 99" in caplog.text


def test_password_is_in_no_error_and_no_log(
    database_server: postgresql.Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ConfigError) as wrong:
        PostgresqlStateStore("postgresql://u:secret%zz@h/db")
    assert "secret" not in str(wrong.value)
    url = database_server.new_database().replace("postgres@", "nobody:secret@")
    with closing(PostgresqlStateStore(url)) as store, pytest.raises(BackendUnavailableError) as refused:
        store.get(TEXTS, "a")
    assert "secret" not in str(refused.value)
    assert 'role "nobody" does not exist' in caplog.text
    assert "secret" not in caplog.text
