"""What keys have used in an SQLite file, which all gateways and processes of a machine share.

A reservation belongs to the process that made it: when that has ended, however it ended, it no longer counts. A process
holds the lock of a file with its number, next to the database. Windows has no such locks: there, only one process may
use the file, and it deletes the reservations of an earlier one when it starts.

Source: https://sqlite.org/wal.html, https://sqlite.org/pragma.html (2026-11).
"""

import os
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Final

from dragoman.core.errors import BackendUnavailableError, ConfigError
from dragoman.sqlite_wal import use_wal
from dragoman.usage_limits import budgets
from dragoman.usage_limits.budgets import KeyBudget, Reserved, Spent, kept_periods
from dragoman.usage_limits.ledgers.ledger_store import ERROR_RETRY_S, Decision, KeyUsage, LedgerStore, UsageChanges

_BUSY_TIMEOUT_S: Final = 5.0
_FORMAT_VERSION: Final = 1
_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS spent (
        key TEXT NOT NULL, period TEXT NOT NULL, requests INTEGER NOT NULL, input_tokens INTEGER NOT NULL,
        cached_input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cost INTEGER NOT NULL,
        PRIMARY KEY (key, period)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS reserved (
        number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, seat INTEGER NOT NULL, tokens INTEGER NOT NULL,
        cost INTEGER NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS reserved_by_key ON reserved (key)",
    f"PRAGMA user_version = {_FORMAT_VERSION}",
)
_AMOUNTS: Final = ", ".join(Spent._fields)
_ADD: Final = """
    INSERT INTO spent VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key, period) DO UPDATE SET
        requests = requests + excluded.requests, input_tokens = input_tokens + excluded.input_tokens,
        cached_input_tokens = cached_input_tokens + excluded.cached_input_tokens,
        output_tokens = output_tokens + excluded.output_tokens, cost = cost + excluded.cost
"""


class SqliteLedger(LedgerStore):
    """The file as one process uses it."""

    def __init__(self, path: Path, now_s: float) -> None:
        """Args:
            path: The file; created if missing, with its folder.
            now_s: Seconds since 1970.

        Raises:
            ConfigError: The file cannot be used, or is of a newer version, or there are too many processes.
        """
        self.path = path
        try:
            self._create(now_s)
        except (OSError, sqlite3.Error) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigError(f"expected a writable SQLite file, got {path}: {why} - at limits.path") from None

    def reserve(
        self, key: str, limits: tuple[KeyBudget, ...], request: Reserved, number: int, now_s: float
    ) -> Decision:
        """See `LedgerStore`.

        Args:
            key: The name of the key.
            limits: Its budgets.
            request: What the request may use.
            number: The number of the reservation.
            now_s: Seconds since 1970.
        """
        with self._transaction():
            used = self._usage(key, now_s)
            decision = used.decide(limits, request)
            if not decision.has_room and decision.used_up is None and self._release_ended(key):
                decision = self._usage(key, now_s).decide(limits, request)
            if decision.has_room:
                row = (number, key, self._seat, request.tokens, request.cost)
                self._connection.execute("INSERT INTO reserved VALUES (?, ?, ?, ?, ?)", row)
            return decision

    def write(self, batch: UsageChanges) -> None:
        """See `LedgerStore`."""
        added = [(key, period, *spent) for (key, day), spent in batch.spent.items() for period in (day, day[:7])]
        with self._transaction():
            self._connection.executemany(_ADD, added)
            self._connection.executemany("DELETE FROM reserved WHERE number = ?", [(n,) for _, n in batch.released])

    def usage(self, key: str, now_s: float) -> KeyUsage:
        """See `LedgerStore`."""
        with self._transaction():
            self._release_ended(key)
            return self._usage(key, now_s)

    def used_by_all(self, now_s: float) -> Mapping[str, tuple[Spent, Spent]]:
        """See `LedgerStore`."""
        with self._transaction():
            return _used_by_all(self._connection, now_s)

    def close(self) -> None:
        """Closes the file; the reservations of this process no longer count."""
        self._connection.close()
        if self._lock is not None:
            self._lock.close()

    def _create(self, now_s: float) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._locks = _file_locks()
        self._seats = self.path.with_name(self.path.name + ".processes")
        self._seat, self._lock = 0, None
        if self._locks is not None:
            self._seat, self._lock = self._locks.claim_seat_lock(self._seats)
        self._connection = _open(self.path)
        self._connection.execute("BEGIN IMMEDIATE")
        with self._connection:
            for statement in _TABLES:
                self._connection.execute(statement)
            self._connection.execute("DELETE FROM reserved WHERE seat = ?", (self._seat,))
            oldest_day, oldest_month = kept_periods(now_s)
            self._connection.execute("DELETE FROM spent WHERE length(period) = 10 AND period < ?", (oldest_day,))
            self._connection.execute("DELETE FROM spent WHERE length(period) = 7 AND period < ?", (oldest_month,))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Runs the block in a transaction, for which other processes wait; an exception undoes it.

        Raises:
            BackendUnavailableError: The file cannot be read or written.
        """
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            with self._connection:
                yield
        except (OSError, sqlite3.Error) as error:
            message = f"the use of API keys in {self.path.name} cannot be read or written: {error}"
            raise BackendUnavailableError(message, retry_after_s=ERROR_RETRY_S) from error

    def _usage(self, key: str, now_s: float) -> KeyUsage:
        day, month = (self._spent(key, period) for period in budgets.periods(now_s))
        query = "SELECT coalesce(sum(tokens), 0), coalesce(sum(cost), 0) FROM reserved WHERE key = ?"
        return KeyUsage(day, month, Reserved(*self._connection.execute(query, (key,)).fetchone()))

    def _spent(self, key: str, period: str) -> Spent:
        """Returns what a key has used in a period, `2026-11-26` or `2026-11`."""
        query = f"SELECT {_AMOUNTS} FROM spent WHERE key = ? AND period = ?"
        row = self._connection.execute(query, (key, period)).fetchone()
        return Spent(*row) if row else Spent()

    def _release_ended(self, key: str) -> bool:
        """Deletes the reservations of a key by processes that have ended; returns whether there were any."""
        if self._locks is None:
            return False
        seats = self._connection.execute("SELECT DISTINCT seat FROM reserved WHERE key = ?", (key,)).fetchall()
        ended = [seat for (seat,) in seats if seat != self._seat and not self._locks.is_locked(self._seats / str(seat))]
        self._connection.executemany("DELETE FROM reserved WHERE seat = ?", [(seat,) for seat in ended])
        return bool(ended)


def read_usage(path: Path, now_s: float) -> Mapping[str, tuple[Spent, Spent]]:
    """Returns what each key has used today and in this month, also while gateways run; without a file, nothing.

    Args:
        path: The file.
        now_s: The current time, in seconds since 1970.

    Raises:
        ConfigError: The file cannot be read.
    """
    if not path.exists():
        return {}
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return _used_by_all(connection, now_s)
    except sqlite3.Error as error:
        raise ConfigError(f"expected the SQLite file of the gateway, got {path}: {error} - at limits.path") from None


def _used_by_all(connection: sqlite3.Connection, now_s: float) -> Mapping[str, tuple[Spent, Spent]]:
    query = f"SELECT key, {_AMOUNTS} FROM spent WHERE period = ?"
    day, month = (
        {key: Spent(*amounts) for key, *amounts in connection.execute(query, (period,))}
        for period in budgets.periods(now_s)
    )
    return {key: (day.get(key, Spent()), amounts) for key, amounts in month.items()}


def _file_locks() -> ModuleType | None:
    if sys.platform == "win32":
        return None
    from dragoman import shared_files

    return shared_files


def _open(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        use_wal(connection, _BUSY_TIMEOUT_S)
        connection.execute("PRAGMA synchronous = NORMAL")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > _FORMAT_VERSION:
            raise sqlite3.DatabaseError(f"it has version {version}, of a newer Dragoman")
    except BaseException:
        connection.close()
        raise
    return connection
