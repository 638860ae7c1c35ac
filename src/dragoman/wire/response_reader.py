"""The bytes of a server behind, to the JSON objects in them: a stream of server-sent events, or one whole body.

Servers answer a request for a stream with a whole body, and the other way round; what came is told by its first
character. Anything else, such as a proxy's page of HTML, is an error of the server's. Bytes that are no UTF-8, as of a
character that was cut between two tokens, are read as U+FFFD, and told of. `NaN` and `Infinity`, which Python's servers
write where they measure their own speed, are read as null.

An answer is whole where the server says why it ended. One that says nothing at all is an error. A stream that ends with
`[DONE]` alone was cut: its finish is "length", unless calls in it are whole. An event, or a line of the stream, that is
named `error` is the server's error, whatever the fields of its JSON.
"""

import re
from collections.abc import Callable
from typing import Final

import msgspec

from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import DragomanError, RequestError, UpstreamError, quote
from dragoman.core.events import AnyEvent
from dragoman.core.identifiers import ANY, Names
from dragoman.core.messages import FinishReason, Request, ToolCall
from dragoman.text import json_cursor
from dragoman.text.json_cursor import Cursor, Fields
from dragoman.text.surrogates import has_halves
from dragoman.wire.call_assembler import ToolCallAssembler
from dragoman.wire.sse import ERROR, EVENT_LIMIT_BYTES, Decoder, ServerSentEvent
from dragoman.wire.upstream_errors import said_error, told_error


def assembler(request: Request, turn: ExchangeContext, dialect: str, legal: re.Pattern[str]) -> ToolCallAssembler:
    """For the answer to this request of a server of this API, whose names of tools are of this form."""
    form = ANY if request.dialect == dialect else legal
    names = Names((tool.name for tool in request.tools if tool.name), form)
    used = (part.id for message in request.messages for part in message.parts if isinstance(part, ToolCall))
    return ToolCallAssembler(turn, request.model, names.offered(), back=names.back, used=used)


_DONE: Final = b"[DONE]"
NOT_THAT: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises where JSON is not of a type."""
_BLANK: Final = b" \t\r\n\xef\xbb\xbf"
_BOM: Final = b"\xef\xbb\xbf"
_NO_STREAM: Final = (b"{", b"[", b"<")
_CONSTANT: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|-?\b(?:NaN|nan|Infinity|inf)\b', re.DOTALL)
"""What is no JSON in Python's, and strings, in which the same letters are text."""
_SAID_CHARS: Final = 200
"""Of an error that is no JSON."""


class UpstreamReader:
    """Reads one answer: `feed` what comes, `close` at its end.

    Never raises: an answer that breaks off, or is none, ends with Failure.
    """

    __slots__ = ("_body", "_event_name", "_is_broken", "_out", "_sse", "_whole_body")

    _nothing = "its end alone"
    """What an answer has been where `_is_empty`."""

    def __init__(self, out: ToolCallAssembler) -> None:
        self._out = out
        self._sse: Decoder | None = None
        self._body = bytearray()
        self._whole_body: bool | None = None
        """Not a stream; None before the first character."""
        self._event_name = ""
        """Of the event that is being read, for servers that leave `type` out of its JSON."""
        self._is_broken = False
        """Something was no UTF-8."""

    def feed(self, piece: bytes) -> list[AnyEvent]:
        """The events that this piece adds."""
        return self._taken(lambda: self._feed(piece))

    def close(self) -> list[AnyEvent]:
        """The events that the end of the answer adds: at least Finish or Failure, unless one came before."""
        return self._taken(self._close)

    def _taken(self, step: Callable[[], None]) -> list[AnyEvent]:
        try:
            step()
        except RequestError as e:
            self._out.fail(UpstreamError(f"the server sent what its API does not have: {e.message}"))
        except DragomanError as e:
            self._out.fail(e)
        return self._out.take()

    def _feed(self, piece: bytes) -> None:
        if self._sse is not None:
            self._events(self._sse.feed(piece))
            return
        self._body += piece
        if self._whole_body is None:
            begun = bytes(self._body.lstrip(_BLANK)[:1])
            self._whole_body = begun in _NO_STREAM if begun else None
        if self._whole_body is False:
            self._sse = Decoder()
            self._events(self._sse.feed(bytes(self._body)))
        elif len(self._body) > EVENT_LIMIT_BYTES:
            raise UpstreamError(f"expected a reply of at most {EVENT_LIMIT_BYTES} bytes, got a longer one")

    def _events(self, events: list[ServerSentEvent]) -> None:
        for name, raw in events:
            if self._out.phase == "ended":
                return
            data = raw.strip()
            if data == _DONE:
                self._finish(done=True, bare=True)
            elif name == ERROR and data:
                raise self._error(data)
            elif data and not self._quick(data):
                self._event_name = name
                self._object(data, self._frame)

    def _error(self, data: bytes) -> DragomanError:
        """The error of an event that is named so."""
        try:
            fields = self._read(data).fields()
        except DragomanError:
            return UpstreamError(data.decode("utf-8", "replace")[:_SAID_CHARS])
        return said_error(fields) or told_error(fields)

    def _quick(self, data: bytes) -> bool:
        """Take an event that is nothing but a piece of words or arguments, as nearly all are, just as the API has it.

        False where it is anything else: then all of it is looked at, by `_frame`.
        """
        return False

    # Overridden, and not passed in as bound methods, which would keep each reader alive until a garbage collection.

    def _frame(self, fields: Fields) -> None:
        """Takes an event's JSON."""
        raise NotImplementedError

    def _whole(self, fields: Fields) -> None:
        """Takes the JSON of a body that is not a stream."""
        self._frame(fields)

    def _ended(self) -> bool:
        """Whether the answer may end here; if so, it has been ended."""
        raise NotImplementedError

    def _close(self) -> None:
        if self._sse is not None:
            self._events([last for last in self._sse.close() if _is_whole(last.data)])
            self._finish(done=False)
        elif self._out.phase != "ended":
            self._object(bytes(self._body).strip().removeprefix(_BOM), self._whole)
            self._finish(done=True)

    def _finish(self, done: bool, *, bare: bool = False) -> None:
        """The answer is over; `done` where the server says so, `bare` where by a word that it may send at any place."""
        if self._out.phase == "ended" or self._ended():
            return
        if not done:
            self._out.fail(UpstreamError("the server's stream broke off before its end"))
            return
        if self._is_empty():
            raise UpstreamError(f"expected an answer of the server, got {self._nothing}")
        was_cut = bare and not self._out.calls
        self._out.warn("unknown_finish", f"the server did not say why it ended; it is taken for {_CUT[was_cut]!r}")
        self._out.finish(_CUT[was_cut])

    def _is_empty(self) -> bool:
        """Whether nothing has come that the API would call an answer."""
        return self._out.phase == "new"

    def _object(self, data: bytes, take: Callable[[Fields], None]) -> None:
        fields = self._read(data).fields()
        if (error := said_error(fields)) is not None:
            raise error
        if self._is_broken:
            self._out.broken("bytes of the answer that are no UTF-8 were read as U+FFFD")
        take(fields)

    def _read(self, data: bytes) -> Cursor:
        """The JSON of the server, also where it is a little less than that."""
        if has_halves(data):
            data = self._out.halves.marked(data)
        try:
            return json_cursor.at(data)
        except RequestError:
            return self._mended(data)

    def _mended(self, data: bytes) -> Cursor:
        text = data.decode("utf-8", "replace")
        for each in (text, _CONSTANT.sub(lambda found: found[0] if found[0][0] == '"' else "null", text)):
            try:
                cursor = json_cursor.at(each)
            except RequestError:
                continue
            self._is_broken = self._is_broken or text.encode() != data
            return cursor
        raise UpstreamError(f"expected JSON of the server, got {len(data)} bytes that begin {quote(text[:80])}")


_CUT: Final[dict[bool, FinishReason]] = {True: "length", False: "stop"}
"""The end of an answer that does not say why it ended."""


def _is_whole(data: bytes) -> bool:
    """The event behind which the stream ended without a blank line is not merely a beginning."""
    if data.strip() == _DONE:
        return True
    try:
        return bool(json_cursor.at(data.decode("utf-8", "replace")))
    except RequestError:
        return False
