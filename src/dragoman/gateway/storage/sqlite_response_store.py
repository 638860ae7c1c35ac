"""Stored responses in an SQLite file, which all processes of a gateway use and which can outlive them.

The order of use and the sizes are kept apart from the contents, because SQLite writes a changed row as a whole. In WAL
mode readers do not wait for the writer. A transaction of a killed process is undone by SQLite.

Source: https://sqlite.org/wal.html, https://sqlite.org/pragma.html (2026-11).
"""

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from dragoman.core.errors import BackendUnavailableError, ConfigError
from dragoman.gateway.storage import response_codec
from dragoman.gateway.storage.response_store import MAX_BYTES, MAX_RESPONSES, TTL_S, ResponseStore, StoredResponse
from dragoman.sqlite_wal import use_wal

log = logging.getLogger("dragoman.gateway.storage.response_store")

_FORMAT_VERSION: Final = 2
"""Increase it when the tables or the stored types change: the responses of a file of a version without an entry in
`_UPGRADES` are deleted."""
_UPGRADES: Final = {1: "ALTER TABLE responses ADD COLUMN owner TEXT NOT NULL DEFAULT '';"}
"""What makes a file of an earlier version one of the current version."""
_BUSY_TIMEOUT_S: Final = 5.0
"""How long to wait for another process; a transaction takes less than a millisecond."""
_RETRY_AFTER_S: Final = 1.0

_TABLES: Final = """
    DROP TABLE IF EXISTS responses;
    DROP TABLE IF EXISTS contents;
    DROP TABLE IF EXISTS totals;
    CREATE TABLE responses (
        number INTEGER PRIMARY KEY,
        id BLOB NOT NULL UNIQUE,
        previous_id BLOB NOT NULL,
        size_bytes INTEGER NOT NULL,
        used_order INTEGER NOT NULL,
        used_s REAL NOT NULL,
        owner TEXT NOT NULL DEFAULT ''
    );
    CREATE INDEX responses_by_use ON responses (used_order);
    CREATE TABLE contents (number INTEGER PRIMARY KEY, conversation BLOB NOT NULL, body BLOB NOT NULL);
    CREATE TABLE totals (responses INTEGER NOT NULL, size_bytes INTEGER NOT NULL);
    INSERT INTO totals VALUES (0, 0);
    CREATE TRIGGER response_added AFTER INSERT ON responses BEGIN
        UPDATE totals SET responses = responses + 1, size_bytes = size_bytes + new.size_bytes;
    END;
    CREATE TRIGGER response_deleted AFTER DELETE ON responses BEGIN
        UPDATE totals SET responses = responses - 1, size_bytes = size_bytes - old.size_bytes;
        DELETE FROM contents WHERE number = old.number;
    END;
"""
_CHAIN: Final = """
    WITH RECURSIVE chain (depth, number, previous_id, size_bytes, owner) AS (
        SELECT 0, number, previous_id, size_bytes, owner FROM responses WHERE id = ?
        UNION ALL
        SELECT depth + 1, r.number, r.previous_id, r.size_bytes, r.owner
        FROM chain JOIN responses AS r ON r.id = chain.previous_id
    )
    SELECT number, previous_id, size_bytes, owner FROM chain ORDER BY depth
"""
_OLDEST: Final = """
    SELECT number, used_s, totals.responses, totals.size_bytes
    FROM responses, totals ORDER BY used_order LIMIT 1
"""


class _Row(NamedTuple):
    number: int
    previous_id: bytes
    size_bytes: int
    owner: str


class SqliteResponseStore(ResponseStore):
    """Responses in an SQLite file that several processes can use at the same time."""

    does_io = True

    def __init__(
        self,
        path: Path,
        max_responses: int = MAX_RESPONSES,
        max_bytes: int = MAX_BYTES,
        ttl_s: float = TTL_S,
        now_s: Callable[[], float] = time.time,
        *,
        survives_power_loss: bool = True,
    ) -> None:
        """Args:
            path: The file, created if missing, for this user only.
            max_responses: Maximum number of responses; 0: none is stored.
            max_bytes: Maximum total size.
            ttl_s: Time after the last use after which a response is deleted, in seconds.
            now_s: Clock that all processes share, in seconds.
            survives_power_loss: Whether the file is used again after a crash of the machine; if not, nothing waits for
                the disk.

        Raises:
            ConfigError: The file cannot be used.
        """
        super().__init__(max_responses, max_bytes, ttl_s)
        self._path, self._now_s, self._survives_power_loss = path, now_s, survives_power_loss
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        """Protects the connection, which the threads share."""
        try:
            self._connection = self._open()
        except (OSError, sqlite3.Error) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigError(f"expected a writable SQLite file, got {path}: {why} - at response_store.path") from None

    def __len__(self) -> int:
        return self._total("responses")

    @property
    def size_bytes(self) -> int:
        """The total size of the stored responses."""
        return self._total("size_bytes")

    def delete(self, id: str) -> bool:
        """Deletes a response. Returns whether it was stored.

        Raises:
            BackendUnavailableError: The file cannot be written.
        """
        with self._transaction() as connection:
            return connection.execute("DELETE FROM responses WHERE id = ?", (_key(id),)).rowcount > 0

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _load(self, id: str) -> StoredResponse | None:
        with self._transaction() as connection:
            rows = self._evict_and_touch(connection, id)[:1]
            contents = _contents(connection, rows)
        return next((_stored(row, content) for row, content in zip(rows, contents, strict=True)), None)

    def _chain(self, id: str) -> list[StoredResponse | None]:
        with self._transaction() as connection:
            rows = self._evict_and_touch(connection, id)
            contents = _contents(connection, rows)
        chain = [_stored(row, content) for row, content in zip(rows, contents, strict=True)]
        return [*chain, None] if not rows or rows[-1].previous_id else chain

    def _put(self, id: str, stored: StoredResponse) -> None:
        """Logs a warning if the response cannot be stored: it was sent already."""
        conversation = response_codec.encode(stored.input_messages, stored.parts)
        try:
            with self._transaction() as connection:
                connection.execute("DELETE FROM responses WHERE id = ?", (_key(id),))
                number = connection.execute(
                    "INSERT INTO responses (id, previous_id, size_bytes, used_order, used_s, owner) "
                    "VALUES (?, ?, ?, 0, 0, ?)",
                    (_key(id), _key(stored.previous_id), stored.size_bytes, stored.owner),
                ).lastrowid
                connection.execute("INSERT INTO contents VALUES (?, ?, ?)", (number, conversation, stored.body))
                self._touch(connection, id)
                self._evict(connection)
        except BackendUnavailableError as error:
            log.warning("%s; the response %s cannot be continued", error.message, id)

    def _evict_and_touch(self, connection: sqlite3.Connection, id: str) -> list[_Row]:
        self._evict(connection)
        return self._touch(connection, id)

    def _touch(self, connection: sqlite3.Connection, id: str) -> list[_Row]:
        """Returns the response and those before it, newest first; the oldest becomes the most recently used."""
        rows = [_Row(*row) for row in connection.execute(_CHAIN, (_key(id),))]
        (latest,) = connection.execute("SELECT coalesce(max(used_order), 0) FROM responses").fetchone()
        now_s = self._now_s()
        uses = [(latest + place, now_s, row.number) for place, row in enumerate(rows, 1)]
        connection.executemany("UPDATE responses SET used_order = ?, used_s = ? WHERE number = ?", uses)
        return rows

    def _evict(self, connection: sqlite3.Connection) -> None:
        """Removes what is too old or too much."""
        oldest_s = self._now_s() - self._ttl_s
        while (row := connection.execute(_OLDEST).fetchone()) is not None:
            number, used_s, responses, size_bytes = row
            within_limits = responses <= self._max_responses and size_bytes <= self._max_bytes
            if used_s >= oldest_s and within_limits:
                return
            connection.execute("DELETE FROM responses WHERE number = ?", (number,))

    def _total(self, column: str) -> int:
        with self._transaction() as connection:
            total: int = connection.execute(f"SELECT {column} FROM totals").fetchone()[0]
            return total

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Yields the connection in a transaction that other processes wait for.

        Raises:
            BackendUnavailableError: The file cannot be read or written.
        """
        try:
            with self._lock:
                if self._connection is None:
                    self._connection = self._open()
                self._connection.execute("BEGIN IMMEDIATE")
                with self._connection:
                    yield self._connection
        except (OSError, sqlite3.Error) as error:
            message = f"the stored responses in {self._path.name} cannot be used: {error}"
            raise BackendUnavailableError(message, retry_after_s=_RETRY_AFTER_S) from error

    def _open(self) -> sqlite3.Connection:
        """Opens the file, and creates it first if it is missing or of another version."""
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        os.chmod(self._path, 0o600)  # SQLite gives the files of its log the same mode
        connection = sqlite3.connect(self._path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            use_wal(connection, _BUSY_TIMEOUT_S)
            connection.execute(f"PRAGMA synchronous = {'NORMAL' if self._survives_power_loss else 'OFF'}")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("BEGIN IMMEDIATE")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version != _FORMAT_VERSION:
                for statement in _statements(_UPGRADES.get(version, _TABLES)):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {_FORMAT_VERSION}")
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection


def _statements(script: str) -> Iterator[str]:
    """Yields the statements one by one, because `executescript` would commit the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _contents(connection: sqlite3.Connection, rows: Sequence[_Row]) -> list[tuple[bytes, bytes]]:
    query = "SELECT conversation, body FROM contents WHERE number = ?"
    return [connection.execute(query, (row.number,)).fetchone() for row in rows]


def _stored(row: _Row, content: tuple[bytes, bytes]) -> StoredResponse | None:
    conversation, body = content
    try:
        messages, parts = response_codec.decode(conversation)
    except (msgspec.DecodeError, RecursionError) as error:
        log.warning("a stored response cannot be read: %s", error)
        return None
    return StoredResponse(_text(row.previous_id), messages, parts, body, row.size_bytes, row.owner)


def _key(id: str) -> bytes:
    """Returns the id as bytes; ids come from clients, and SQLite's text cannot contain lone surrogates."""
    return id.encode(errors="surrogatepass")


def _text(key: bytes) -> str:
    return key.decode(errors="surrogatepass")
