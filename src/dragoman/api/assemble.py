"""Assembles tool calls from the pieces of a stream.

    calls = assemble_calls(chunks)                   all at once
    parts = CallAssembler()                          or as they arrive
    for chunk in chunks:
        for event in parts.feed(chunk): ...          ToolCallStart, ToolCallDelta, ToolCallEnd
    for event in parts.close(): ...

A piece is an event of one of the APIs, as a mapping or an object of the vendor's SDK. For Chat Completions it is a
chunk, its `delta`, or one item of the `tool_calls` in that. Or it is one of these, of SDKs and servers that stream only
calls:

    {"type": "tool_call_start", "id": …, "name": …}
    {"type": "tool_call_delta", "id": …, "delta": "…"}
    {"type": "tool_call_end", "id": …}
    {"type": "tool_call_complete", "id": …, "arguments": "{…}" or an object}        instead of deltas, or after them

Pieces of several calls may be interleaved. Calls without arguments get `{}`. The events never overlap
(`dragoman.core.events`).
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from dragoman import dialects
from dragoman.api.convert import Model, as_json
from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import RequestError, UsageError, nearest, quote
from dragoman.core.events import (
    AnyEvent,
    Failure,
    Notice,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
)
from dragoman.core.identifiers import ANY_STRING, NewId, ToolNameMap, random_id
from dragoman.core.messages import Request, Tool, ToolCall
from dragoman.text import json_cursor
from dragoman.text.json_cursor import Fields
from dragoman.wire import sse
from dragoman.wire.call_assembly.assembler import ToolCallAssembler
from dragoman.wire.dialect import ResponseReader

Piece: TypeAlias = Mapping[str, Any] | Model
"""A piece of a stream, as JSON or as an object of a vendor's SDK."""

_PIECE_TYPES: Final = ("tool_call_start", "tool_call_delta", "tool_call_end", "tool_call_complete")
_DONE: Final = sse.encode(sse.DONE)


class AssembledCalls(list[ToolCall]):
    """Complete tool calls, in the order in which they began."""

    warnings: tuple[Notice, ...] = ()
    """Defects of the stream that were corrected; docs/warnings.md explains the codes."""


def assemble_calls(pieces: Iterable[Piece], names: Iterable[str] = ()) -> AssembledCalls:
    """Assembles the complete tool calls of a stream; `convert_calls` writes them for an API.

        calls = assemble_calls([{"type": "tool_call_complete", "id": "call_1", "name": "now", "arguments": "{}"}])

    Args:
        pieces: The pieces of one response, all of one API.
        names: Names of the offered tools; they decide where a name ends that arrives in several pieces.

    Returns:
        The calls, in the order in which they began.

    Raises:
        RequestError: A piece is invalid or belongs to no call, or a call is incomplete; the message says which and why.
        UpstreamError: The stream contains an error of the server.
        UsageError: `pieces` is not a list of pieces.
    """
    if isinstance(pieces, Mapping | str | bytes) or not isinstance(pieces, Iterable):
        raise UsageError(f"expected a list of pieces, got {type(pieces).__name__} - at pieces")
    parts = CallAssembler(names)
    starts: list[ToolCallStart] = []
    texts: list[list[str]] = []
    assembled, warnings, cut = AssembledCalls(), list[Notice](), list[RequestError]()
    for event in [*(event for piece in pieces for event in parts.feed(piece)), *parts.close()]:
        match event:
            case ToolCallStart():
                starts.append(event)
                texts.append([])
            case ToolCallDelta(index, text):
                texts[index].append(text)
            case ToolCallEnd(index):
                assembled.append(ToolCall(starts[index].id, starts[index].name, "".join(texts[index])))
            case ToolCallIncomplete(index, raw):
                cut.append(_incomplete(starts[index], raw))
            case Notice():
                warnings.append(event)
            case Failure(error):
                raise error
    if cut:
        raise cut[0]
    assembled.warnings = tuple(warnings)
    return assembled


def _incomplete(call: ToolCallStart, raw: str) -> RequestError:
    try:
        json.loads(raw)
        why = "that is another value"
    except ValueError as e:
        why = str(e)
    expected = f"a JSON object as the arguments of {quote(call.name)} ({call.id})"
    return RequestError(f"expected {expected}, got {quote(raw)}: {why}", "pieces")


class CallAssembler:
    """Assembles tool calls while their pieces arrive.

        parts = CallAssembler(["Read"])
        for chunk in chunks:
            for event in parts.feed(chunk): ...
        for event in parts.close(): ...

    The events are those of the whole response: text and reasoning too, where the pieces have them.
    """

    def __init__(self, names: Iterable[str] = (), *, new_id: NewId | None = None) -> None:
        """Creates an assembler for one response.

        Args:
            names: Names of the offered tools; they decide where a name ends that arrives in several pieces.
            new_id: Generates the ids of calls that have none. None: random ids.
        """
        self._request = Request("", (), tuple(Tool(name) for name in names))
        self._context = ExchangeContext("", 0, new_id or random_id)
        self._reader: ResponseReader | _CallPieces | None = None
        self._api = ""
        self._pieces = 0

    def feed(self, piece: Piece) -> list[AnyEvent]:
        """Returns the events that this piece adds.

        Args:
            piece: A piece of the stream, as JSON or an object of the vendor's SDK.

        Raises:
            RequestError: The piece is invalid, of another API than the pieces before, or belongs to no call.
        """
        path = f"pieces[{self._pieces}]"
        self._pieces += 1
        text = as_json(piece, path)
        fields = json_cursor.parse(text).fields()
        api, frame = _recognize(fields, path)
        if self._reader is None:
            self._api, self._reader = api, self._open_reader(api)
        if api != self._api:
            both = [name or "no API" for name in (api, self._api)]
            raise RequestError(f"a piece of {both[0]} among those of {both[1]}", path)
        if isinstance(self._reader, _CallPieces):
            return self._reader.feed(fields, path)
        return self._reader.feed(sse.encode(frame.replace("$", text, 1).encode()))

    def close(self) -> list[AnyEvent]:
        """Returns the events that the end of the stream adds.

        Raises:
            RequestError: Pieces of a call arrived that never began.
        """
        if isinstance(self._reader, _CallPieces) or self._reader is None:
            return self._reader.close() if self._reader else []
        return [*self._reader.feed(_DONE), *self._reader.close()]

    def _names(self) -> ToolNameMap:
        return ToolNameMap((tool.name for tool in self._request.tools), ANY_STRING)

    def _open_reader(self, api: str) -> "ResponseReader | _CallPieces":
        if not api:
            return _CallPieces(ToolCallAssembler(self._context, "", self._names))
        return dialects.get(api).reader(replace(self._request, dialect=api), self._context)


def _recognize(fields: Fields, path: str) -> tuple[str, str]:
    """Returns the API of a piece ("" for the pieces of calls only) and the frame around it in that API's stream.

    Raises:
        RequestError: The object is not a piece of a stream.
    """
    type = fields.get("type")
    word = type.string() if type is not None and type.kind == "string" else ""
    if word in _PIECE_TYPES:
        return "", "$"
    for name in dialects.names():
        for field, values, frame in dialects.get(name).chunk_forms:
            value = fields.get(field)
            if value is not None and (not values or (value.kind == "string" and re.fullmatch(values, value.string()))):
                return name, frame
    if word:
        hint = nearest(word, _PIECE_TYPES)
        raise RequestError(
            f"unknown type {quote(word)}{hint or f'; expected {_PIECE_TYPES[0]} and its like'}", f"{path}.type"
        )
    got = ", ".join(map(quote, fields.remaining())) or "nothing"
    raise RequestError(f"expected a piece of a stream, got an object of {got}", path)


class _CallPieces:
    """Reads the pieces of streams that contain only calls."""

    def __init__(self, out: ToolCallAssembler) -> None:
        self._out = out
        self._keys: dict[str, int] = {}
        self._started: set[str] = set()
        self._deltas: dict[str, list[str]] = {}
        self._paths: dict[str, str] = {}
        """The path of the first piece of each call, by id."""

    def feed(self, fields: Fields, path: str) -> list[AnyEvent]:
        """Returns the events that a piece adds."""
        try:
            step, id = fields.require("type").string(), fields.require("id").nonempty_string()
            key = self._keys.setdefault(id, len(self._keys))
            self._paths.setdefault(id, path)
            name = fields.require("name").nonempty_string() if step == "tool_call_start" else fields.string("name")
            if name and id not in self._started:
                self._started.add(id)
                self._out.call(key, id, name, "", named=True)
            if step == "tool_call_delta":
                self._add(id, fields.require("delta").string())
            if step == "tool_call_complete":
                self._add(id, self._remaining(id, fields))
        except RequestError as e:
            raise RequestError(str(e).removesuffix(f" - at {e.path}"), e.path.replace("$", path, 1)) from None
        return self._out.drain()

    def _add(self, id: str, text: str) -> None:
        self._deltas.setdefault(id, []).append(text)
        self._out.call(self._keys[id], id, "", text)

    def _remaining(self, id: str, fields: Fields) -> str:
        """The part of the complete arguments that has not arrived in deltas."""
        value = fields.pop("arguments")
        arguments = "" if value is None else value.text if value.kind == "object" else value.string()
        before = "".join(self._deltas.get(id, ()))
        if arguments.startswith(before):
            return arguments[len(before) :]
        if value is None or _is_same_call(arguments, before):
            return ""
        raise RequestError("expected the arguments that came in deltas, got others", f"{fields.path}.arguments")

    def close(self) -> list[AnyEvent]:
        """Returns the events that the end of the stream adds."""
        for id, path in self._paths.items():
            if id not in self._started:
                known = nearest(id, self._started)
                raise RequestError(f"unknown id {quote(id)}{known}; no tool_call_start has it", f"{path}.id")
        self._out.finish("stop")
        return self._out.drain()


def _is_same_call(one: str, other: str) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False
