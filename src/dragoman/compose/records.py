"""Builds what records the exchanges of a gateway."""

from dragoman.records.config import RecordsConfig
from dragoman.records.writer import RecordWriter


def record_writer(config: RecordsConfig) -> RecordWriter | None:
    """Returns the writer of the records; None: the settings turn them off.

    Raises:
        ConfigError: The URL is not that of a supported database.
    """
    return RecordWriter(config) if config.enabled else None
