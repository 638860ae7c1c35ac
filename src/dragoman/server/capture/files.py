"""A captured exchange as files, each a stage that people and machines can read.

    request.json   what came: its line and headers          body          … and its bytes
    values.json    what it was read as
    1/backend.json which backend was asked first, and how   1/values.json with what
    1/sent-1.json  what it sent on                          1/prompt-1.txt … the prompt in that, where there is one
    1/said-1.jsonl what the model said, cut as it came      1/text-1.txt  … the text in that
    1/events.jsonl what was made of it
    events.jsonl   what left, once it was guarded           reply.jsonl   the bytes for the client
    summary.json   versions, settings, warnings, how it went; the line of the log

Lines of `.jsonl` say at `ms` when they came. Of secrets nothing is in any of these (redaction/redact.py).
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
from dragoman.guard.policy import GuardPolicy
from dragoman.redaction import redact
from dragoman.redaction.redact import Redactor
from dragoman.server.capture.recorder import Asked, Capture, Heard, Timed
from dragoman.wire import sse
from dragoman.wire.dialect import ResponseReader

SUMMARY: Final = "summary.json"
_PACKAGES: Final = ("aiohttp", "jsonschema-rs", "llguidance", "msgspec", "uvicorn", "xllamacpp")
Files = dict[str, bytes]


def files(capture: Capture, outcome: Mapping[str, object], policy: GuardPolicy, hide: Redactor) -> Files:
    """All of the exchange; `outcome` is the line of the log."""
    came = {
        "method": capture.method,
        "path": capture.path,
        "headers": redact.headers(capture.headers),
    }
    made: Files = {"request.json": _pretty(came)}
    if capture.body:
        made["body"] = capture.body
    if capture.request is not None:
        made["values.json"] = _pretty(plain(capture.request))
    for number, asked in enumerate(capture.asked, 1):
        made |= {f"{number}/{name}": data for name, data in _asked(asked, hide).items()}
    if capture.events:
        made["events.jsonl"] = _lines(capture.events, event_json)
    if capture.reply:
        made["reply.jsonl"] = jsonl(_reply(capture.reply, hide))
    made[SUMMARY] = _pretty(_summary(capture, outcome, policy))
    return {n: hide.stream(data) if n.endswith(".jsonl") else hide.data(data) for n, data in made.items()}


def _summary(capture: Capture, outcome: Mapping[str, object], policy: GuardPolicy) -> dict[str, object]:
    warnings = [event for _, event in capture.events if isinstance(event, Notice)]
    return {
        "dragoman": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": {name: _version(name) for name in _PACKAGES},
        "turn": {"id": capture.turn.id, "created": capture.turn.created, "ids": capture.ids},
        "backends": [asked.name for asked in capture.asked],
        "guard": msgspec.to_builtins(policy),
        "warnings": [{"code": each.code, "message": each.message, "detail": each.detail} for each in warnings],
        "is_cut": capture.is_cut,
        "log": outcome,
    }


def _asked(asked: Asked, hide: Redactor) -> Files:
    about: dict[str, object] = {"ms": asked.ms, "backend": asked.name, "model": asked.request.model, **asked.facts}
    about["is_read"] = asked.is_read
    if asked.error is not None:
        about["error"] = error_json(asked.error)
    made = {"backend.json": _pretty(about), "values.json": _pretty(plain(asked.request))}
    for number, heard in enumerate(asked.heard, 1):
        sent = heard.sent if isinstance(heard.sent, bytes) else _pretty(plain(heard.sent))
        made[f"sent-{number}.json"] = sent
        if prompt := _prompt(sent):
            made[f"prompt-{number}.txt"] = prompt.encode()
        made[f"said-{number}.jsonl"] = _said(heard, hide)
        if text := _text(heard, asked.request):
            made[f"text-{number}.txt"] = text.encode()
    if asked.events:
        made["events.jsonl"] = _lines(asked.events, event_json)
    return made


def _said(heard: Heard, hide: Redactor) -> bytes:
    """What came, in pieces, behind a line of where it was asked for, and before one of how it ended."""
    lines: list[dict[str, object]] = [{"ms": heard.ms, "to": heard.to}]
    if all(isinstance(piece, bytes) for _, piece in heard.pieces):
        cleaned = recut(hide.stream(b"".join(piece for _, piece in heard.pieces)), [len(p) for _, p in heard.pieces])
        lines += [{"ms": ms, **line_of(piece)} for (ms, _), piece in zip(heard.pieces, cleaned, strict=True)]
    else:
        lines += [{"ms": ms, **_piece(piece)} for ms, piece in heard.pieces]
    if heard.error is not None:
        lines.append({"error": error_json(heard.error)})
    elif heard.left:
        lines.append({"left": True})
    return jsonl(lines)


def _piece(piece: object) -> Mapping[str, object]:
    """A piece of whatever kind a backend hears."""
    match piece:
        case bytes():
            return line_of(piece)
        case str():
            return {"text": piece}
        case tuple() if hasattr(piece, "_asdict"):
            told: Mapping[str, object] = piece._asdict()
            return told
        case _:
            return {"said": plain(piece)}


def recut(data: bytes, sizes: Iterable[int]) -> list[bytes]:
    """The data in pieces of these sizes."""
    return [data[a:b] for a, b in pairwise(accumulate(sizes, initial=0))]


def line_of(piece: bytes) -> dict[str, object]:
    """A line of these bytes; base64 where they are no text, as when a character was cut."""
    try:
        return {"text": piece.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(piece).decode()}


def piece_of(line: Mapping[str, Any]) -> bytes:
    """The bytes of such a line."""
    return base64.b64decode(line["base64"]) if "base64" in line else str(line["text"]).encode()


def _reply(sent: Sequence[Timed], hide: Redactor) -> Iterator[dict[str, object]]:
    """The head of the answer, and its bytes in the pieces in which they were sent."""
    bodies = [message.get("body", b"") for _, message in sent]
    for (ms, message), body in zip(sent, recut(hide.stream(b"".join(bodies)), map(len, bodies)), strict=True):
        if message["type"] == "http.response.start":
            fields = {k.decode("latin-1"): v.decode("latin-1") for k, v in message["headers"]}
            yield {"ms": ms, "status": message["status"], "headers": fields}
        else:
            yield {"ms": ms, **line_of(body)}


def event_json(event: AnyEvent) -> dict[str, object]:
    """An event as JSON has it, without what is empty."""
    if isinstance(event, Failure):
        return {"event": "Failure", "error": error_json(event.error)}
    fields = ((f, getattr(event, f.name)) for f in msgspec.structs.fields(type(event)))
    said = {f.name: _builtin(value) for f, value in fields if value != f.default and value != {}}
    return {"event": type(event).__name__, **said}


def _builtin(value: object) -> object:
    built = msgspec.to_builtins(value)
    if isinstance(value, msgspec.Struct):
        return {name: each for name, each in built.items() if each not in ("", {})}
    return built


def error_json(error: DragomanError) -> dict[str, object]:
    """An error, with all that it knows."""
    known = {name: value for name, value in vars(error).items() if value is not None}
    return {"error": type(error).__name__, "said": str(error), **known}


def plain(value: object) -> Any:
    """A value as JSON has it: structs say what they are, and what is at its default is left out."""
    match value:
        case msgspec.Struct():
            fields = ((f, getattr(value, f.name)) for f in msgspec.structs.fields(type(value)))
            return {"is": type(value).__name__} | {f.name: plain(v) for f, v in fields if v != f.default and v != {}}
        case msgspec.Raw() | str() | bytes() | bool() | int() | float() | None:
            return value
        case tuple() if hasattr(value, "_asdict"):
            return {name: plain(each) for name, each in value._asdict().items()}
        case list() | tuple() | set() | frozenset():
            return [plain(each) for each in value]
        case Mapping():
            return {str(name): plain(each) for name, each in value.items()}
        case _:
            return msgspec.to_builtins(value)


def jsonl(lines: Iterable[object]) -> bytes:
    """A line of JSON for each."""
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def _lines(timed: Iterable[Timed], told: Callable[[Any], dict[str, object]]) -> bytes:
    return jsonl({"ms": ms, **told(what)} for ms, what in timed)


def _pretty(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _prompt(sent: bytes) -> str:
    try:
        body = msgspec.json.decode(sent, type=_Prompted)
    except (msgspec.DecodeError, RecursionError):
        return ""
    return body.prompt


class _Prompted(msgspec.Struct):
    prompt: str = ""


def _text(heard: Heard, request: Request) -> str:
    """The model's text, as far as its API tells it apart."""
    whole = [piece for _, piece in heard.pieces]
    if not all(isinstance(piece, bytes) for piece in whole):
        return "".join(getattr(piece, "text", "") for piece in whole)
    reader = reader_of(heard.to, request)
    if reader is None:
        return ""
    framed = whole if heard.to.startswith("/") else map(sse.encode, whole)
    events = [event for piece in framed for event in reader.feed(piece)]
    return "".join(event.text for event in (*events, *reader.close()) if isinstance(event, TextDelta))


def reader_of(to: str, request: Request) -> ResponseReader | None:
    """What reads the answers from there."""
    turn = ExchangeContext("", 0, lambda: "")
    if to == completions.PATH:
        return completions.Reader(request, turn)
    known = {dialects.get(name).path: name for name in dialects.names()} | {"claude": "anthropic_messages"}
    return dialects.get(known[to]).reader(request, turn) if to in known else None


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def stamp(seconds: float) -> str:
    """A moment, as the names of folders begin."""
    whole, part = divmod(round(seconds * 1000), 1000)
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(whole))}.{part:03}Z"
