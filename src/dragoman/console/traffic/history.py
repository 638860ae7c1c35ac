"""Reads ended exchanges from the database of the records."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from dragoman.compose.records import records_url
from dragoman.config import Config
from dragoman.core.errors import BackendUnavailableError

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from dragoman.records.reports.exchange_log import LogEntry

TIME_LIMIT_S: Final = 20.0
"""Time for the queries of one page."""


@contextmanager
def records_connection(config: Config) -> "Iterator[Connection | None]":
    """Yields a connection to the records of these settings; None: nothing was recorded yet, or records are off.

    Args:
        config: the settings.

    Raises:
        BackendUnavailableError: the database cannot be read, or not in time.
    """
    from dragoman.records.reports.reading import NothingRecordedError, UnreadableRecordsError, opened, snapshot

    if config.records.enabled:
        try:
            with opened(records_url(config)) as engine, snapshot(engine, TIME_LIMIT_S) as connection:
                yield connection
            return
        except NothingRecordedError:
            pass
        except UnreadableRecordsError as error:
            raise BackendUnavailableError(error.message) from None
    yield None


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
