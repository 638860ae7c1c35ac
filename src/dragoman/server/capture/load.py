"""Loads a captured exchange from its folder or from a bundle."""

import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from dragoman.backends.embedded.engine_output import Done, Output, Progress, TokenText
from dragoman.core import errors, events, messages
from dragoman.core.errors import ConfigError, DragomanError
from dragoman.core.events import AnyEvent, Failure
from dragoman.core.messages import Request
from dragoman.guard.policy import GuardPolicy
from dragoman.server.capture.files import SUMMARY, Files, chunk_from_json

MAX_BYTES: Final = 512 * 1024 * 1024
"""Maximum size of an unpacked bundle: many times the limit of one exchange."""


def load(path: Path) -> tuple[str, Files]:
    """Returns the name and the files of a capture; of a folder with several, the newest.

    Raises: ConfigError: there is none.
    """
    try:
        if path.is_dir():
            return _folder(path.resolve())
        return path.stem, _bundle(path)
    except OSError as e:
        raise ConfigError(f"cannot read {path}: {(e.strerror or str(e)).lower()}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError):  # RuntimeError: encrypted
        raise ConfigError(f"{path} is not a capture: expected its folder, or a bundle of it") from None


def _folder(path: Path) -> tuple[str, Files]:
    if not (path / SUMMARY).is_file():
        captures = sorted(each.parent for each in path.glob(f"*/{SUMMARY}"))
        if not captures:
            raise ConfigError(f"{path} is not a capture: there is no {SUMMARY} in it, nor in a folder of it")
        path = captures[-1]
    files = (file for file in path.rglob("*") if file.is_file())
    return path.name, {file.relative_to(path).as_posix(): file.read_bytes() for file in files}


def _bundle(path: Path) -> Files:
    with zipfile.ZipFile(path) as bundle:
        entries = bundle.infolist()
        if sum(each.file_size for each in entries) > MAX_BYTES:
            raise ConfigError(f"{path} is not a capture: unpacked it is over {MAX_BYTES} bytes")
        if any(each.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for each in entries):
            raise ConfigError(f"{path} is not a capture: it is not packed as bundles are")
        files = {each.filename: bundle.read(each) for each in entries}
    if SUMMARY not in files:
        raise ConfigError(f"{path} is not a capture: there is no {SUMMARY} in it")
    return files


class _RequestFile(msgspec.Struct, frozen=True):
    method: str = ""
    path: str = ""
    headers: dict[str, str] = {}


class _Context(msgspec.Struct, frozen=True):
    id: str = ""
    created: int = 0
    ids: list[str] = []


class _WarningEntry(msgspec.Struct, frozen=True):
    code: str
    message: str = ""


class _Log(msgspec.Struct, frozen=True):
    path: str = ""
    status: int = 0
    error: str | None = None
    finish: str | None = None


class _Summary(msgspec.Struct, frozen=True):
    dragoman: str = ""
    context: _Context = _Context()
    guard: GuardPolicy = GuardPolicy()
    warnings: list[_WarningEntry] = []
    log: _Log = _Log()


class _Error(msgspec.Struct, frozen=True):
    error: str
    text: str = ""
    message: str = ""
    path: str = ""
    model: str = ""


class _BackendFile(msgspec.Struct, frozen=True):
    backend: str = ""
    model: str = ""
    kind: str = ""
    url: str = ""
    settings: dict[str, Any] = {}
    model_mode: dict[str, Any] = {}
    error: _Error | None = None


class _Tool(msgspec.Struct, frozen=True):
    name: str = ""
    parameters: str = "{}"


class _Request(msgspec.Struct, frozen=True):
    tools: list[_Tool] = []


class _Line(msgspec.Struct, frozen=True):
    ms: float = 0
    target: str = ""
    text: str = ""
    base64: str = ""
    headers: dict[str, str] = {}
    error: _Error | None = None


class _Event(msgspec.Struct, frozen=True):
    event: str
    error: _Error | None = None
    usage: dict[str, Any] = {}
    text: str = ""
    name: str = ""
    code: str = ""
    reason: str = ""


_SHAPES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "request.json": _RequestFile,
    SUMMARY: _Summary,
    "backend.json": _BackendFile,
    "values.json": _Request,
}
"""The fields that are read of each file without checking that they exist."""


class LoadedCapture:
    """One captured exchange."""

    def __init__(self, name: str, files: Files) -> None:
        self.name, self.files = name, files

    def json(self, name: str) -> dict[str, Any]:
        """Returns the content of a JSON file, or {} if there is no such file.

        Raises: ConfigError: the file is damaged.
        """
        return self._read(name, self.files[name], _SHAPES.get(name.rpartition("/")[2])) if name in self.files else {}

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Returns the lines of a JSONL file; none if there is no such file.

        Raises: ConfigError: the file is damaged.
        """
        is_events = name.rpartition("/")[2] == "events.jsonl"
        return [self._read(name, d, _Event if is_events else _Line) for d in self.files.get(name, b"").splitlines()]

    def model_output(self, number: int, count: int) -> list[dict[str, Any]]:
        """Returns the output of a model: the line with its target, then its pieces.

        Args:
            number: the backend call, from 1.
            count: the request to the model within that call, from 1.

        Raises:
            ConfigError: the file is missing or damaged.
        """
        name = f"{number}/model-output-{count}.jsonl"
        if not (lines := self.lines(name)) or "target" not in lines[0]:
            raise ConfigError(f"{self.name} is not a capture: {name} does not begin with where it was sent")
        return lines

    def _read(self, name: str, data: bytes, shape: type[msgspec.Struct] | None) -> dict[str, Any]:
        try:
            values: dict[str, Any] = msgspec.convert(json.loads(data), dict[str, Any])
            msgspec.convert(values, shape or dict[str, Any])
        except (ValueError, RecursionError) as e:  # msgspec raises a ValueError for another shape too
            raise ConfigError(f"{self.name} is not a capture: {name} has an invalid value: {e}") from None
        return values

    @property
    def backend_call_count(self) -> int:
        """The number of backend calls."""
        return sum(name.endswith("/backend.json") for name in self.files)

    def output_count(self, number: int) -> int:
        """Returns the number of requests to the model in this backend call."""
        return sum(name.startswith(f"{number}/model-output-") for name in self.files)


def output_from_json(line: Mapping[str, Any]) -> bytes | Output:
    """Returns a piece of a model's output."""
    if "finish" in line:
        return Done(line["finish"], line["output_tokens"], line["cached_tokens"])
    if "total" in line:
        return Progress(line["total"], line["done"])
    return chunk_from_json(line)


def engine_piece(line: Mapping[str, Any]) -> TokenText:
    """Returns a piece of the embedded engine's output."""
    return TokenText(line["text"])


def error_from_json(fields: Mapping[str, Any]) -> DragomanError:
    """Returns the error with these fields."""
    known = getattr(errors, str(fields.get("error")), DragomanError)
    kind = known if isinstance(known, type) and issubclass(known, DragomanError) else DragomanError
    error = kind.__new__(kind, fields.get("text", ""))
    Exception.__init__(error, fields.get("text", ""))
    vars(error).update({"message": fields.get("text", ""), "retry_after_s": None})
    if issubclass(kind, errors.UpstreamError):
        vars(error).update({"status": None})
    vars(error).update({name: value for name, value in fields.items() if name not in ("error", "text")})
    return error


def event_from_json(line: Mapping[str, Any]) -> AnyEvent:
    """Returns the event with these fields.

    Raises: ConfigError: there is no such event.
    """
    if line.get("event") == "Failure":
        return Failure(error_from_json(line["error"]))
    kind = getattr(events, str(line.get("event")), None)
    try:
        event: AnyEvent = msgspec.convert({k: v for k, v in line.items() if k not in ("ms", "event")}, kind)
    except (msgspec.ValidationError, TypeError) as e:
        raise ConfigError(f"{line.get('event')!r} is not an event: {e}") from None
    return event


def request_from_json(fields: Mapping[str, Any]) -> Request:
    """Returns the request with these fields.

    Raises: ConfigError: they are not those of a request.
    """
    try:
        request = _value(fields)
    except (AttributeError, TypeError, RecursionError, msgspec.ValidationError) as e:
        raise ConfigError(f"expected a request, got something else: {e}") from None
    if not isinstance(request, Request):
        raise ConfigError(f"a request was expected, this is {type(request).__name__}")
    return request


def _value(value: Any) -> Any:
    """Returns the value that `to_json_value` wrote; JSON that nothing reads stays raw."""
    if isinstance(value, list):
        return tuple(map(_value, value))
    if not isinstance(value, dict) or "is" not in value:
        return value
    fields = {name: _field(name, inner) for name, inner in value.items() if name != "is"}
    return getattr(messages, value["is"])(**fields)


def _field(name: str, value: Any) -> Any:
    if name == "extra":
        return {key: msgspec.Raw(msgspec.json.encode(inner)) for key, inner in value.items()}
    return msgspec.Raw(msgspec.json.encode(value)) if name == "raw" else _value(value)
