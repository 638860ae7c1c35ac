"""Reads what keys have used from the file of the gateways, also while they run."""

import sqlite3
from contextlib import closing
from pathlib import Path

from dragoman.core.errors import ConfigError
from dragoman.usage_limits.budgets import Spent, periods


def read_usage(path: Path, now_s: float) -> dict[str, tuple[Spent, Spent]]:
    """Returns what each key has used today and in this month; of a file that does not exist, nothing.

    Args:
        path: The file.
        now_s: The current time, in seconds since 1970.

    Raises:
        ConfigError: The file cannot be read.
    """
    if not path.exists():
        return {}
    found: dict[str, tuple[Spent, Spent]] = {}
    query = f"SELECT key, {', '.join(Spent._fields)} FROM spent WHERE period = ?"
    day, month = periods(now_s)
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            for key, *amounts in connection.execute(query, (month,)):
                found[key] = (Spent(), Spent(*amounts))
            for key, *amounts in connection.execute(query, (day,)):
                found[key] = (Spent(*amounts), found[key][1])
    except sqlite3.Error as error:
        raise ConfigError(f"expected the SQLite file of the gateway, got {path}: {error} - at limits.path") from None
    return found
