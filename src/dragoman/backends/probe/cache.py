"""What was found out of models before: a small file of JSON each, in the folder of what Dragoman keeps between runs.

It holds no key, and of the URL no more than its host.
"""

import hashlib
import logging
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from dragoman import formats
from dragoman.backends.embedded.weights import home
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.probe.report import Choice

log = logging.getLogger("dragoman.backends.probe")

_RULES: Final = 2
"""Raised when the same findings would lead to another choice: what was remembered by other rules is forgotten."""


class Remembered(Struct, frozen=True):
    """How a model is best asked, and of which server and model that was found."""

    where: str
    api: str
    model: str
    kind: str
    fingerprint: str
    choice: Choice
    rules: int = _RULES


def recall(config: HttpConfig, model: str) -> Remembered | None:
    """What is known of this model of the server with these settings; None where nothing of use is."""
    try:
        found = msgspec.json.decode(_file(config, model).read_bytes(), type=Remembered)
    except (OSError, msgspec.DecodeError):
        return None
    known = found.rules == _RULES and found.choice.format in ("", *formats.names())
    return found if known else None


def models() -> list[str]:
    """Those of which something is known, of any server."""
    found = set()
    for file in (home() / "probes").glob("*.json"):
        with suppress(OSError, msgspec.DecodeError):
            found.add(msgspec.json.decode(file.read_bytes(), type=Remembered).model)
    return sorted(found)


def remember(config: HttpConfig, model: str, kind: str, fingerprint: str, choice: Choice) -> Remembered:
    """Keep it; where that cannot be, it is found out again next time."""
    at, file = urlsplit(config.url), _file(config, model)
    where = f"{at.scheme}://{at.netloc.rpartition('@')[2]}"
    found = Remembered(where, config.api, model, kind, fingerprint, choice)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, suffix=".part", delete=False) as half:
            half.write(msgspec.json.format(msgspec.json.encode(found), indent=2))
        os.replace(half.name, file)
    except OSError as error:
        log.warning("what was found out of %s cannot be kept in %s: %s", model, file.parent, error.strerror)
    return found


def _file(config: HttpConfig, model: str) -> Path:
    """A bare host and its `/v1` are the same server."""
    key = "\n".join((config.url.rstrip("/").removesuffix("/v1"), config.api, model))
    return home() / "probes" / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"
