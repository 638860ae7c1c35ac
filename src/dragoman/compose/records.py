"""Builds what records the exchanges of a gateway."""

from msgspec.structs import replace

from dragoman.config import Config
from dragoman.records.writer import RecordWriter


def record_writer(config: Config) -> RecordWriter | None:
    """Returns the writer of the records; None: the settings turn them off.

    Raises:
        ConfigError: The URL is not that of a supported database.
    """
    if not config.records.enabled:
        return None
    return RecordWriter(replace(config.records, url=records_url(config)))


def records_url(config: Config) -> str:
    """Returns the URL of the database of the records; empty: a file in the user's state folder."""
    return config.records.url or config.state.database_url
