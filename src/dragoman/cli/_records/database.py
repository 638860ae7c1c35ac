"""Opens the records for the commands that read them, while the gateway writes."""

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dragoman import compose
from dragoman import config as settings
from dragoman.cli._common import add_config_flag, require_extras
from dragoman.compose.records import records_url
from dragoman.core.errors import ConfigError, DragomanError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine


class UnreadableRecordsError(DragomanError):
    """The database of the records does not exist, cannot be reached, or cannot be read by this version."""


def add_records_flags(command: argparse.ArgumentParser) -> None:
    """Adds `--records` and `--config`."""
    command.add_argument(
        "--records",
        metavar="URL",
        help="database of the records: sqlite:////PATH or postgresql://USER@HOST/DATABASE (default: the setting "
        "records.url)",
    )
    add_config_flag(command)


@contextmanager
def open_records(args: argparse.Namespace, doing: str) -> "Iterator[Engine]":
    """Yields an engine for reading the records of the settings; errors of the database get a message for the user.

    Args:
        args: the options of `add_records_flags`.
        doing: what needs the records, for the message about a missing extra.

    Raises:
        ConfigError: the settings are wrong, or an extra is missing.
        UnreadableRecordsError: the database cannot be read.
    """
    require_extras("server", doing=doing)
    from dragoman.records.database import describe, locate, open_for_reading

    location = locate(_records_url(args))
    try:
        engine = open_for_reading(location)
    except ConfigError as error:
        raise UnreadableRecordsError(error.message) from None
    driver_error: type[Exception] = engine.dialect.loaded_dbapi.Error
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield engine
    except (SQLAlchemyError, driver_error) as error:
        raise UnreadableRecordsError(f"cannot read {location.display_name}: {describe(error)}") from None
    finally:
        engine.dispose()


@contextmanager
def snapshot(engine: "Engine") -> "Iterator[Connection]":
    """Yields a connection whose queries see the same records, whatever the gateway writes meanwhile."""
    is_postgresql = engine.dialect.name == "postgresql"
    level = {"isolation_level": "REPEATABLE READ"} if is_postgresql else {}
    with engine.connect().execution_options(**level) as connection, connection.begin():
        yield connection


def _records_url(args: argparse.Namespace) -> str:
    if args.records is not None:
        return str(args.records)
    config, _ = settings.load(compose.settings_path(args.config), os.environ, {})
    return records_url(config)
