"""Opens the database of the records.

    locate("")                                 SQLite in the user's state folder
    locate("postgresql://host/db")             PostgreSQL, by psycopg
    open_for_writing(location)                 creates it, and updates its tables
    open_for_reading(location)                 read-only; an error if it does not exist

SQLAlchemy is imported when a database is opened, not before.
"""

import os
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dragoman.core.errors import ConfigError, quote
from dragoman.extras import install_command, missing_extras

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

FILE_NAME: Final = "records.sqlite"
BUSY_TIMEOUT_S: Final = 2.0
"""How long a transaction waits for another process; one of a writer takes some milliseconds."""
_SETTING: Final = "records.url"
_EXPECTED: Final = "'' for SQLite in the user's folder, sqlite:////path, or postgresql://user@host/database"


class Location(NamedTuple):
    """Where the records are."""

    url: str
    """For SQLAlchemy; it may contain a password."""
    path: Path | None = None
    """The file of SQLite; None: another database."""

    @property
    def display_name(self) -> str:
        """The location for messages, without user and password."""
        return str(self.path) if self.path else without_user(self.url.partition("?")[0])


def locate(url: str) -> Location:
    """Returns where the records are.

    Args:
        url: The setting `records.url`.

    Raises:
        ConfigError: It is not the URL of a supported database.
    """
    if not url:
        import platformdirs

        return _sqlite(platformdirs.user_state_path("dragoman", appauthor=False) / FILE_NAME)
    scheme, separator, rest = url.partition("://")
    if separator and scheme in ("sqlite", "sqlite+pysqlite") and rest.startswith("/") and len(rest) > 1:
        return _sqlite(Path(rest[1:]).expanduser())
    if separator and scheme in ("postgresql", "postgres", "postgresql+psycopg") and rest:
        if missing_extras("postgresql"):
            raise ConfigError(f"records in PostgreSQL need psycopg: {install_command('postgresql')}")
        return Location(f"postgresql+psycopg://{rest}")
    got = quote(without_user(url)) if separator else "a value without ://"
    raise ConfigError(f"expected {_EXPECTED}; got {got} - at {_SETTING}")


def open_for_writing(location: Location) -> "Engine":
    """Returns an engine for one thread that writes; its transactions wait for those of other processes.

    Raises:
        SchemaError: The tables are of a newer version.
        OSError: The file cannot be created.
        sqlalchemy.exc.SQLAlchemyError: The database cannot be used.
    """
    from dragoman.records.migrate import migrate

    if location.path:
        location.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(location.path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite gives its other files the same mode
    engine = _engine(location)
    try:
        migrate(engine)
    except BaseException:
        engine.dispose()
        raise
    return engine


class EmptyDatabaseError(ConfigError):
    """There is no database, or it has no tables yet: the first record creates both."""


def open_for_reading(location: Location) -> "Engine":
    """Returns an engine for queries.

    Raises:
        EmptyDatabaseError: There are no records yet.
        ConfigError: The database cannot be reached, or its tables are of another version.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from dragoman.records.migrate import NoTablesError, SchemaError, check_readable

    if location.path and not location.path.exists():
        raise EmptyDatabaseError(
            f"expected records in {location.display_name}, got no such file: it is created by the first request to "
            "`dragoman serve`; another location is set by `records.url`"
        )
    engine = _engine(location, read_only=True)
    try:
        check_readable(engine)
    except SQLAlchemyError as error:
        engine.dispose()
        raise ConfigError(f"cannot read the records in {location.display_name}: {describe(error)}") from None
    except SchemaError as error:
        engine.dispose()
        kind = EmptyDatabaseError if isinstance(error, NoTablesError) else ConfigError
        raise kind(f"cannot read the records in {location.display_name}: {error}") from None
    return engine


def without_user(text: str) -> str:
    """Returns the text without user and password of the URL in it; a password may have any characters but `@`."""
    before, separator, rest = text.partition("://")
    return before + separator + rest.rpartition("@")[2]


def describe(error: BaseException) -> str:
    """Returns the reason of an error of a database in one line, without SQL, values and passwords."""
    cause = getattr(error, "orig", None) or error
    text = str(cause.strerror if isinstance(cause, OSError) and cause.strerror else cause)
    line = next(iter(text.strip().splitlines()), type(cause).__name__)
    return without_user(line)[:300]


def _sqlite(path: Path) -> Location:
    return Location(f"sqlite+pysqlite:///{path}", path)


def _engine(location: Location, *, read_only: bool = False) -> "Engine":
    from sqlalchemy import create_engine, event
    from sqlalchemy.pool import NullPool, StaticPool

    if location.path is None:
        options: dict[str, Any] = {"connect_timeout": 10, "application_name": "dragoman", "tcp_user_timeout": 10_000}
        engine = create_engine(location.url, connect_args=options, poolclass=NullPool if read_only else None)
        return engine.execution_options(postgresql_readonly=True) if read_only else engine
    target = f"file:{_uri_path(location.path)}?mode={'ro' if read_only else 'rw'}"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(target, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)

    engine = create_engine("sqlite+pysqlite://", creator=connect, poolclass=NullPool if read_only else StaticPool)
    event.listen(engine, "begin", _begin_reading if read_only else _begin_writing)
    if not read_only:
        event.listen(engine, "connect", _set_up)
    return engine


def _uri_path(path: Path) -> str:
    from urllib.parse import quote as percent_encode

    return percent_encode(str(path.absolute()))


def _begin_reading(connection: "Connection") -> None:
    connection.exec_driver_sql("BEGIN")


def _begin_writing(connection: "Connection") -> None:
    # A transaction that began by reading could not wait for another writer.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _set_up(connection: sqlite3.Connection, _: object) -> None:
    """Sets what a new file is created with, and what holds for the connection."""
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    _use_wal(connection)
    connection.execute("PRAGMA synchronous = NORMAL")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switches to WAL mode; SQLite does not wait by itself for another process that does the same."""
    deadline_s = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline_s:
                raise
        time.sleep(0.005)
