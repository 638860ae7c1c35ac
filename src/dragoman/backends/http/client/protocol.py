"""One HTTP/1.1 connection of the client: writes a request, and reads its response.

    send(request) → status, headers; read() → bytes, read() → bytes, …, read() → b"" → reset() → send(next request)

A reader waits for one future, and everything that has arrived by then is returned in one piece. One timer for each
connection serves all timeouts: it is moved only if a deadline is earlier, and otherwise checks the current deadline
when it fires.

Source: https://www.rfc-editor.org/rfc/rfc9112 (2026-11). The parser is llhttp, the one of Node.
"""

import asyncio
import math
import re
from collections.abc import Callable
from typing import Final, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from dragoman.backends.http.client.errors import (
    HttpError,
    ReadError,
    ReadTimeout,
    RemoteDisconnected,
    RemoteProtocolError,
)

HEAD_LIMIT_BYTES: Final = 64 * 1024
"""Maximum bytes without any of the body: the head, interim responses, trailers."""
_BUFFER_LIMIT_BYTES: Final = 256 * 1024
"""Bytes that wait for the reader; with more, reading from the socket pauses."""
_FORBIDDEN: Final = re.compile("[\0\r\n]")
_SLICE_BYTES: Final = 256 * 1024
"""How much of a long body is written at once, as encrypting it blocks all other responses."""
_JOIN_LIMIT_BYTES: Final = 64 * 1024
"""A shorter body is sent in one write with the head; a longer one is not copied."""


class ClientConnection(asyncio.Protocol):
    """One connection, which carries one request at a time."""

    __slots__ = (
        "_buffered",
        "_closes_body",
        "_deadline",
        "_error",
        "_has_garbage",
        "_has_head",
        "_is_expecting",
        "_is_interim",
        "_is_writing",
        "_keep_alive",
        "_loop",
        "_on_lost",
        "_parser",
        "_pieces",
        "_read_paused",
        "_timer",
        "_timer_at",
        "_transport",
        "_waiter",
        "_write_paused",
        "headers",
        "is_complete",
        "is_idle",
        "is_lost",
        "read_timeout_s",
        "status",
    )

    def __init__(self, on_lost: "Callable[[ClientConnection], None]") -> None:
        """
        Args:
            on_lost: is called once the connection is closed.
        """
        self._loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._parser = HttpResponseParser(self)
        # As lenient as aiohttp is with servers: control characters in values, LF without CR, blanks after chunk sizes.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = self._deadline = math.inf
        self._error: HttpError | None = None
        self._read_paused = self._write_paused = self._is_writing = False
        self.is_lost = self.is_idle = self._is_expecting = False
        self._reset_response()

    def _reset_response(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        """Headers of the response, names in lower case."""
        self.read_timeout_s = math.inf
        """Limit of each wait for bytes of the body."""
        self.is_complete = False
        """Whether the response has arrived to its end."""
        self._pieces: list[bytes] = []
        self._buffered = 0
        self._has_head = self._is_interim = self._closes_body = self._keep_alive = self._has_garbage = False

    # What the pool calls

    async def send(self, head: bytes, body: bytes, timeout_s: float) -> None:
        """Writes a request and waits for the head of its response, which may arrive before all of the body is written.

        Args:
            head: request line and headers, with the empty line.
            body: the body; empty: none.
            timeout_s: limit for both together; the initial limit of `read` too.

        Raises:
            RemoteDisconnected: the server closed the connection.
            ReadTimeout: it did not read the body or did not respond in time.
            RemoteProtocolError: the response is not HTTP.
        """
        transport = self._transport
        assert transport is not None
        self.is_idle, self._is_expecting = False, True
        self.read_timeout_s = timeout_s
        self._deadline = self._loop.time() + timeout_s
        if len(body) <= _JOIN_LIMIT_BYTES:
            transport.write(head + body)
        else:
            transport.write(head)
            await self._write_body(transport, body)
        while not self._has_head:
            await self._wait()

    async def _write_body(self, transport: asyncio.Transport, body: bytes) -> None:
        self._is_writing = True
        view = memoryview(body)
        for start in range(0, len(body), _SLICE_BYTES):
            while self._write_paused and not self._has_head:
                await self._wait()
            self._raise_error()
            if self._has_head:  # the server does not want the rest; the connection cannot be reused
                return
            transport.write(view[start : start + _SLICE_BYTES])
        self._is_writing = False

    async def read(self) -> bytes:
        """Returns the next bytes of the body, all that have arrived; b"" at its end.

        Raises:
            ReadTimeout: nothing arrived in `read_timeout_s`.
            ReadError: the connection was closed.
            RemoteProtocolError: the rest of the response is not HTTP.
        """
        while not self._pieces:
            if self.is_complete:
                return b""
            self._deadline = self._loop.time() + self.read_timeout_s
            await self._wait()
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._pieces = []
        self._buffered = 0
        if self._read_paused:
            self._read_paused = False
            if not self.is_closed and self._transport is not None:
                self._transport.resume_reading()
        return data

    @property
    def is_reusable(self) -> bool:
        """Whether the connection can carry another request."""
        return (
            self.is_complete
            and self._keep_alive
            and not (self._has_garbage or self._is_writing or self._read_paused or self.is_closed)
        )

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed or about to be."""
        return self.is_lost or self._error is not None or self._transport is None or self._transport.is_closing()

    def reset(self, idle_s: float) -> None:
        """Prepares for the next request; without one, the connection closes after this time."""
        self._reset_response()
        self.is_idle = True
        self._deadline = self._loop.time() + idle_s
        if self._deadline < self._timer_at:
            self._set_timer()

    def abort(self) -> None:
        """Closes the connection at once, without sending what is still buffered."""
        if self._transport is not None:
            self._transport.abort()

    def release_transport(self) -> asyncio.Transport:
        """Returns the transport, which this connection no longer uses.

        Raises:
            RemoteProtocolError: there are bytes after the head of the response.
        """
        transport = self._transport
        assert transport is not None
        if self._pieces or self._has_garbage:
            raise RemoteProtocolError("data before TLS")
        if self._timer is not None:
            self._timer.cancel()
        return transport

    # Waiting

    async def _wait(self) -> None:
        """Waits until anything changes, or the deadline."""
        self._raise_error()
        if self._deadline < self._timer_at:
            self._set_timer()
        self._waiter = self._loop.create_future()
        await self._waiter

    def _raise_error(self) -> None:
        if (error := self._error) is not None:
            raise type(error)(*error.args)  # the stored one would refer to this frame, and so to itself

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():  # cancelled
                waiter.set_result(None)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._deadline
        self._timer = self._loop.call_at(self._deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, math.inf
        if not self.is_idle and self._waiter is None:
            return  # the reader is busy; its next wait sets the timer
        if self._loop.time() < self._deadline:
            self._set_timer()
        elif self.is_idle:
            self.abort()
        else:
            self._fail(ReadTimeout())

    def _fail(self, error: HttpError) -> None:
        if self._error is None:
            self._error = error
        self.abort()
        self._wake()

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Stores the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Parses what has arrived, and wakes the reader if that is useful to it."""
        if not self._is_expecting:
            self._has_garbage = True
            if self.is_idle:
                self.abort()
            return
        self._buffered += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as e:
            if not self.is_complete:
                self._fail(RemoteProtocolError(str(e)))
                return
            self._has_garbage = True
        if self._pieces or self.is_complete:
            if self._buffered > _BUFFER_LIMIT_BYTES and not self.is_complete:
                self._pause_reading()
        elif self._buffered > HEAD_LIMIT_BYTES:
            self._fail(RemoteProtocolError(f"more than {HEAD_LIMIT_BYTES} bytes before the body"))
            return
        elif not self._has_head:
            return
        self._wake()

    def _pause_reading(self) -> None:
        if not (self._read_paused or self.is_closed) and self._transport is not None:
            self._read_paused = True
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        """Stops writing the body, as the server does not read it."""
        self._write_paused = True

    def resume_writing(self) -> None:
        """Continues writing the body."""
        self._write_paused = False
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the response: at its end if only the closing marks that, otherwise as a failure."""
        self.is_lost = True
        if self._closes_body and exc is None and self._error is None:
            self.is_complete = True
        elif self._error is None:
            when = "in the middle of" if self._has_head else "before"
            message = f"the server closed the connection {when} its response"
            self._error = ReadError(message) if self._has_head else RemoteDisconnected(message)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake()
        self._on_lost(self)
        del self._parser  # it refers to this object
        self._transport = None

    # What the parser calls

    def on_message_begin(self) -> None:
        """Marks a second response as garbage."""
        if self.is_complete:
            self._has_garbage = True
            raise RemoteProtocolError("data after the response")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Stores a header; trailers and the headers of interim responses do not count."""
        if self._has_head:
            return
        text = value.decode("utf-8", "surrogateescape")
        if not text.isprintable() and _FORBIDDEN.search(text):
            raise RemoteProtocolError("control characters in a header")
        self.headers[name.decode("latin-1").lower()] = text

    def on_headers_complete(self) -> None:
        """Ends the head."""
        status = self._parser.get_status_code()
        if status < 200:
            if status == 101:
                raise RemoteProtocolError("unexpected upgrade")
            self._is_interim = True
            self.headers = {}
            return
        self.status, self._has_head, self._buffered = status, True, 0
        fields = self.headers
        self._closes_body = not ("content-length" in fields or "chunked" in fields.get("transfer-encoding", "").lower())

    def on_body(self, body: bytes) -> None:
        """Stores a piece of the body."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """Ends the response, unless it was an interim one."""
        if self._is_interim:
            self._is_interim = False
            return
        self.is_complete, self._is_expecting = True, False
        self._keep_alive = self._parser.should_keep_alive()
