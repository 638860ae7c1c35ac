"""The bytes of a server behind, to the JSON objects in them: a stream of server-sent events, or one whole body.

Servers answer a request for a stream with a whole body, and the other way round; what came is told by its first
character. Anything else, such as a proxy's page of HTML, is an error of the server's. Bytes that are no UTF-8, as of a
character that was cut between two tokens, are read as U+FFFD, and told of.
"""

import re
from collections.abc import Callable
from typing import Final

import msgspec

from dragoman.core import shape
from dragoman.core.assemble import Assembler
from dragoman.core.contracts import Turn
from dragoman.core.errors import DragomanError, RequestError, UpstreamError, quote
from dragoman.core.events import AnyEvent
from dragoman.core.names import ANY, Names
from dragoman.core.shape import Cursor, Fields
from dragoman.core.sse import EVENT_LIMIT_BYTES, Decoder, ServerSentEvent
from dragoman.core.upstream_errors import said_error
from dragoman.core.values import Request, ToolCall


def assembler(request: Request, turn: Turn, dialect: str, legal: re.Pattern[str]) -> Assembler:
    """For the answer to this request of a server of this API, whose names of tools are of this form."""
    form = ANY if request.dialect == dialect else legal
    names = Names((tool.name for tool in request.tools if tool.name), form)
    used = (part.id for message in request.messages for part in message.parts if isinstance(part, ToolCall))
    return Assembler(turn, request.model, names.offered(), back=names.back, used=used)


_DONE: Final = b"[DONE]"
NOT_THAT: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises where JSON is not of a type."""
_BLANK: Final = b" \t\r\n\xef\xbb\xbf"
_NO_STREAM: Final = (b"{", b"[", b"<")


class UpstreamReader:
    """Reads one answer: `feed` what comes, `close` at its end.

    Never raises: an answer that breaks off, or is none, ends with Failure.
    """

    __slots__ = ("_body", "_ended", "_frame", "_mended", "_out", "_sse", "_whole", "_whole_body")

    def __init__(
        self,
        out: Assembler,
        frame: Callable[[Fields], None],
        whole: Callable[[Fields], None],
        ended: Callable[[], bool],
    ) -> None:
        """`frame` takes an event's JSON, `whole` that of a whole body; `ended` says whether an end may stand here."""
        self._out, self._frame, self._whole, self._ended = out, frame, whole, ended
        self._sse: Decoder | None = None
        self._body = bytearray()
        self._whole_body: bool | None = None
        """Not a stream; None before the first character."""
        self._mended = False
        """Something of it was no UTF-8."""

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
        for event in events:
            if self._out.phase == "ended":
                return
            data = event.data.strip()
            if data == _DONE:
                self._finish(done=True)
            elif data and not self._quick(data):
                self._object(data, self._frame)

    def _quick(self, data: bytes) -> bool:
        """Take an event that is nothing but a piece of words or arguments, as nearly all are, just as the API has it.

        False where it is anything else: then all of it is looked at, by `frame`.
        """
        return False

    def _close(self) -> None:
        if self._sse is not None:
            self._events([last for last in self._sse.close() if _is_whole(last.data)])
            self._finish(done=False)
        elif self._out.phase != "ended":
            self._object(bytes(self._body), self._whole)
            self._finish(done=True)

    def _finish(self, done: bool) -> None:
        if not self._ended() and not done:
            self._out.fail(UpstreamError("the server's stream broke off before its end"))
        self._out.finish("stop")

    def _object(self, data: bytes, take: Callable[[Fields], None]) -> None:
        told_before = self._mended
        try:
            cursor = shape.at(data)
        except RequestError:
            cursor, self._mended = _mended(data), True
        fields = cursor.fields()
        if (error := said_error(fields)) is not None:
            raise error
        if self._mended and not told_before:
            self._out.warn("broken_characters", "bytes of the answer that are no UTF-8 were read as U+FFFD")
        take(fields)


def _is_whole(data: bytes) -> bool:
    """The event behind which the stream ended without a blank line is not merely a beginning."""
    if data.strip() == _DONE:
        return True
    try:
        return bool(shape.at(data.decode("utf-8", "replace")))
    except RequestError:
        return False


def _mended(data: bytes) -> Cursor:
    """The JSON with U+FFFD for what is no UTF-8, where that is all that is wrong with it."""
    text = data.decode("utf-8", "replace")
    try:
        return shape.at(text)
    except RequestError:
        told = f"expected JSON of the server, got {len(data)} bytes that begin {quote(text[:80])}"
        raise UpstreamError(told) from None
