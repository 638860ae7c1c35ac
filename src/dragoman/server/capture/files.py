"""A captured exchange as files, one for each stage, readable by people and programs.

    request.json   the request line and its headers         body          … and its bytes
    values.json    the parsed request
    1/backend.json the first backend that was called, and its settings  1/values.json its request
    1/sent-1.json  what it sent to the model                1/prompt-1.txt … the prompt in that, if there is one
    1/model-output-1.jsonl the model's output, in chunks    1/text-1.txt  … the text in that
    1/events.jsonl the events that were read from it
    tool-runs.jsonl  what tools returned that the gateway ran
    events.jsonl   the events for the client, after the guard   reply.jsonl   the bytes of the response
    summary.json   versions, settings, warnings, outcome; the log line

In `.jsonl` files, `ms` is the time of arrival in milliseconds. None of them contains secrets (redaction/redact.py).
"""

import base64
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from itertools import accumulate, pairwise
from typing import Any, Final

import msgspec

from dragoman import __version__, dialects
from dragoman.backends.text_mode import completions
from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import DragomanError
from dragoman.core.events import AnyEvent, Failure, Notice, TextDelta
from dragoman.core.messages import Request
from dragoman.gateway.gateway import Gateway
from dragoman.redaction import redact
from dragoman.redaction.redact import Redactor
from dragoman.server.capture.recorder import BackendCall, CaptureRecorder, ModelOutput, Timed
from dragoman.wire import sse
from dragoman.wire.dialect import ResponseReader

SUMMARY: Final = "summary.json"
TOOL_RUNS: Final = "tool-runs.jsonl"
_PACKAGES: Final = ("httptools", "jsonschema-rs", "llguidance", "msgspec", "uvicorn", "xllamacpp")
Files = dict[str, bytes]


def capture_files(capture: CaptureRecorder, outcome: Mapping[str, object], gateway: Gateway, hide: Redactor) -> Files:
    """Returns all files of the exchange.

    Args:
        capture: the recorded exchange.
        outcome: the fields of its log line.
        gateway: the gateway, for its settings.
        hide: replaces secrets.
    """
    request = {
        "method": capture.method,
        "path": capture.path,
        "headers": redact.redact_headers(capture.headers),
    }
    files: Files = {"request.json": _pretty(request)}
    reply = list(capture.reply)  # of an exchange that runs there is more any moment
    if capture.body:
        files["body"] = capture.body
    if capture.request is not None:
        files["values.json"] = _pretty(to_json_value(capture.request))
    for number, call in enumerate(capture.backend_calls, 1):
        files |= {f"{number}/{name}": data for name, data in _call_files(call, hide).items()}
    if capture.tool_runs:
        files[TOOL_RUNS] = _lines(capture.tool_runs, msgspec.to_builtins)
    if capture.events:
        files["events.jsonl"] = _lines(capture.events, event_json)
    if reply:
        files["reply.jsonl"] = jsonl(_reply(reply, hide))
    files[SUMMARY] = _pretty(_summary(capture, outcome, gateway))
    return {
        n: hide.redact_stream(data) if n.endswith(".jsonl") else hide.redact_bytes(data) for n, data in files.items()
    }


def _summary(capture: CaptureRecorder, outcome: Mapping[str, object], gateway: Gateway) -> dict[str, object]:
    warnings = [event for _, event in capture.events if isinstance(event, Notice)]
    return {
        "dragoman": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": {name: _version(name) for name in _PACKAGES},
        "context": {"id": capture.context.id, "created": capture.context.created, "ids": capture.ids},
        "backends": [call.name for call in capture.backend_calls],
        "guard": msgspec.to_builtins(gateway.policy),
        "search_above": gateway.search_above,
        "warnings": [{"code": each.code, "message": each.message, "detail": each.detail} for each in warnings],
        "is_cut": capture.is_cut,
        "log": outcome,
    }


def _call_files(call: BackendCall, hide: Redactor) -> Files:
    about: dict[str, object] = {"ms": call.ms, "backend": call.name, "model": call.request.model, **call.facts}
    about["is_read"] = call.is_read
    if call.error is not None:
        about["error"] = error_json(call.error)
    files = {"backend.json": _pretty(about), "values.json": _pretty(to_json_value(call.request))}
    for number, output in enumerate(call.outputs, 1):
        sent = output.sent if isinstance(output.sent, bytes) else _pretty(to_json_value(output.sent))
        files[f"sent-{number}.json"] = sent
        if prompt := _prompt(sent):
            files[f"prompt-{number}.txt"] = prompt.encode()
        files[f"model-output-{number}.jsonl"] = _output_files(output, hide)
        if text := _text(output, call.request):
            files[f"text-{number}.txt"] = text.encode()
    if call.events:
        files["events.jsonl"] = _lines(call.events, event_json)
    return files


def _output_files(output: ModelOutput, hide: Redactor) -> bytes:
    """Returns the model's output in chunks, after a line with the request's target and before one with how it ended."""
    lines: list[dict[str, object]] = [{"ms": output.ms, "target": output.target}]
    pieces = list(output.pieces)  # of an exchange that runs there are more any moment
    if all(isinstance(piece, bytes) for _, piece in pieces):
        cleaned = rechunk(hide.redact_stream(b"".join(piece for _, piece in pieces)), [len(p) for _, p in pieces])
        lines += [{"ms": ms, **chunk_to_json(piece)} for (ms, _), piece in zip(pieces, cleaned, strict=True)]
    else:
        lines += [{"ms": ms, **_piece(piece)} for ms, piece in pieces]
    if output.error is not None:
        lines.append({"error": error_json(output.error)})
    elif output.abandoned:
        lines.append({"abandoned": True})
    return jsonl(lines)


def _piece(piece: object) -> Mapping[str, object]:
    """Returns the JSON object for a piece of any type that a backend receives."""
    match piece:
        case bytes():
            return chunk_to_json(piece)
        case str():
            return {"text": piece}
        case tuple() if hasattr(piece, "_asdict"):
            fields: Mapping[str, object] = piece._asdict()
            return fields
        case _:
            return {"value": to_json_value(piece)}


def rechunk(data: bytes, sizes: Iterable[int]) -> list[bytes]:
    """Returns the data in chunks of these sizes."""
    return [data[a:b] for a, b in pairwise(accumulate(sizes, initial=0))]


def chunk_to_json(piece: bytes) -> dict[str, object]:
    """Returns the JSON object for these bytes; base64 if they are not text, as when a character was cut."""
    try:
        return {"text": piece.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(piece).decode()}


def chunk_from_json(line: Mapping[str, Any]) -> bytes:
    """Returns the bytes of such an object."""
    return base64.b64decode(line["base64"]) if "base64" in line else str(line["text"]).encode()


def _reply(messages: Sequence[Timed], hide: Redactor) -> Iterator[dict[str, object]]:
    """Yields the head of the response, and its bytes in the chunks in which they were sent."""
    bodies = [message.get("body", b"") for _, message in messages]
    for (ms, message), body in zip(
        messages, rechunk(hide.redact_stream(b"".join(bodies)), map(len, bodies)), strict=True
    ):
        if message["type"] == "http.response.start":
            fields = {k.decode("latin-1"): v.decode("latin-1") for k, v in message["headers"]}
            yield {"ms": ms, "status": message["status"], "headers": fields}
        else:
            yield {"ms": ms, **chunk_to_json(body)}


def event_json(event: AnyEvent) -> dict[str, object]:
    """Returns an event as a JSON object, without empty fields."""
    if isinstance(event, Failure):
        return {"event": "Failure", "error": error_json(event.error)}
    fields = ((f, getattr(event, f.name)) for f in msgspec.structs.fields(type(event)))
    fields_set = {f.name: _builtin(value) for f, value in fields if value != f.default and value != {}}
    return {"event": type(event).__name__, **fields_set}


def _builtin(value: object) -> object:
    built = msgspec.to_builtins(value)
    if isinstance(value, msgspec.Struct):
        return {name: each for name, each in built.items() if each not in ("", {})}
    return built


def error_json(error: DragomanError) -> dict[str, object]:
    """Returns an error as a JSON object with all its fields."""
    known = {name: value for name, value in vars(error).items() if value is not None}
    return {"error": type(error).__name__, "text": str(error), **known}


def to_json_value(value: object) -> Any:
    """Returns a value as JSON: structs have their type's name, and fields at their default are left out."""
    match value:
        case msgspec.Struct():
            fields = ((f, getattr(value, f.name)) for f in msgspec.structs.fields(type(value)))
            return {"is": type(value).__name__} | {
                f.name: to_json_value(v) for f, v in fields if v != f.default and v != {}
            }
        case msgspec.Raw() | str() | bytes() | bool() | int() | float() | None:
            return value
        case tuple() if hasattr(value, "_asdict"):
            return {name: to_json_value(each) for name, each in value._asdict().items()}
        case list() | tuple() | set() | frozenset():
            return [to_json_value(each) for each in value]
        case Mapping():
            return {str(name): to_json_value(each) for name, each in value.items()}
        case _:
            return msgspec.to_builtins(value)


def jsonl(lines: Iterable[object]) -> bytes:
    """Returns one line of JSON for each object."""
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def _lines(timed: Iterable[Timed], to_fields: Callable[[Any], dict[str, object]]) -> bytes:
    return jsonl({"ms": ms, **to_fields(what)} for ms, what in timed)


def _pretty(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _prompt(sent_body: bytes) -> str:
    try:
        body = msgspec.json.decode(sent_body, type=_Prompted)
    except (msgspec.DecodeError, RecursionError):
        return ""
    return body.prompt


class _Prompted(msgspec.Struct):
    prompt: str = ""


def _text(output: ModelOutput, request: Request) -> str:
    """Returns the model's text, if its API distinguishes it from other data."""
    pieces = [piece for _, piece in output.pieces]
    if not all(isinstance(piece, bytes) for piece in pieces):
        return "".join(getattr(piece, "text", "") for piece in pieces)
    reader = reader_of(output.target, request)
    if reader is None:
        return ""
    framed = pieces if output.target.startswith("/") else map(sse.encode, pieces)
    events = [event for piece in framed for event in reader.feed(piece)]
    return "".join(event.text for event in (*events, *reader.close()) if isinstance(event, TextDelta))


def reader_of(target: str, request: Request) -> ResponseReader | None:
    """Returns the reader for responses from this path, or None."""
    context = ExchangeContext("", 0, lambda: "")
    if target == completions.PATH:
        return completions.CompletionReader(request, context)
    known = {dialects.get(name).path: name for name in dialects.names()} | {"claude": "anthropic_messages"}
    return dialects.get(known[target]).reader(request, context) if target in known else None


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def timestamp(seconds: float) -> str:
    """Returns a time as it begins the name of a folder."""
    seconds_int, part = divmod(round(seconds * 1000), 1000)
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(seconds_int))}.{part:03}Z"
