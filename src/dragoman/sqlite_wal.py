"""The WAL mode of SQLite files, in which readers do not wait for the writer.

Source: https://sqlite.org/wal.html (2026-11).
"""

import sqlite3
import time
from typing import Final

_POLL_S: Final = 0.005


def use_wal(connection: sqlite3.Connection, timeout_s: float) -> None:
    """Switches to WAL mode; SQLite does not wait by itself for another process that does the same.

    Args:
        connection: A connection that is not in a transaction.
        timeout_s: How long to wait, in seconds.

    Raises:
        sqlite3.Error: The file cannot be used, or another process has used it for too long.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline_s:
                raise
        time.sleep(_POLL_S)
