"""Calls that come in pieces, put together: a small face of what reads the answers of servers.

    calls = assemble_calls(chunks)                   all at once
    parts = CallAssembler()                          or as they come
    for chunk in chunks:
        for event in parts.feed(chunk): ...          ToolCallStart, ToolCallDelta, ToolCallEnd
    for event in parts.close(): ...

A piece is an event of one of the APIs, as a mapping or an object of the vendor's SDK: of Chat Completions a chunk, its
`delta`, or one of the `tool_calls` in that. Or it is one of these, of SDKs and servers that speak of calls only:

    {"type": "tool_call_start", "id": …, "name": …}
    {"type": "tool_call_delta", "id": …, "delta": "…"}
    {"type": "tool_call_end", "id": …}
    {"type": "tool_call_complete", "id": …, "arguments": "{…}" or an object}        instead of deltas, or behind them

They may come in any order and in turns; no arguments are `{}`. The events never overlap (`dragoman.core.events`).
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
from dragoman.core.identifiers import NewId, random_id
from dragoman.core.messages import Request, Tool, ToolCall
from dragoman.text import json_cursor
from dragoman.text.json_cursor import Fields
from dragoman.wire import sse
from dragoman.wire.call_assembler import ToolCallAssembler
from dragoman.wire.dialect import ResponseReader

Piece: TypeAlias = Mapping[str, Any] | Model
"""A piece of a stream, as JSON or as an object of the vendor's SDK."""

_STEPS: Final = ("tool_call_start", "tool_call_delta", "tool_call_end", "tool_call_complete")
_DONE: Final = sse.encode(b"[DONE]")


class AssembledCalls(list[ToolCall]):
    """The calls, in the order in which they began."""

    warnings: tuple[Notice, ...] = ()
    """What was not as it should be; docs/warnings.md has the codes."""


def assemble_calls(pieces: Iterable[Piece], names: Iterable[str] = ()) -> AssembledCalls:
    """The calls that these pieces are, all of them whole; `convert_calls` writes them for an API.

    `names` are the tools that were offered: they tell where a name ends that comes in pieces.

    Raises: RequestError: a piece is none, or of no call; or a call is not whole. The message says which and why.
    UpstreamError: what a server says went wrong. UsageError: this is no list of pieces.
    """
    if isinstance(pieces, Mapping | str | bytes) or not isinstance(pieces, Iterable):
        raise UsageError(f"expected a list of pieces, got {type(pieces).__name__} - at pieces")
    parts = CallAssembler(names)
    begun: list[ToolCallStart] = []
    said: list[list[str]] = []
    made, warnings, cut = AssembledCalls(), list[Notice](), list[RequestError]()
    for event in [*(event for piece in pieces for event in parts.feed(piece)), *parts.close()]:
        match event:
            case ToolCallStart():
                begun.append(event)
                said.append([])
            case ToolCallDelta(index, text):
                said[index].append(text)
            case ToolCallEnd(index):
                made.append(ToolCall(begun[index].id, begun[index].name, "".join(said[index])))
            case ToolCallIncomplete(index, raw):
                cut.append(_incomplete(begun[index], raw))
            case Notice():
                warnings.append(event)
            case Failure(error):
                raise error
    if cut:
        raise cut[0]
    made.warnings = tuple(warnings)
    return made


def _incomplete(call: ToolCallStart, raw: str) -> RequestError:
    try:
        json.loads(raw)
        why = "that is another value"
    except ValueError as e:
        why = str(e)
    wanted = f"a JSON object as the arguments of {quote(call.name)} ({call.id})"
    return RequestError(f"expected {wanted}, got {quote(raw)}: {why}", "pieces")


class CallAssembler:
    """Takes a stream's pieces one by one; gives the events of the whole answer, words and thoughts too."""

    def __init__(self, names: Iterable[str] = (), *, new_id: NewId | None = None) -> None:
        """`new_id` gives the ids of calls that come without one; random ones if there is none."""
        self._request = Request("", (), tuple(Tool(name) for name in names))
        self._turn = ExchangeContext("", 0, new_id or random_id)
        self._reader: ResponseReader | _Steps | None = None
        self._api = ""
        self._pieces = 0

    def feed(self, piece: Piece) -> list[AnyEvent]:
        """The events that this piece adds.

        Raises: RequestError: it is no piece, of another API than those before, or of no call; the message says which.
        """
        path = f"pieces[{self._pieces}]"
        self._pieces += 1
        text = as_json(piece, path)
        fields = json_cursor.at(text).fields()
        api, around = _recognised(fields, path)
        if self._reader is None:
            self._api, self._reader = api, self._made(api)
        if api != self._api:
            both = [name or "no API" for name in (api, self._api)]
            raise RequestError(f"a piece of {both[0]} among those of {both[1]}", path)
        if isinstance(self._reader, _Steps):
            return self._reader.step(fields, path)
        return self._reader.feed(sse.encode(around.replace("$", text, 1).encode()))

    def close(self) -> list[AnyEvent]:
        """The events that the end of the stream adds.

        Raises: RequestError: pieces of a call have come that never began.
        """
        if isinstance(self._reader, _Steps) or self._reader is None:
            return self._reader.close() if self._reader else []
        return [*self._reader.feed(_DONE), *self._reader.close()]

    def _made(self, api: str) -> "ResponseReader | _Steps":
        if not api:
            return _Steps(ToolCallAssembler(self._turn, "", (tool.name for tool in self._request.tools)))
        return dialects.get(api).reader(replace(self._request, dialect=api), self._turn)


def _recognised(fields: Fields, path: str) -> tuple[str, str]:
    """The API whose piece this is, "" where it speaks of calls only; and what stands around it in that API's stream.

    Raises: RequestError: it is no piece.
    """
    type = fields.peek("type")
    word = type.string() if type is not None and type.kind == "string" else ""
    if word in _STEPS:
        return "", "$"
    for name in dialects.names():
        for field, values, around in dialects.get(name).pieces:
            found = fields.peek(field)
            if found is not None and (not values or (found.kind == "string" and re.fullmatch(values, found.string()))):
                return name, around
    if word:
        hint = nearest(word, _STEPS)
        raise RequestError(
            f"unknown type {quote(word)}{hint or f'; expected {_STEPS[0]} and its like'}", f"{path}.type"
        )
    got = ", ".join(map(quote, fields.rest())) or "nothing"
    raise RequestError(f"expected a piece of a stream, got an object of {got}", path)


class _Steps:
    """Reads pieces that speak of calls only."""

    def __init__(self, out: ToolCallAssembler) -> None:
        self._out = out
        self._keys: dict[str, int] = {}
        self._begun: set[str] = set()
        self._said: dict[str, list[str]] = {}
        self._paths: dict[str, str] = {}
        """Of each call: where it was first spoken of."""

    def step(self, fields: Fields, path: str) -> list[AnyEvent]:
        """The events that a piece adds."""
        try:
            step, id = fields.need("type").string(), fields.need("id").word()
            key = self._keys.setdefault(id, len(self._keys))
            self._paths.setdefault(id, path)
            name = fields.need("name").word() if step == "tool_call_start" else fields.string("name")
            if name and id not in self._begun:
                self._begun.add(id)
                self._out.call(key, id, name, "", named=True)
            if step == "tool_call_delta":
                self._add(id, fields.need("delta").string())
            if step == "tool_call_complete":
                self._add(id, self._rest(id, fields))
        except RequestError as e:
            raise RequestError(str(e).removesuffix(f" - at {e.path}"), e.path.replace("$", path, 1)) from None
        return self._out.take()

    def _add(self, id: str, text: str) -> None:
        self._said.setdefault(id, []).append(text)
        self._out.call(self._keys[id], id, "", text)

    def _rest(self, id: str, fields: Fields) -> str:
        """What the whole arguments add to what has come of them."""
        found = fields.take("arguments")
        whole = "" if found is None else found.text if found.kind == "object" else found.string()
        before = "".join(self._said.get(id, ()))
        if whole.startswith(before):
            return whole[len(before) :]
        if found is None or _same(whole, before):
            return ""
        raise RequestError("expected the arguments that came in deltas, got others", f"{fields.path}.arguments")

    def close(self) -> list[AnyEvent]:
        """The events that the end adds."""
        for id, path in self._paths.items():
            if id not in self._begun:
                known = nearest(id, self._begun)
                raise RequestError(f"unknown id {quote(id)}{known}; no tool_call_start has it", f"{path}.id")
        self._out.finish("stop")
        return self._out.take()


def _same(one: str, other: str) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False
