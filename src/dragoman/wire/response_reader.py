"""Parses bytes of an upstream server into JSON objects: a stream of server-sent events, or one whole body.

Some servers answer a streaming request with a whole body, or the reverse; the first character shows which one it is.
Anything else, such as a proxy's HTML page, is an error of the server. Invalid UTF-8, such as a character split between
two tokens, is read as U+FFFD and reported. `NaN` and `Infinity`, which Python servers write in timing fields, are read
as null.

A response is complete if the server reports why it ended. An empty response is an error. A stream that ends with only
`[DONE]` was cut off: its finish reason is "length", unless it contains complete calls. An event, or a line of the
stream, named `error` is an error of the server, whatever fields its JSON has.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import msgspec

from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import DragomanError, RequestError, UpstreamError, quote
from dragoman.core.events import AnyEvent
from dragoman.core.identifiers import ANY_STRING, ToolNameMap, call_ids
from dragoman.core.messages import FinishReason, Request
from dragoman.text import json_cursor
from dragoman.text.json_cursor import Cursor, Fields
from dragoman.text.surrogates import may_have_surrogates
from dragoman.wire.call_assembly.assembler import ToolCallAssembler
from dragoman.wire.sse import DONE, ERROR, EVENT_LIMIT_BYTES, Decoder, ServerSentEvent
from dragoman.wire.upstream_errors import error_from_body, error_from_event


def new_assembler(
    request: Request, context: ExchangeContext, dialect: str, legal: re.Pattern[str]
) -> ToolCallAssembler:
    """Creates the assembler for the response to this request.

    Args:
        request: The request as the client sent it.
        context: The context of the exchange.
        dialect: Name of the server's API.
        legal: Tool names that the API accepts.
    """
    form = ANY_STRING if request.dialect == dialect else legal
    return ToolCallAssembler(
        context, request.model, partial(_tool_names, request, form), used=partial(call_ids, request)
    )


def _tool_names(request: Request, form: re.Pattern[str]) -> ToolNameMap:
    return ToolNameMap((tool.name for tool in request.tools if tool.name), form)


DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of msgspec for JSON that does not match a type."""
_ERROR: Final = ERROR.encode()
BLANK: Final = b" \t\r\n\xef\xbb\xbf"
"""White space that can precede a body, and the byte order mark."""
_BOM: Final = b"\xef\xbb\xbf"
BODY_STARTS: Final = (b"{", b"[", b"<")
"""The first character of a body that is not a stream: JSON, or an error page."""
_CONSTANT: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|-?\b(?:NaN|nan|Infinity|inf)\b', re.DOTALL)
"""Matches Python constants that are not valid JSON, and strings, in which they are plain text."""
_QUOTED_CHARS: Final = 200
"""Maximum characters quoted from an error that is not JSON."""


class BaseResponseReader(ABC):
    """Reads one response: `feed` chunks, then `close`.

    It never raises: a truncated or invalid response ends with Failure.
    """

    __slots__ = ("_body", "_event_name", "_is_broken", "_out", "_sse", "_whole_body")

    _nothing = "its end alone"
    """Description of a response for which `_is_empty` is True."""

    def __init__(self, out: ToolCallAssembler) -> None:
        self._out = out
        self._sse: Decoder | None = None
        self._body = bytearray()
        self._whole_body: bool | None = None
        """The response is not a stream; None before the first character."""
        self._event_name = ""
        """Name of the current SSE event, for servers that omit `type` in its JSON."""
        self._is_broken = False
        """The response contained invalid UTF-8."""

    def feed(self, piece: bytes) -> list[AnyEvent]:
        """Returns the events that this chunk adds."""
        try:
            if self._sse is None:
                self._feed_first(piece)
            elif (events := self._sse.whole_events(piece)) is None:
                self._events(map(_encoded, self._sse.feed(piece)))
            else:
                self._events(events)
        except DragomanError as e:
            self._fail(e)
        return self._out.drain()

    def close(self) -> list[AnyEvent]:
        """Returns the events that the end adds: at least Finish or Failure, unless one was emitted before."""
        try:
            self._close()
        except DragomanError as e:
            self._fail(e)
        return self._out.drain()

    def _fail(self, error: DragomanError) -> None:
        if isinstance(error, RequestError):
            error = UpstreamError(f"the server sent something that its API does not define: {error.message}")
        self._out.fail(error)

    def _feed_first(self, piece: bytes) -> None:
        """Adds a chunk of a whole body, or the first chunk of a stream."""
        self._body += piece
        if self._whole_body is None:
            first_byte = bytes(self._body.lstrip(BLANK)[:1])
            self._whole_body = first_byte in BODY_STARTS if first_byte else None
        if self._whole_body is False:
            self._sse = Decoder()
            self._events(map(_encoded, self._sse.feed(bytes(self._body))))
        elif len(self._body) > EVENT_LIMIT_BYTES:
            raise UpstreamError(f"expected a reply of at most {EVENT_LIMIT_BYTES} bytes, got a longer one")

    def _events(self, events: Iterable[tuple[bytes, bytes]]) -> None:
        for name, data in events:
            if self._out.phase == "ended" or (name != _ERROR and data[:1] == b"{" and self._quick(data)):
                continue
            self._event(name, data)

    def _event(self, name: bytes, data: bytes) -> None:
        data = data.strip()
        if data == DONE:
            self._finish(done=True, bare=True)
        elif name == _ERROR and data:
            raise self._error(data)
        elif data:
            self._event_name = name.decode("utf-8", "replace")
            self._object(data, self._frame)

    def _error(self, data: bytes) -> DragomanError:
        """Returns the error of an event named `error`."""
        try:
            fields = self._read(data).fields()
        except DragomanError:
            return UpstreamError(data.decode("utf-8", "replace")[:_QUOTED_CHARS])
        return error_from_event(fields) or error_from_body(fields)

    def _quick(self, data: bytes) -> bool:
        """Fast path for an event that is only a chunk of text or arguments in the API's exact form, as most are.

        Returns False for any other event; `_frame` then parses all of it.
        """
        return False

    def _quick_whole(self, body: bytes) -> bool:
        """Fast path for a body that is not a stream, as `_quick` for an event."""
        return False

    # Overridden instead of passed in as bound methods, which would keep each reader alive until a garbage collection.

    @abstractmethod
    def _frame(self, fields: Fields) -> None:
        """Reads the JSON of an event."""

    def _read_unstreamed(self, fields: Fields) -> None:
        """Reads the JSON of a body that is not a stream."""
        self._frame(fields)

    @abstractmethod
    def _ended(self) -> bool:
        """Ends the response if it may end here; returns whether it did."""

    def _close(self) -> None:
        if self._sse is not None:
            self._events([_encoded(last) for last in self._sse.close() if _is_complete(last.data)])
            self._finish(done=False)
        elif self._out.phase != "ended":
            body = bytes(self._body).strip().removeprefix(_BOM)
            if not self._quick_whole(body):
                self._object(body, self._read_unstreamed)
            self._finish(done=True)

    def _finish(self, done: bool, *, bare: bool = False) -> None:
        """Ends the response; `done` if the server reports its end, `bare` if by a marker that may appear anywhere."""
        if self._out.phase == "ended" or self._ended():
            return
        if not done:
            self._out.fail(UpstreamError("the stream of the server ended before it was complete"))
            return
        if self._is_empty():
            raise UpstreamError(f"expected a response of the server, got {self._nothing}")
        was_cut = bare and not self._out.calls
        self._out.warn(
            "unknown_finish", f"the server did not report why it ended; it is treated as {_DEFAULT_FINISH[was_cut]!r}"
        )
        self._out.finish(_DEFAULT_FINISH[was_cut])

    def _is_empty(self) -> bool:
        """Whether nothing has arrived that the API would call a response."""
        return self._out.phase == "new"

    def _object(self, data: bytes, take: Callable[[Fields], None]) -> None:
        fields = self._read(data).fields()
        if (error := error_from_event(fields)) is not None:
            raise error
        if self._is_broken:
            self._out.broken("bytes of the answer that are not UTF-8 were read as U+FFFD")
        take(fields)

    def _read(self, data: bytes) -> Cursor:
        """Parses the server's JSON, also with minor errors."""
        if may_have_surrogates(data):
            data = self._out.halves.mark(data)
        try:
            return json_cursor.parse(data)
        except RequestError:
            return self._parse_lenient(data)

    def _parse_lenient(self, data: bytes) -> Cursor:
        text = data.decode("utf-8", "replace")
        for each in (text, _CONSTANT.sub(lambda match: match[0] if match[0][0] == '"' else "null", text)):
            try:
                cursor = json_cursor.parse(each)
            except RequestError:
                continue
            self._is_broken = self._is_broken or text.encode() != data
            return cursor
        raise UpstreamError(f"expected JSON from the server, got {len(data)} bytes that begin {quote(text[:80])}")


_DEFAULT_FINISH: Final[dict[bool, FinishReason]] = {True: "length", False: "stop"}
"""Finish reasons of responses that do not report one, by whether they were cut off."""


def _encoded(event: ServerSentEvent) -> tuple[bytes, bytes]:
    """Returns name and data, as `Decoder.whole_events` does."""
    return event.event.encode(), event.data


def _is_complete(data: bytes) -> bool:
    """Whether the last event, which has no blank line after it, is complete."""
    if data.strip() == DONE:
        return True
    try:
        return bool(json_cursor.parse(data.decode("utf-8", "replace")))
    except RequestError:
        return False
