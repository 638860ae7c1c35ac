"""The SQLite file of the ledger, and which processes that reserve budgets in it still run.

A process holds the lock of a file with its number, next to the database. Windows has no such locks: there, only one
process may use the file, and it deletes the reservations of an earlier one when it starts.

Source: https://sqlite.org/wal.html, https://sqlite.org/pragma.html (2026-11).
"""

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Final

from dragoman.sqlite_wal import use_wal
from dragoman.usage_limits.budgets import Reserved, Spent, kept_periods

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
_ADD: Final = """
    INSERT INTO spent VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key, period) DO UPDATE SET
        requests = requests + excluded.requests, input_tokens = input_tokens + excluded.input_tokens,
        cached_input_tokens = cached_input_tokens + excluded.cached_input_tokens,
        output_tokens = output_tokens + excluded.output_tokens, cost = cost + excluded.cost
"""


class LedgerFile:
    """The file as one process uses it; for one thread at a time."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        """Args:
            path: The file; created if missing, with its folder.
            clock: Returns the seconds since 1970.

        Raises:
            OSError: The file or its folder cannot be created.
            sqlite3.Error: The file is not a database, or of a newer version.
            ConfigError: There are too many processes.
        """
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._locks = _file_locks()
        self._seats = path.with_name(path.name + ".processes")
        self._seat, self._lock = 0, None
        if self._locks is not None:
            self._seat, self._lock = self._locks.claim_seat_lock(self._seats)
        self._unreleased: list[int] = []
        """Reservations that could not be deleted yet."""
        self._connection = _open(path)
        with self.transaction():
            for statement in _TABLES:
                self._connection.execute(statement)
            self._connection.execute("DELETE FROM reserved WHERE seat = ?", (self._seat,))
            oldest_day, oldest_month = kept_periods(clock())
            self._connection.execute("DELETE FROM spent WHERE length(period) = 10 AND period < ?", (oldest_day,))
            self._connection.execute("DELETE FROM spent WHERE length(period) = 7 AND period < ?", (oldest_month,))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Runs the block in a transaction, for which other processes wait; an exception undoes it."""
        self._connection.execute("BEGIN IMMEDIATE")
        with self._connection:
            for number in self._unreleased:
                self.release(number)
            yield
        self._unreleased.clear()

    def spent(self, key: str, period: str) -> Spent:
        """Returns what a key has used in a period, `2026-11-26` or `2026-11`."""
        columns = ", ".join(Spent._fields)
        query = f"SELECT {columns} FROM spent WHERE key = ? AND period = ?"
        row = self._connection.execute(query, (key, period)).fetchone()
        return Spent(*row) if row else Spent()

    def add(self, key: str, day: str, spent: Spent) -> None:
        """Adds to what a key has used on a day, and in its month."""
        self._connection.executemany(_ADD, [(key, period, *spent) for period in (day, day[:7])])

    def reserved(self, key: str) -> Reserved:
        """Returns what all running requests of a key reserve."""
        query = "SELECT coalesce(sum(tokens), 0), coalesce(sum(cost), 0) FROM reserved WHERE key = ?"
        return Reserved(*self._connection.execute(query, (key,)).fetchone())

    def reserve(self, key: str, request: Reserved) -> int:
        """Adds a reservation; returns its number."""
        row = (key, self._seat, request.tokens, request.cost)
        added = self._connection.execute("INSERT INTO reserved (key, seat, tokens, cost) VALUES (?, ?, ?, ?)", row)
        return added.lastrowid or 0

    def release(self, number: int) -> None:
        """Deletes a reservation."""
        self._connection.execute("DELETE FROM reserved WHERE number = ?", (number,))

    def release_later(self, number: int) -> None:
        """Deletes a reservation with the next transaction."""
        self._unreleased.append(number)

    def release_ended(self, key: str) -> bool:
        """Deletes the reservations of a key by processes that have ended; returns whether there were any."""
        if self._locks is None:
            return False
        seats = self._connection.execute("SELECT DISTINCT seat FROM reserved WHERE key = ?", (key,)).fetchall()
        ended = [seat for (seat,) in seats if seat != self._seat and not self._locks.is_locked(self._seats / str(seat))]
        self._connection.executemany("DELETE FROM reserved WHERE seat = ?", [(seat,) for seat in ended])
        return bool(ended)

    def close(self) -> None:
        """Closes the file; the reservations of this process no longer count."""
        self._connection.close()
        if self._lock is not None:
            self._lock.close()


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
