"""What was measured of models on this machine: one small JSON file for each model, in Dragoman's cache folder."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from dragoman.backends.embedded.local.files import LocalModel
from dragoman.backends.embedded.weights import cache_dir

TASKS: Final = 10
"""Number of tasks of the small check of tool calls."""


class ModelMeasurement(msgspec.Struct, frozen=True):
    """The result of `dragoman models show --measure`."""

    date: str
    """Such as 2026-11-26."""
    load_s: float
    prompt_tokens_per_s: float
    """0: not known."""
    output_tokens_per_s: float
    """0: not known."""
    right: int
    """Tasks of the small check that the model did right."""
    tasks: int
    """Tasks that it was given, within the time."""
    threads: int
    """Threads of the engine while it writes."""


class _Stored(msgspec.Struct, frozen=True):
    model: str
    path: str
    size_bytes: int
    mtime_ns: int
    measurement: ModelMeasurement


def load_measurement(model: LocalModel) -> ModelMeasurement | None:
    """Returns what was measured of this file; None: nothing, or the file has changed since."""
    try:
        stored = msgspec.json.decode(_file(model).read_bytes(), type=_Stored)
        status = model.path.stat()
    except (OSError, msgspec.DecodeError):
        return None
    known = (stored.size_bytes, stored.mtime_ns) == (status.st_size, status.st_mtime_ns)
    return stored.measurement if known else None


def store_measurement(model: LocalModel, measurement: ModelMeasurement) -> None:
    """Stores a result; if it cannot be written, the model has to be measured again."""
    file = _file(model)
    with suppress(OSError):
        status = model.path.stat()
        stored = _Stored(model.id, str(model.path), status.st_size, status.st_mtime_ns, measurement)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{file.name}.{os.getpid()}.part")
        part.write_bytes(msgspec.json.format(msgspec.json.encode(stored), indent=2))
        os.replace(part, file)


def _file(model: LocalModel) -> Path:
    return cache_dir() / "measured" / f"{hashlib.sha256(str(model.path).encode()).hexdigest()[:24]}.json"
