"""Reads ended exchanges from the database of the records."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dragoman.compose.records import records_url
from dragoman.config import Config
from dragoman.core.errors import BackendUnavailableError

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from dragoman.records.reports.exchange_log import LogEntry


@contextmanager
def records_connection(config: Config) -> "Iterator[Connection | None]":
    """Yields a connection to the records of these settings; None: nothing was recorded yet, or records are off.

    Args:
        config: the settings.

    Raises:
        BackendUnavailableError: the database cannot be read.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from dragoman.records.database import EmptyDatabaseError, describe, locate, open_for_reading

    if not config.records.enabled:
        yield None
        return
    location = locate(records_url(config))
    if location.path is not None and not location.path.exists():
        yield None
        return
    try:
        engine = open_for_reading(location)
    except EmptyDatabaseError:  # the gateway creates the tables at its first record
        yield None
        return
    try:
        with engine.connect() as connection, connection.begin():
            yield connection
    except SQLAlchemyError as error:
        raise BackendUnavailableError(f"cannot read {location.display_name}: {describe(error)}") from None
    finally:
        engine.dispose()


def read_page(config: Config, before_s: float | None, limit: int) -> "list[LogEntry]":
    """Returns ended exchanges, the newest first.

    Args:
        config: the settings.
        before_s: seconds since 1970 before which they ended; None: now.
        limit: the maximum number.

    Raises:
        BackendUnavailableError: the database cannot be read.
    """
    from dragoman.records.reports.exchange_log import ExchangeLog, LogFilter

    with records_connection(config) as connection:
        if connection is None:
            return []
        return ExchangeLog(LogFilter(before_s=before_s)).read_last(connection, limit)[::-1]
