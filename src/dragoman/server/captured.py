"""A captured exchange read back, from its folder or from a bundle."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from dragoman.backends.engine import Done, Output, Piece, Progress
from dragoman.core import errors, events, values
from dragoman.core.errors import ConfigError, DragomanError
from dragoman.core.events import AnyEvent, Failure
from dragoman.core.values import Request
from dragoman.server.stages import SUMMARY, Files, piece_of

MOST_BYTES: Final = 512 * 1024 * 1024
"""Of a bundle, unpacked: many times what one exchange may have."""


def load(path: Path) -> tuple[str, Files]:
    """Its name, and its files; of a folder with several, the newest.

    Raises: ConfigError: there is none.
    """
    try:
        if path.is_dir():
            return _folder(path)
        return path.stem, _bundle(path)
    except OSError as e:
        raise ConfigError(f"cannot read {path}: {(e.strerror or str(e)).lower()}") from None
    except zipfile.BadZipFile:
        raise ConfigError(f"{path} is no capture: expected its folder, or a bundle of it") from None


def _folder(path: Path) -> tuple[str, Files]:
    if not (path / SUMMARY).is_file():
        inside = sorted(each.parent for each in path.glob(f"*/{SUMMARY}"))
        if not inside:
            raise ConfigError(f"{path} is no capture: there is no {SUMMARY} in it, nor in a folder of it")
        path = inside[-1]
    found = (file for file in path.rglob("*") if file.is_file())
    return path.name, {file.relative_to(path).as_posix(): file.read_bytes() for file in found}


def _bundle(path: Path) -> Files:
    with zipfile.ZipFile(path) as bundle:
        inside = bundle.infolist()
        if sum(each.file_size for each in inside) > MOST_BYTES:
            raise ConfigError(f"{path} is no capture: unpacked it is over {MOST_BYTES} bytes")
        made = {each.filename: bundle.read(each) for each in inside}
    if SUMMARY not in made:
        raise ConfigError(f"{path} is no capture: there is no {SUMMARY} in it")
    return made


class Captured:
    """One exchange."""

    def __init__(self, name: str, made: Files) -> None:
        self.name, self.files = name, made

    def json(self, name: str) -> dict[str, Any]:
        """A file, or nothing where there is none.

        Raises: ConfigError: it is not as it was written.
        """
        try:
            found: dict[str, Any] = json.loads(self.files.get(name, b"{}"))
        except ValueError as e:
            raise ConfigError(f"{self.name}: {name} is no JSON: {e}") from None
        return found

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Those of a file; none where there is no such file.

        Raises: ConfigError: they are not as they were written.
        """
        try:
            return [json.loads(line) for line in self.files.get(name, b"").splitlines()]
        except ValueError as e:
            raise ConfigError(f"{self.name}: {name} is no JSON: {e}") from None

    @property
    def asked(self) -> int:
        """How often a backend was."""
        return sum(name.endswith("/backend.json") for name in self.files)

    def heard(self, number: int) -> int:
        """How often a model was sent something, of that time that a backend was asked."""
        return sum(name.startswith(f"{number}/said-") for name in self.files)


def output_of(line: Mapping[str, Any]) -> bytes | Output:
    """A piece of what a model said."""
    if "finish" in line:
        return Done(line["finish"], line["output_tokens"], line["cached_tokens"])
    if "total" in line:
        return Progress(line["total"], line["done"])
    return piece_of(line)


def piece(line: Mapping[str, Any]) -> Piece:
    """A piece of the embedded engine's text."""
    return Piece(line["text"])


def error_of(said: Mapping[str, Any]) -> DragomanError:
    """The error that was told so."""
    known = getattr(errors, str(said.get("error")), DragomanError)
    kind = known if isinstance(known, type) and issubclass(known, DragomanError) else DragomanError
    error = kind.__new__(kind, said.get("said", ""))
    Exception.__init__(error, said.get("said", ""))
    vars(error).update({"message": said.get("said", ""), "retry_after_s": None})
    if issubclass(kind, errors.UpstreamError):
        vars(error).update({"status": None})
    vars(error).update({name: value for name, value in said.items() if name not in ("error", "said")})
    return error


def event_of(line: Mapping[str, Any]) -> AnyEvent:
    """The event that was told so.

    Raises: ConfigError: it is none.
    """
    if line.get("event") == "Failure":
        return Failure(error_of(line["error"]))
    kind = getattr(events, str(line.get("event")), None)
    try:
        made: AnyEvent = msgspec.convert({k: v for k, v in line.items() if k not in ("ms", "event")}, kind)
    except (msgspec.ValidationError, TypeError) as e:
        raise ConfigError(f"{line.get('event')!r} is no event: {e}") from None
    return made


def request_of(said: Mapping[str, Any]) -> Request:
    """The request that was told so.

    Raises: ConfigError: it is none.
    """
    try:
        made = _value(said)
    except (AttributeError, TypeError, msgspec.ValidationError) as e:
        raise ConfigError(f"a request was expected, this is none: {e}") from None
    if not isinstance(made, Request):
        raise ConfigError(f"a request was expected, this is {type(made).__name__}")
    return made


def _value(said: Any) -> Any:
    """A value, as `plain` tells it; what nobody looks into stays JSON."""
    if isinstance(said, list):
        return tuple(map(_value, said))
    if not isinstance(said, dict) or "is" not in said:
        return said
    fields = {name: _field(name, inner) for name, inner in said.items() if name != "is"}
    return getattr(values, said["is"])(**fields)


def _field(name: str, said: Any) -> Any:
    if name == "extra":
        return {key: msgspec.Raw(msgspec.json.encode(inner)) for key, inner in said.items()}
    return msgspec.Raw(msgspec.json.encode(said)) if name == "raw" else _value(said)
