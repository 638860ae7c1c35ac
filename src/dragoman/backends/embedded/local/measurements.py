"""What was measured of models on this machine: one small JSON file for each model, in Dragoman's cache folder."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, Generic, TypeVar

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


class CallCalibration(msgspec.Struct, frozen=True):
    """The result of `dragoman models calibrate`: when the model should answer in words."""

    date: str
    words_below: float
    """Probability of a tool call below which the model answers in words; 0: never."""
    fitting: int
    """Prompts for which a tool fits."""
    fitting_lost: int
    """Of these, those that would be answered in words."""
    unfitting: int
    """Prompts for which no tool fits."""
    unfitting_found: int
    """Of these, those that would be answered in words."""


_Result = TypeVar("_Result", ModelMeasurement, CallCalibration)


class _Stored(msgspec.Struct, Generic[_Result], frozen=True):
    model: str
    path: str
    size_bytes: int
    mtime_ns: int
    measurement: _Result


def load_measurement(model: LocalModel) -> ModelMeasurement | None:
    """Returns what was measured of this file; None: nothing, or the file has changed since."""
    return _load(model.path, "", _Stored[ModelMeasurement])


def store_measurement(model: LocalModel, measurement: ModelMeasurement) -> None:
    """Stores a result; if it cannot be written, the model has to be measured again."""
    _store(model, "", measurement)


def load_calibration(path: Path) -> CallCalibration | None:
    """Returns the calibration of this file; None: not measured, or the file has changed since."""
    return _load(path, ".calls", _Stored[CallCalibration])


def store_calibration(model: LocalModel, calibration: CallCalibration) -> None:
    """Stores a result; if it cannot be written, the model has to be calibrated again."""
    _store(model, ".calls", calibration)


def _load(path: Path, kind: str, type: type[_Stored[_Result]]) -> _Result | None:
    try:
        stored = msgspec.json.decode(_file(path, kind).read_bytes(), type=type)
        status = path.stat()
    except (OSError, msgspec.DecodeError):
        return None
    known = (stored.size_bytes, stored.mtime_ns) == (status.st_size, status.st_mtime_ns)
    return stored.measurement if known else None


def _store(model: LocalModel, kind: str, result: _Result) -> None:
    file = _file(model.path, kind)
    with suppress(OSError):
        status = model.path.stat()
        stored = _Stored(model.id, str(model.path), status.st_size, status.st_mtime_ns, result)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{file.name}.{os.getpid()}.part")
        part.write_bytes(msgspec.json.format(msgspec.json.encode(stored), indent=2))
        os.replace(part, file)


def _file(path: Path, kind: str) -> Path:
    return cache_dir() / "measured" / f"{hashlib.sha256(str(path).encode()).hexdigest()[:24]}{kind}.json"
