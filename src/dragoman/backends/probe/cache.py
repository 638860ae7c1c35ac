"""Cache of probe results: one small JSON file for each model, in Dragoman's cache folder.

It contains no key, and only scheme and host of the URL.
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
from dragoman.backends.embedded.weights import cache_dir
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.probe.report import Recommendation

log = logging.getLogger("dragoman.backends.probe")

_RULES_VERSION: Final = 2
"""Increase it when the same findings lead to another mode: results of earlier rules are then ignored."""


class CachedProbe(Struct, frozen=True):
    """The recommendation for a model, and the server and model that were probed."""

    where: str
    api: str
    model: str
    provider: str
    fingerprint: str
    choice: Recommendation
    rules: int = _RULES_VERSION


def load(config: HttpConfig, model: str) -> CachedProbe | None:
    """Returns the cached result for this model with these settings; None if there is none that is valid."""
    try:
        probe = msgspec.json.decode(_file(config, model).read_bytes(), type=CachedProbe)
    except (OSError, msgspec.DecodeError):
        return None
    return probe if is_valid(probe) else None


def is_valid(probe: CachedProbe) -> bool:
    """Whether the result is of the rules and formats of this version."""
    return probe.rules == _RULES_VERSION and probe.choice.call_format in ("", *formats.names())


def version(config: HttpConfig, model: str) -> int:
    """Returns a number that changes when a result is stored for this model; 0: there is none."""
    try:
        stat = _file(config, model).stat()
    except OSError:
        return 0
    return hash((stat.st_mtime_ns, stat.st_ino))


def cached_models() -> list[str]:
    """Returns the models with cached results, of all servers."""
    models = set()
    for file in (cache_dir() / "probes").glob("*.json"):
        with suppress(OSError, msgspec.DecodeError):
            models.add(msgspec.json.decode(file.read_bytes(), type=CachedProbe).model)
    return sorted(models)


def store(config: HttpConfig, model: str, provider: str, fingerprint: str, choice: Recommendation) -> CachedProbe:
    """Stores a result; if it cannot be written, a warning is logged and the model will be probed again.

    Args:
        config: The settings of the server.
        model: The model that was probed.
        provider: The provider's name; "": not known.
        fingerprint: See `ServerInfo.fingerprint`; a result with another one is invalid.
        choice: The modes to use.
    """
    at, file = urlsplit(config.url), _file(config, model)
    where = f"{at.scheme}://{at.netloc.rpartition('@')[2]}"
    probe = CachedProbe(where, config.api, model, provider, fingerprint, choice)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, suffix=".part", delete=False) as half:
            half.write(msgspec.json.format(msgspec.json.encode(probe), indent=2))
        os.replace(half.name, file)
    except OSError as error:
        log.warning("cannot write the probe result of %s to %s: %s", model, file.parent, error.strerror)
    return probe


def key(config: HttpConfig, model: str) -> str:
    """Returns what identifies server and model; a base URL with and without `/v1` is the same server."""
    text = "\n".join((config.url.rstrip("/").removesuffix("/v1"), config.api, model))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _file(config: HttpConfig, model: str) -> Path:
    return cache_dir() / "probes" / f"{key(config, model)}.json"
