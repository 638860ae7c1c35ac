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

if TYPE_CHECKING:
    from sqlalchemy import Engine


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
    from dragoman.records.reports.reading import opened

    with opened(_records_url(args)) as engine:
        yield engine


def _records_url(args: argparse.Namespace) -> str:
    if args.records is not None:
        return str(args.records)
    config, _ = settings.load(compose.settings_path(args.config), os.environ, {})
    return records_url(config)
