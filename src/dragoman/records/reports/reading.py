"""Opens the database of the records for reading, while the gateway writes, within a time limit."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from dragoman.core.errors import ConfigError, DragomanError
from dragoman.records.database import EmptyDatabaseError, describe, locate, open_for_reading

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_STEPS: Final = 20_000
"""Instructions of SQLite between two looks at the clock: less than a millisecond."""


class UnreadableRecordsError(DragomanError):
    """The database of the records does not exist, cannot be reached, or cannot be read by this version."""


class NothingRecordedError(UnreadableRecordsError):
    """There are no records yet."""


class QueryTimeoutError(UnreadableRecordsError):
    """A query takes too long."""


@contextmanager
def opened(url: str) -> "Iterator[Engine]":
    """Yields an engine for reading the records; errors of the database get a message for the user.

    Args:
        url: The setting `records.url`.

    Raises:
        ConfigError: It is not the URL of a supported database.
        NothingRecordedError: There are no records yet.
        UnreadableRecordsError: The database cannot be read.
    """
    location = locate(url)
    try:
        engine = open_for_reading(location)
    except ConfigError as error:
        kind = NothingRecordedError if isinstance(error, EmptyDatabaseError) else UnreadableRecordsError
        raise kind(error.message) from None
    driver_error: type[Exception] = engine.dialect.loaded_dbapi.Error
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield engine
    except (SQLAlchemyError, driver_error) as error:
        raise UnreadableRecordsError(f"cannot read {location.display_name}: {describe(error)}") from None
    finally:
        engine.dispose()


@contextmanager
def snapshot(engine: "Engine", time_limit_s: float | None = None) -> "Iterator[Connection]":
    """Yields a connection whose queries see the same records, whatever the gateway writes meanwhile.

    Args:
        engine: The database.
        time_limit_s: Seconds after which a query is ended; None: it is not.

    Raises:
        QueryTimeoutError: The time is over.
    """
    is_postgresql = engine.dialect.name == "postgresql"
    level = {"isolation_level": "REPEATABLE READ"} if is_postgresql else {}
    with engine.connect().execution_options(**level) as connection, connection.begin():
        if time_limit_s is None:
            yield connection
            return
        deadline_s = time.monotonic() + time_limit_s
        _limit_time(connection, time_limit_s, deadline_s)
        try:
            yield connection
        except Exception as error:
            if time.monotonic() < deadline_s:
                raise
            raise QueryTimeoutError(f"reading the records took longer than {time_limit_s:g} s") from error


def _limit_time(connection: "Connection", time_limit_s: float, deadline_s: float) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {max(1, round(time_limit_s * 1000))}")
        return
    driver: Any = connection.connection.driver_connection
    driver.set_progress_handler(lambda: time.monotonic() > deadline_s, _STEPS)
