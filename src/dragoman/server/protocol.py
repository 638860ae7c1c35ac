"""HTTP/1.1 for uvicorn, with limits on what a client may send or hold before it is authenticated.

The head of a request is limited in bytes, headers and time; so are trailers, which are dropped. The number of
connections is limited. Without these limits, one client without a key could use all memory or all file descriptors.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from weakref import ref

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from dragoman import dialects
from dragoman.core.errors import QueueFullError, RequestError
from dragoman.core.identifiers import random_id
from dragoman.server.client_watch import ON_DISCONNECT, TAKE_BODY

log = logging.getLogger("dragoman.server")

MAX_HEAD_BYTES: Final = 64 * 1024
"""Maximum size of a head, and of everything else that is not part of the body."""
MAX_HEADERS: Final = 100
"""Maximum number of headers of a request."""
IDLE_S: Final = 60.0
"""Time after which a connection without a request is closed."""
FIRST_REQUEST_S: Final = 1.0
"""Time for the request of a connection that was accepted just before the gateway stopped accepting connections."""
_LOG_EVERY_S: Final = 60.0
"""Minimum time between two log lines with the same text."""
_DESCRIPTOR_SHARE: Final = 2
"""One in so many file descriptors may be a client's; the others are for upstream servers, files and child processes."""


class ConnectionLimits:
    """The limits of all connections of one server."""

    def __init__(self, head_s: float, connections: int) -> None:
        """Args:
        head_s: seconds for the head of a request to arrive.
        connections: maximum number at a time; 0: half of the process's file descriptors.
        """
        self.head_s = head_s
        self.connections = connections or _descriptors() // _DESCRIPTOR_SHARE
        self.is_draining = False
        """Whether connections close after their response."""
        self._logged_s: dict[str, float] = {}

    def protocol(self, **options: Any) -> "LimitedProtocol":
        """Returns the protocol of a new connection; uvicorn calls it."""
        return LimitedProtocol(self, **options)

    def warn(self, text: str) -> None:
        """Logs the text, but at most once per `_LOG_EVERY_S`."""
        now_s = time.monotonic()
        if now_s - self._logged_s.get(text, -_LOG_EVERY_S) >= _LOG_EVERY_S:
            self._logged_s[text] = now_s
            log.warning("%s", text)


class LimitedProtocol(HttpToolsProtocol):
    """One HTTP connection, within its limits."""

    def __init__(self, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(**options)
        self._limits = limits
        self._in_head = True
        """No request is being answered, or the head of the next one is incomplete."""
        self._bytes = 0
        """Bytes received since the last piece of a body."""
        self._head_bytes = 0
        """Bytes of the headers so far."""
        self._too_large = False
        self._timer: asyncio.TimerHandle | None = None
        self._on_disconnect: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accepts the connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            message = (
                f"more than {self._limits.connections} connections (setting server.max_connections); new ones get 503"
            )
            self._limits.warn(message)
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections; try again later")
            return
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has closed."""
        self._stop_waiting()
        super().connection_lost(exc)
        callback, self._on_disconnect = self._on_disconnect, None
        if callback is not None:
            callback()
        # These refer to this object. Such a cycle, 9 KB for each connection, would stay until a full garbage
        # collection, of which there are few (`warm_up.GC_THRESHOLDS`).
        self.cycle = self.scope = None  # type: ignore[assignment]
        self.pipeline.clear()

    def on_disconnect(self, callback: Callable[[], None] | None) -> None:
        """Registers what is called when the client disconnects; see `client_watch.ON_DISCONNECT`."""
        if callback is not None and self.transport.is_closing():
            callback()
        else:
            self._on_disconnect = callback

    def data_received(self, data: bytes) -> None:
        """Parses the data, unless there is too much of it."""
        if self.transport.is_closing():
            return
        self._bytes += len(data)
        super().data_received(data)
        if self._bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._too_large = True
            self.send_400_response("")
        elif self._in_head and self._timer is None:
            self._wait()

    def on_message_begin(self) -> None:
        """The head of a request begins."""
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_url(self, url: bytes) -> None:
        """A part of its path."""
        super().on_url(url)
        self._head_bytes += len(url)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; one after the body is a trailer, which no handler here reads."""
        if not self._in_head:
            return
        super().on_header(name, value)
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_HEAD_BYTES or len(self.headers) > MAX_HEADERS:
            self._refuse_head()

    def on_headers_complete(self) -> None:
        """The head is complete."""
        self._in_head, self._bytes = False, 0
        self._stop_waiting()
        super().on_headers_complete()
        if self.cycle is not None:  # its task has not begun
            if self._limits.is_draining:
                self.cycle.keep_alive = False
            extensions: Any = {ON_DISCONNECT: self.on_disconnect, TAKE_BODY: partial(_take_body, ref(self.cycle))}
            self.cycle.scope["extensions"] = extensions

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._in_head, self._bytes = True, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The response is complete; the head of the next request is timed from here on."""
        super().on_response_complete()
        if self._bytes and self._in_head:
            self._wait()

    def shutdown(self) -> None:
        """Closes the connection after its response; if its request may be on the way, after the response to that."""
        begins = self.cycle is None or (self._in_head and self._bytes > 0)
        if begins and not self.transport.is_closing():
            self.loop.call_later(FIRST_REQUEST_S, super().shutdown)
        else:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Refuses a request that cannot be parsed, and closes the connection."""
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.close()  # within a response it would be taken for a part of that
        elif self._too_large:
            message = f"expected a request head of at most {MAX_HEAD_BYTES} bytes and {MAX_HEADERS} headers, got more"
            self._limits.warn(f"refused a request: {message}")
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message)
        else:
            self._refuse(HTTPStatus.BAD_REQUEST, "expected a request of HTTP/1.1, got something else")

    def _refuse_head(self) -> None:
        self._too_large = True
        raise OverflowError  # ends the parser, which reports it as an error of its own

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        error = QueueFullError(message) if status == HTTPStatus.SERVICE_UNAVAILABLE else RequestError(message)
        body = dialects.get("openai_chat").write_error(error)
        id = f"req_{random_id()}"
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\nx-request-id: {id}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _wait(self) -> None:
        """Starts the timer for a head."""
        self._stop_waiting()
        self._timer = self.loop.call_later(self._limits.head_s, self._on_deadline)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_deadline(self) -> None:
        self._timer = None
        if self.transport.is_closing() or not (self.cycle is None or self.cycle.response_complete):
            return
        if self._bytes:
            message = f"expected the whole head of the request within {self._limits.head_s:g} s"
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, message)
        else:
            self.transport.close()


def _take_body(cycle_of_request: "ref[RequestResponseCycle]") -> bytes | None:
    """Returns the body of a request, as `client_watch.TakeBody`; without waiting for a message of ASGI."""
    cycle = cycle_of_request()  # a strong reference in its scope would keep both from being freed
    if cycle is None or cycle.more_body or cycle.disconnected:
        return None
    cycle.flow.resume_reading()  # it is paused while a body waits to be read
    body, cycle.body = bytes(cycle.body), bytearray()
    return body


def _descriptors() -> int:
    """Returns how many file descriptors this process may open."""
    if sys.platform == "win32":
        return 2**14
    import resource  # does not exist on Windows

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**16 if soft == resource.RLIM_INFINITY else max(4, min(soft, 2**16))
