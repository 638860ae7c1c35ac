"""HTTP/1.1 under uvicorn, with limits on what a client may send or hold before anything is known of it.

A request's head has so many bytes and headers, and a time to arrive; so have trailers, which are dropped. There are so
many connections. Without that, one client without a key could take all memory, or all descriptors.
"""

import asyncio
import logging
import secrets
import sys
import time
from http import HTTPStatus
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dragoman import dialects
from dragoman.core.errors import QueueFullError, RequestError

log = logging.getLogger("dragoman.server")

HEAD_BYTES: Final = 64 * 1024
"""Most bytes of a head, and of anything else that is no body."""
HEADERS: Final = 100
"""Most headers of a request."""
IDLE_S: Final = 60.0
"""Time after which a connection that no request uses any more is closed."""
_QUIET_S: Final = 60.0
"""Time between two lines of the log that say the same."""
_SPARE: Final = 2
"""Of so many descriptors one may be a client's: the others are for servers, files and child processes."""


class Limits:
    """Of the connections of one server."""

    def __init__(self, head_s: float, connections: int) -> None:
        """`connections`: the most at once; 0: half of the process's descriptors."""
        self.head_s = head_s
        self.connections = connections or _descriptors() // _SPARE
        self._said_s: dict[str, float] = {}

    def protocol(self, **given: Any) -> "LimitedProtocol":
        """The protocol of one more connection, as uvicorn makes it."""
        return LimitedProtocol(self, **given)

    def warn(self, text: str) -> None:
        """Log it, but not for each of many."""
        now_s = time.monotonic()
        if now_s - self._said_s.get(text, -_QUIET_S) >= _QUIET_S:
            self._said_s[text] = now_s
            log.warning("%s", text)


class LimitedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, limits: Limits, **given: Any) -> None:
        super().__init__(**given)
        self._limits = limits
        self._in_head = True
        """No request has begun that is not answered or being answered, or its head is not complete."""
        self._bytes = 0
        """That came since the last piece of a body."""
        self._head_bytes = 0
        """Of the head's headers so far."""
        self._too_large = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, if it is not one too many."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            told = f"more than {self._limits.connections} connections (setting server.connections); new ones get 503"
            self._limits.warn(told)
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections; try again later")
            return
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, as long as it is not too much."""
        if self.transport.is_closing():
            return
        self._bytes += len(data)
        super().data_received(data)
        if self._bytes > HEAD_BYTES and not self.transport.is_closing():
            self._too_large = True
            self.send_400_response("")
        elif self._in_head and self._timer is None:
            self._wait()

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_url(self, url: bytes) -> None:
        """More of its path."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; one behind the body is a trailer, which no handler here looks for."""
        if not self._in_head:
            return
        super().on_header(name, value)
        self._count(len(name) + len(value))

    def on_headers_complete(self) -> None:
        """The head is complete."""
        self._in_head, self._bytes = False, 0
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._in_head, self._bytes = True, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The answer is out; what has come of the next request has its time from now on."""
        super().on_response_complete()
        if self._bytes and self._in_head:
            self._wait()

    def send_400_response(self, msg: str) -> None:
        """Tell why nothing can be made of what came, and close."""
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.close()  # in the middle of an answer it would be taken for a part of that
        elif self._too_large:
            told = f"expected a request head of at most {HEAD_BYTES} bytes and {HEADERS} headers, got more"
            self._limits.warn(f"refused a request: {told}")
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, told)
        else:
            self._refuse(HTTPStatus.BAD_REQUEST, "expected a request of HTTP/1.1, got something else")

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES or len(self.headers) > HEADERS:
            self._too_large = True
            raise OverflowError  # ends the parser, which makes it an error of its own

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        error = QueueFullError(message) if status == HTTPStatus.SERVICE_UNAVAILABLE else RequestError(message)
        body = dialects.get("openai_chat").write_error(error)
        id = f"req_{secrets.token_hex(12)}"
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\nx-request-id: {id}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _wait(self) -> None:
        """A head has so much time from now on."""
        self._stop_waiting()
        self._timer = self.loop.call_later(self._limits.head_s, self._late)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self.transport.is_closing() or not (self.cycle is None or self.cycle.response_complete):
            return
        if self._bytes:
            told = f"expected the whole head of the request within {self._limits.head_s:g} s"
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, told)
        else:
            self.transport.close()


def _descriptors() -> int:
    """How many this process may have open."""
    if sys.platform == "win32":
        return 2**14
    import resource  # which Windows has not

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**16 if soft == resource.RLIM_INFINITY else max(4, min(soft, 2**16))
