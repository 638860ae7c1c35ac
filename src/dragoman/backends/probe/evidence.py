"""The last whole report of each probed model: one JSON file, in Dragoman's cache folder.

The cache has what a request needs of a probe; this has what people want to see of it. It contains no key, and only
scheme and host of the URL.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from dragoman.backends.embedded.weights import cache_dir
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.probe import cache
from dragoman.backends.probe.report import ProbeReport


class StoredReport(msgspec.Struct, frozen=True):
    """A report with the time of its probe."""

    probed_s: float
    """In seconds since 1970."""
    report: ProbeReport


def store_report(config: HttpConfig, report: ProbeReport) -> StoredReport:
    """Stores a report; if it cannot be written, it is not shown later.

    Args:
        config: The settings of the server.
        report: The report.
    """
    at, file = urlsplit(config.url), _file(config, report.model)
    where = f"{at.scheme}://{at.netloc.rpartition('@')[2]}"
    stored = StoredReport(time.time(), msgspec.structs.replace(report, url=where))
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{file.name}.{os.getpid()}.part")
        part.write_bytes(msgspec.json.format(msgspec.json.encode(stored), indent=2))
        os.replace(part, file)
    return stored


def load_report(config: HttpConfig, model: str) -> StoredReport | None:
    """Returns the last report about this model with these settings; None: it was not probed."""
    try:
        return msgspec.json.decode(_file(config, model).read_bytes(), type=StoredReport)
    except (OSError, msgspec.DecodeError):
        return None


def _file(config: HttpConfig, model: str) -> Path:
    return cache_dir() / "probe-reports" / f"{cache.key(config, model)}.json"
