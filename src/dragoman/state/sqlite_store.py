"""State in an SQLite file, which several processes of this machine use and which can outlive them.

The order of use and the sizes are in another table than the values, because SQLite writes a changed row as a whole. In
WAL mode readers do not wait for the writer. A transaction of a killed process is undone by SQLite.

Source: https://sqlite.org/wal.html, https://sqlite.org/pragma.html (2026-11).
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from dragoman.core.errors import ConfigError
from dragoman.sqlite_wal import use_wal
from dragoman.state.encoding import decoded, key_bytes
from dragoman.state.fair_places import FairPlaces, NoFreeConnectionError
from dragoman.state.outage import OutageBreaker
from dragoman.state.store import LOG_ENTRIES, LogPage, StateKind, StateStore

T = TypeVar("T")

_FORMAT_VERSION: Final = 3
"""Increase it when the tables change. The contents of an older file are deleted; 1 and 2 were files of responses."""
_BUSY_TIMEOUT_S: Final = 2.0
"""How long to wait for other threads, and then for other processes; a transaction takes less than a millisecond."""
_TRIM_EVERY: Final = 256
"""After so many entries of a log, old ones are deleted."""

_TABLES: Final = """
    CREATE TABLE entries (
        number INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        key BLOB NOT NULL,
        size_bytes INTEGER NOT NULL,
        used_order INTEGER NOT NULL,
        used_s REAL NOT NULL,
        UNIQUE (kind, key)
    );
    CREATE INDEX entries_by_use ON entries (kind, used_order);
    CREATE TABLE contents (number INTEGER PRIMARY KEY, value BLOB NOT NULL);
    CREATE TABLE totals (kind TEXT PRIMARY KEY, entries INTEGER NOT NULL, size_bytes INTEGER NOT NULL);
    CREATE TRIGGER entry_added AFTER INSERT ON entries BEGIN
        INSERT INTO totals VALUES (new.kind, 1, new.size_bytes)
            ON CONFLICT (kind) DO UPDATE SET entries = entries + 1, size_bytes = size_bytes + excluded.size_bytes;
    END;
    CREATE TRIGGER entry_deleted AFTER DELETE ON entries BEGIN
        UPDATE totals SET entries = entries - 1, size_bytes = size_bytes - old.size_bytes WHERE kind = old.kind;
        DELETE FROM contents WHERE number = old.number;
    END;
    CREATE TABLE logs (log TEXT PRIMARY KEY, latest INTEGER NOT NULL);
    CREATE TABLE log_entries (log TEXT NOT NULL, number INTEGER NOT NULL, value BLOB NOT NULL,
        PRIMARY KEY (log, number)) WITHOUT ROWID;
"""
_OLDEST: Final = """
    SELECT number, used_s, totals.entries, totals.size_bytes FROM entries JOIN totals USING (kind)
    WHERE kind = ? ORDER BY used_order LIMIT 1
"""
_VALUE: Final = """
    SELECT number, value FROM entries JOIN contents USING (number) WHERE kind = ? AND key = ? AND used_s >= ?
"""
_TOUCH: Final = """
    UPDATE entries SET used_s = ?, used_order = (SELECT max(used_order) + 1 FROM entries WHERE kind = ?)
    WHERE number = ?
"""
_TOUCH_KEY: Final = _TOUCH.replace("number = ?", "kind = ? AND key = ?")
_INSERT: Final = """
    INSERT INTO entries (kind, key, size_bytes, used_s, used_order)
    SELECT ?1, ?2, ?3, ?4, coalesce(max(used_order), 0) + 1 FROM entries WHERE kind = ?1
"""


class SqliteStateStore(StateStore):
    """State in an SQLite file that several processes can use at the same time."""

    does_io = True

    def __init__(
        self,
        path: Path,
        now_s: Callable[[], float] = time.time,
        *,
        survives_power_loss: bool = True,
        setting: str = "",
    ) -> None:
        """Args:
            path: The file, created if missing, for this user only.
            now_s: Clock that all processes share, in seconds.
            survives_power_loss: Whether the file is used again after a crash of the machine; if not, nothing waits for
                the disk.
            setting: What the file is named by, for the error.

        Raises:
            ConfigError: The file cannot be used.
        """
        self._path, self._now_s, self._survives_power_loss = path, now_s, survives_power_loss
        self._breaker = OutageBreaker(
            f"the state in {path.name}", (OSError,), (sqlite3.Error,), (NoFreeConnectionError,)
        )
        self._connection: sqlite3.Connection | None = None
        self._turns = FairPlaces(1)
        """Protects the connection, which the threads share."""
        try:
            self._connection = self._open()
        except (OSError, sqlite3.Error) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            place = f" - at {setting}" if setting else ""
            raise ConfigError(f"expected a writable SQLite file, got {path}: {why}{place}") from None

    def get_many(self, kind: StateKind[T], keys: Sequence[str]) -> list[T | None]:
        """See `StateStore`."""
        stored = self._breaker.run(lambda: self._read(kind, keys))
        return [decoded(kind, value) for value in stored]

    def put(self, kind: StateKind[T], key: str, value: T, size_bytes: int, then_used: Sequence[str] = ()) -> None:
        """See `StateStore`.

        Args:
            kind: The kind of state.
            key: The key.
            value: The value.
            size_bytes: What it needs in memory.
            then_used: Keys of values that count as used after this one.
        """
        encoded = kind.encode(value)
        self._breaker.run(lambda: self._put(kind, key_bytes(key), encoded, size_bytes, then_used))

    def put_if_absent(self, kind: StateKind[T], key: str, value: T, size_bytes: int) -> bool:
        """See `StateStore`.

        Args:
            kind: The kind of state.
            key: The key.
            value: The value.
            size_bytes: What it needs in memory.
        """
        encoded = kind.encode(value)
        return self._breaker.run(lambda: self._put_if_absent(kind, key_bytes(key), encoded, size_bytes))

    def delete(self, kind: StateKind[T], key: str) -> bool:
        """See `StateStore`."""
        return self._breaker.run(lambda: self._delete(kind, key_bytes(key)))

    def usage(self, kind: StateKind[T]) -> tuple[int, int]:
        """See `StateStore`."""
        return self._breaker.run(lambda: self._usage(kind))

    def append(self, log: str, value: bytes) -> None:
        """See `StateStore`."""
        self._breaker.run(lambda: self._append(log, value))

    def read_log(self, log: str, position: str = "") -> LogPage:
        """See `StateStore`."""
        return self._breaker.run(lambda: self._read_log(log, position))

    def close(self) -> None:
        """Closes the file."""
        with self._turn():
            self._disconnect()

    def _read(self, kind: StateKind[T], keys: Sequence[str]) -> list[bytes | None]:
        with self._transaction(writes=kind.is_renewed) as connection:
            now_s = self._now_s()
            found: list[bytes | None] = []
            for key in keys:
                row = connection.execute(_VALUE, (kind.name, key_bytes(key), now_s - kind.ttl_s)).fetchone()
                if row is not None and kind.is_renewed:
                    connection.execute(_TOUCH, (now_s, kind.name, row[0]))
                found.append(row[1] if row else None)
            return found

    def _put(self, kind: StateKind[T], key: bytes, value: bytes, size_bytes: int, then_used: Sequence[str]) -> None:
        with self._transaction() as connection:
            self._insert(connection, kind, key, value, size_bytes)
            now_s = self._now_s()
            uses = ((now_s, kind.name, kind.name, key_bytes(each)) for each in then_used)
            connection.executemany(_TOUCH_KEY, uses)
            self._evict(connection, kind)

    def _put_if_absent(self, kind: StateKind[T], key: bytes, value: bytes, size_bytes: int) -> bool:
        with self._transaction() as connection:
            row = connection.execute(_VALUE, (kind.name, key, self._now_s() - kind.ttl_s)).fetchone()
            if row is not None and decoded(kind, row[1]) is not None:
                return False
            self._insert(connection, kind, key, value, size_bytes)
            self._evict(connection, kind)
            return True

    def _insert(
        self, connection: sqlite3.Connection, kind: StateKind[T], key: bytes, value: bytes, size_bytes: int
    ) -> None:
        connection.execute("DELETE FROM entries WHERE kind = ? AND key = ?", (kind.name, key))
        number = connection.execute(_INSERT, (kind.name, key, size_bytes, self._now_s())).lastrowid
        connection.execute("INSERT INTO contents VALUES (?, ?)", (number, value))

    def _delete(self, kind: StateKind[T], key: bytes) -> bool:
        with self._transaction() as connection:
            self._evict(connection, kind)
            return connection.execute("DELETE FROM entries WHERE kind = ? AND key = ?", (kind.name, key)).rowcount > 0

    def _usage(self, kind: StateKind[T]) -> tuple[int, int]:
        with self._transaction() as connection:
            self._evict(connection, kind)
            query = "SELECT entries, size_bytes FROM totals WHERE kind = ?"
            entries, size_bytes = connection.execute(query, (kind.name,)).fetchone() or (0, 0)
            return entries, size_bytes

    def _evict(self, connection: sqlite3.Connection, kind: StateKind[T]) -> None:
        """Removes the values of a kind that are too old or too much."""
        oldest_s = self._now_s() - kind.ttl_s
        while (row := connection.execute(_OLDEST, (kind.name,)).fetchone()) is not None:
            number, used_s, entries, size_bytes = row
            if used_s >= oldest_s and entries <= kind.max_entries and size_bytes <= kind.max_bytes:
                return
            connection.execute("DELETE FROM entries WHERE number = ?", (number,))

    def _append(self, log: str, value: bytes) -> None:
        with self._transaction() as connection:
            insert = (
                "INSERT INTO logs VALUES (?, 1) ON CONFLICT (log) DO UPDATE SET latest = latest + 1 RETURNING latest"
            )
            ((number,),) = connection.execute(insert, (log,)).fetchall()
            connection.execute("INSERT INTO log_entries VALUES (?, ?, ?)", (log, number, value))
            if number % _TRIM_EVERY == 0:
                connection.execute("DELETE FROM log_entries WHERE log = ? AND number <= ?", (log, number - LOG_ENTRIES))

    def _read_log(self, log: str, position: str) -> LogPage:
        with self._transaction(writes=False) as connection:
            row = connection.execute("SELECT latest FROM logs WHERE log = ?", (log,)).fetchone()
            latest = row[0] if row else 0
            first = int(position) if position else latest
            if first > latest:  # the file was replaced
                first = 0
            query = "SELECT value FROM log_entries WHERE log = ? AND number > ? ORDER BY number"
            values = [value for (value,) in connection.execute(query, (log, first))] if first < latest else []
            return LogPage(str(latest), values)

    @contextmanager
    def _transaction(self, *, writes: bool = True) -> Iterator[sqlite3.Connection]:
        """Yields the connection in a transaction; one that writes excludes those of other processes."""
        with self._turn():
            try:
                if self._connection is None:
                    self._connection = self._open()
                self._connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
                with self._connection:
                    yield self._connection
            except (OSError, sqlite3.Error):
                self._disconnect()  # the file may have been replaced or repaired
                raise

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._turns.take(_BUSY_TIMEOUT_S):
            raise NoFreeConnectionError
        try:
            yield
        finally:
            self._turns.release()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        """Opens the file, and creates it first if it is missing or of an older version."""
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        os.chmod(self._path, 0o600)  # SQLite gives the files of its log the same mode
        connection = sqlite3.connect(self._path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            use_wal(connection, _BUSY_TIMEOUT_S)
            connection.execute(f"PRAGMA synchronous = {'NORMAL' if self._survives_power_loss else 'OFF'}")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("BEGIN IMMEDIATE")
            _create_tables(connection)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection


def _create_tables(connection: sqlite3.Connection) -> None:
    """Creates the tables, in place of those of an older version."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > _FORMAT_VERSION:
        raise sqlite3.DatabaseError(f"a newer version of Dragoman has written it (format {version})")
    if version == _FORMAT_VERSION:
        return
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        connection.execute(f'DROP TABLE "{table}"')
    for statement in _statements(_TABLES):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {_FORMAT_VERSION}")


def _statements(script: str) -> Iterator[str]:
    """Yields the statements one by one, because `executescript` would commit the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
