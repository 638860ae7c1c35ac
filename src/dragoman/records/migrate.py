"""Brings the tables to the newest revision. Alembic is imported only if they are not."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dragoman import __version__
from dragoman.records.schema import VERSION

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_LOCK: Final = 0x647261676F6D616E
"""Number of the lock of PostgreSQL: `dragoman`."""


class SchemaError(Exception):
    """The tables are those of another version of Dragoman."""


class NoTablesError(SchemaError):
    """The database has no tables yet."""


def migrate(engine: "Engine") -> None:
    """Creates the tables or updates them; several processes may do so at the same time.

    Raises:
        SchemaError: The tables are newer than this version of Dragoman.
    """
    with engine.begin() as connection:
        if _is_current(connection):
            return
    with _locked(engine) as connection:
        if not _is_current(connection):
            _upgrade(connection)


def check_readable(engine: "Engine") -> None:
    """Checks that the tables are those that this version of Dragoman queries.

    Raises:
        SchemaError: They are older or newer.
    """
    with engine.begin() as connection:
        if not _is_current(connection):
            found = _revision(connection)
            what = f"revision {found} of the tables" if found else "no tables"
            kind = SchemaError if found else NoTablesError
            raise kind(f"expected revision {VERSION} of the tables, got {what}; `dragoman serve` updates them")


def _is_current(connection: "Connection") -> bool:
    found = _revision(connection)
    if found > VERSION:
        raise SchemaError(
            f"expected tables of revision {VERSION} or older, got {found}, which a newer version of Dragoman has "
            f"written; update Dragoman {__version__}, or set another `records.url`"
        )
    return found == VERSION


def _revision(connection: "Connection") -> str:
    """Returns the revision of the tables; "": there are none."""
    from sqlalchemy import inspect

    if not inspect(connection).has_table("alembic_version"):
        return ""
    return str(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() or "")


@contextmanager
def _locked(engine: "Engine") -> "Iterator[Connection]":
    """Yields a connection in a transaction, which no other process has at the same time."""
    with engine.begin() as connection:  # with SQLite, the transaction is the lock
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
        yield connection


def _upgrade(connection: "Connection") -> None:
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it logs each step
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    scripts = ScriptDirectory.from_config(config)
    with EnvironmentContext(config, scripts, fn=lambda found, _: scripts._upgrade_revs("head", found)) as environment:
        environment.configure(connection=connection, transactional_ddl=True, transaction_per_migration=False)
        environment.run_migrations()
