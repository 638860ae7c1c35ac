"""State in a PostgreSQL database, which several machines share.

Each operation is one statement, so it is done as a whole or not at all. TTLs are measured by the server's clock. Values
that have expired are not found, and are deleted now and then by the calls of any replica.

A log has no holes: an entry gets its number from the row of its log, which stays locked until the entry is visible. The
numbers of a sequence would become visible in another order, and a reader would skip an entry.

Source: https://www.postgresql.org/docs/15/sql-insert.html, .../explicit-locking.html (2026-11).
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import psycopg

from dragoman.core.errors import BackendUnavailableError
from dragoman.state.encoding import decoded, key_digest
from dragoman.state.fair_places import NoFreeConnectionError
from dragoman.state.outage import OutageBreaker
from dragoman.state.postgresql_connections import BoundedConnection, Connections, StatementTimeoutError
from dragoman.state.postgresql_tables import StateTablesError, migrate
from dragoman.state.store import LOG_ENTRIES, LogPage, StateKind, StateStore

T = TypeVar("T")

_SETTING: Final = "state.database_url"
_RENEW_AFTER: Final = 1 / 16
"""A read renews a value only after this part of its TTL, because each change of a row is written to the disk."""
_PURGE_EVERY: Final = 256
_PURGE_EVERY_S: Final = 60.0
_PURGE_ROWS: Final = 1000
_TRIM_EVERY: Final = 256
"""After so many entries of a log, old ones are deleted."""
_MAX_COUNTED: Final = 100_000

_GET: Final = """
    SELECT key, value, expires < now() + %s * interval '1 second' FROM dragoman_state
    WHERE kind = %s AND key = ANY(%s) AND expires > now()
"""
_RENEW: Final = """
    UPDATE dragoman_state SET expires = now() + %s * interval '1 second' WHERE (kind, key) IN (
        SELECT kind, key FROM dragoman_state WHERE kind = %s AND key = ANY(%s) AND expires > now()
        FOR UPDATE SKIP LOCKED)
"""
_PUT: Final = """
    INSERT INTO dragoman_state VALUES (%s, %s, %s, %s, now() + %s * interval '1 second')
    ON CONFLICT (kind, key) DO UPDATE
    SET value = excluded.value, size_bytes = excluded.size_bytes, expires = excluded.expires
"""
_CLAIM: Final = _PUT + "WHERE dragoman_state.expires <= now() RETURNING true"
_REPLACE: Final = _PUT + "WHERE dragoman_state.value = %s RETURNING true"
_VALUE: Final = "SELECT value FROM dragoman_state WHERE kind = %s AND key = %s AND expires > now()"
_DELETE: Final = "DELETE FROM dragoman_state WHERE kind = %s AND key = %s RETURNING expires > now()"
_USAGE: Final = """
    SELECT count(*), coalesce(sum(size_bytes), 0)::bigint FROM (
        SELECT size_bytes FROM dragoman_state WHERE kind = %s AND expires > now() LIMIT %s) AS counted
"""
_PURGE: Final = """
    DELETE FROM dragoman_state WHERE (kind, key) IN (
        SELECT kind, key FROM dragoman_state WHERE expires <= now() ORDER BY expires LIMIT %s FOR UPDATE SKIP LOCKED)
"""
_APPEND: Final = """
    WITH next AS (
        INSERT INTO dragoman_state_logs VALUES (%s, 1)
        ON CONFLICT (log) DO UPDATE SET latest = dragoman_state_logs.latest + 1 RETURNING log, latest)
    INSERT INTO dragoman_state_log_entries SELECT log, latest, %s FROM next RETURNING number
"""
_TRIM: Final = "DELETE FROM dragoman_state_log_entries WHERE log = %s AND number <= %s"
_LATEST: Final = "SELECT latest FROM dragoman_state_logs WHERE log = %s"
_PAGE: Final = """
    SELECT latest, number, value FROM dragoman_state_logs AS logs
    LEFT JOIN dragoman_state_log_entries AS entries
        ON entries.log = logs.log AND number > CASE WHEN latest < %s THEN 0 ELSE %s END
    WHERE logs.log = %s ORDER BY number
"""


class PostgresqlStateStore(StateStore):
    """State in a database that several machines share; values stay until their TTL ends."""

    does_io = True

    def __init__(self, url: str) -> None:
        """Args:
            url: The database, such as `postgresql://user:password@host/name`. It is connected when it is used.

        Raises:
            ConfigError: The URL cannot be parsed.
        """
        self._connections = Connections(url, _SETTING)
        self._breaker = OutageBreaker(
            f"the database of {_SETTING}",
            (psycopg.OperationalError, psycopg.InterfaceError, OSError),
            (StatementTimeoutError,),
            (psycopg.Error, StateTablesError, NoFreeConnectionError),
            on_outage=self._connections.end_waiting,
        )
        self._has_tables = False
        self._calls = 0
        self._purged_s = time.monotonic()

    def get_many(self, kind: StateKind[T], keys: Sequence[str]) -> list[T | None]:
        """See `StateStore`."""
        digests = list(map(key_digest, keys))
        rows = self._fetch(_GET, (kind.ttl_s * (1 - _RENEW_AFTER), kind.name, digests)) if digests else []
        if kind.is_renewed and (old := [key for key, _, is_old in rows if is_old]):
            self._fetch(_RENEW, (kind.ttl_s, kind.name, old))
        values = {key: value for key, value, _ in rows}
        return [decoded(kind, values.get(digest)) for digest in digests]

    def put(self, kind: StateKind[T], key: str, value: T, size_bytes: int, then_used: Sequence[str] = ()) -> None:
        """See `StateStore`.

        Args:
            kind: The kind of state.
            key: The key.
            value: The value.
            size_bytes: What it needs in memory.
            then_used: Not used.
        """
        self._fetch(_PUT, _row(kind, key, value, size_bytes))

    def put_if_absent(self, kind: StateKind[T], key: str, value: T, size_bytes: int) -> bool:
        """See `StateStore`.

        Args:
            kind: The kind of state.
            key: The key.
            value: The value.
            size_bytes: What it needs in memory.
        """
        row = _row(kind, key, value, size_bytes)
        if self._fetch(_CLAIM, row):
            return True
        stored = self._fetch(_VALUE, row[:2])
        if not stored or decoded(kind, stored[0][0]) is not None:
            return False
        return bool(self._fetch(_REPLACE, (*row, stored[0][0])))

    def delete(self, kind: StateKind[T], key: str) -> bool:
        """See `StateStore`."""
        return self._fetch(_DELETE, (kind.name, key_digest(key))) == [(True,)]

    def usage(self, kind: StateKind[T]) -> tuple[int, int]:
        """See `StateStore`; at most 100,000 values are counted."""
        ((entries, size_bytes),) = self._fetch(_USAGE, (kind.name, _MAX_COUNTED))
        return entries, size_bytes

    def append(self, log: str, value: bytes) -> None:
        """See `StateStore`."""
        ((number,),) = self._fetch(_APPEND, (log, value))
        if number % _TRIM_EVERY == 0:
            with suppress(BackendUnavailableError):  # the entry is stored
                self._fetch(_TRIM, (log, number - LOG_ENTRIES))

    def read_log(self, log: str, position: str = "") -> LogPage:
        """See `StateStore`."""
        if not position:
            rows = self._fetch(_LATEST, (log,))
            return LogPage(str(rows[0][0]) if rows else "0", [])
        rows = self._fetch(_PAGE, (int(position), int(position), log))
        if not rows:  # the log was deleted, or has no entry yet
            return LogPage("0", [])
        latest, number, _ = rows[-1]
        return LogPage(str(number or latest), [value for _, number, value in rows if number is not None])

    def close(self) -> None:
        """Closes the connections."""
        self._connections.close_idle()

    def _fetch(self, statement: str, parameters: tuple[Any, ...]) -> list[Any]:
        """Returns the rows of a statement, which is a transaction."""
        rows = self._breaker.run(lambda: self._connections.run(lambda each: self._execute(each, statement, parameters)))
        self._purge_if_due()
        return rows

    def _execute(self, connection: BoundedConnection, statement: str, parameters: tuple[Any, ...]) -> list[Any]:
        if not self._has_tables:
            migrate(connection)
            self._has_tables = True
        try:
            cursor = connection.execute(statement, parameters, binary=True)
        except psycopg.errors.UndefinedTable:  # the database was replaced
            migrate(connection)
            cursor = connection.execute(statement, parameters, binary=True)
        return cursor.fetchall() if cursor.description else []

    def _purge_if_due(self) -> None:
        """Deletes values that have expired, more than can be added until the next time."""
        self._calls += 1
        now_s = time.monotonic()
        if self._calls < _PURGE_EVERY and now_s - self._purged_s < _PURGE_EVERY_S:
            return
        self._calls, self._purged_s = 0, now_s
        purge: Callable[[], object] = lambda: self._connections.run(  # noqa: E731
            lambda each: self._execute(each, _PURGE, (_PURGE_ROWS,))
        )
        with suppress(BackendUnavailableError):
            self._breaker.run(purge)


def _row(kind: StateKind[T], key: str, value: T, size_bytes: int) -> tuple[str, bytes, bytes, int, float]:
    return kind.name, key_digest(key), kind.encode(value), size_bytes, kind.ttl_s
