"""One request over HTTP from its first byte to the last of its answer, whatever is answered.

What is answered is `_serve`'s. Here is what holds for all of it: limits of the body and of the time for it, errors in
the API's own shape as long as no answer has begun, and a client that leaves or takes nothing.
"""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple, TypeAlias

import msgspec

from dragoman.config import ServerConfig
from dragoman.core.errors import (
    BackendUnavailableError,
    ContentEncodingError,
    ContextOverflowError,
    DragomanError,
    MethodNotAllowedError,
    RequestError,
    RequestTooLargeError,
    UpstreamError,
    UsageError,
    WebSocketUnsupportedError,
)
from dragoman.server import encodings
from dragoman.server.client_watch import ClientDisconnectedError, Receive, Watch
from dragoman.server.observe.access_log import Record
from dragoman.wire.dialect import Dialect, TokenCounting
from dragoman.wire.upstream_headers import SHOULD_RETRY

log = logging.getLogger("dragoman.server")

Scope: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

DRAIN_FACTOR = 4
"""How many times the limit of a too large body is still read and thrown away, so that the client sees the answer."""


async def respond(send: Send, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
    """Send a whole JSON response."""
    fields = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    await send({"type": "http.response.start", "status": status, "headers": encoded(fields)})
    await send({"type": "http.response.body", "body": body})


def encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Headers as ASGI has them."""
    return [(k.encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()]


def error_headers(error: DragomanError) -> dict[str, str]:
    """`retry-after` where the error knows when, `allow` and `accept-encoding` what, `upgrade` as 426 must have it.

    Of an upstream's error its rate limits and the id of its response; `x-should-retry` as it says, and "false" where
    the same request would fail again, as clients retry a 502 for minutes.
    """
    if isinstance(error, WebSocketUnsupportedError):
        return {"upgrade": "HTTP/1.1"}
    if isinstance(error, ContentEncodingError):
        return {"accept-encoding": ", ".join(error.accepted)}
    if isinstance(error, MethodNotAllowedError):
        return {"allow": ", ".join(error.allowed)}
    fields = {} if error.retry_after_s is None else {"retry-after": str(max(1, round(error.retry_after_s)))}
    if isinstance(error, UpstreamError):
        return ({SHOULD_RETRY: "false"} if error.is_permanent else {}) | fields | error.headers
    return {SHOULD_RETRY: "false"} | fields if isinstance(error, ContextOverflowError) else fields


class Route(NamedTuple):
    """What is served at a path."""

    dialect: Dialect
    counting: TokenCounting | None = None
    """Tokens are counted there, and nothing is answered."""
    passed: str = ""
    """The path at the server that has the model, where the request goes on to it untranslated."""
    model: str = ""
    """The model, where the path names it."""
    compacts: bool = False
    """The conversation is compacted there, and nothing is answered."""

    @property
    def label(self) -> str:
        """The API, for metrics."""
        return "passthrough" if self.passed else self.dialect.name


def naming(body: bytes, model: str) -> bytes:
    """A body of JSON with this model in it; what is no object is left for its reader to refuse."""
    try:
        members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return body
    return msgspec.json.encode({**members, "model": model})


class HttpExchange(ABC):
    """One request and its answer; the owner of the record logs it."""

    def __init__(self, dialect: Dialect, config: ServerConfig, record: Record, receive: Receive, send: Send) -> None:
        self._dialect = dialect
        """In whose shape errors are."""
        self._config = config
        self._record = record
        self._receive = receive
        self._send = send
        self._watch: Watch | None = None
        self._sent = False
        """The status line is out."""
        self._ended = False
        """The last byte is out."""
        self._ending: Callable[[DragomanError], bytes] | None = None
        """What ends a stream whose last event is still to come."""
        self._headers: dict[str, str] = {}

    async def run(self, headers: Mapping[str, str]) -> None:
        """Answer, whatever happens."""
        try:
            await self._serve(headers)
        except ClientDisconnectedError:
            self._record.status = 499
        except asyncio.CancelledError:  # nobody but the server's own end cancels an exchange
            await self._fail(BackendUnavailableError("the gateway is being stopped", retry_after_s=2))
        except DragomanError as error:
            await self._fail(self._bug(error) if isinstance(error, UsageError) else error)
        except Exception as bug:  # noqa: BLE001 the one place where a bug becomes a 500
            await self._fail(self._bug(bug))

    @abstractmethod
    async def _serve(self, headers: Mapping[str, str]) -> None:
        """Read the body and answer it; raises what the client is to be told."""

    def _bug(self, bug: Exception) -> DragomanError:
        """Log it; what the client is told."""
        log.exception("bug while answering %s", self._record.id)
        self._record.failed(bug)
        return DragomanError("internal error; the server's log has it")

    async def _fail(self, error: DragomanError) -> None:
        """Tell the client, as far as it can still be told."""
        if self._ended:
            return
        self._record.failed(error)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._config.write_timeout_s):
                if not self._sent:
                    body, headers = self._dialect.write_error(error), error_headers(error)
                    await self._reply(self._dialect.status(error), body, headers)
                else:
                    await self._end(self._ending(error) if self._ending else b"")

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        limit = self._config.body_bytes
        pieces: list[bytes] = []
        size = 0
        self._headers["connection"] = "close"  # where the body is not read to its end, its rest is not waited for
        try:
            async with asyncio.timeout(self._config.body_timeout_s):
                while True:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnectedError
                    piece = message.get("body", b"")
                    size += len(piece)
                    if size <= limit:
                        pieces.append(piece)
                    if not message.get("more_body", False):
                        del self._headers["connection"]
                        break
                    if size > DRAIN_FACTOR * limit:
                        break
        except TimeoutError:
            raise RequestError(f"expected the whole body within {self._config.body_timeout_s:g} s") from None
        if size > limit:
            announced = headers.get("content-length", str(size))
            raise RequestTooLargeError(
                f"expected a body of at most {limit} bytes, got {announced} (setting server.body_bytes)"
            )
        body = b"".join(pieces)
        if applied := encodings.layers(headers.get("content-encoding", "")):
            body = await asyncio.to_thread(encodings.decoded, body, applied, limit)
        if not body:
            raise RequestError("the body is empty; expected a JSON object")
        return body

    async def _write(self, data: bytes) -> None:
        if data:
            await self._out({"type": "http.response.body", "body": data, "more_body": True})

    async def _end(self, data: bytes) -> None:
        self._over()
        await self._out({"type": "http.response.body", "body": data})

    def _over(self) -> None:
        """The last byte goes out; what the client does from here on changes nothing."""
        self._ended = True
        if self._watch is not None:
            self._watch.over = True

    async def _out(self, message: MutableMapping[str, Any]) -> None:
        if self._watch is None:
            await self._send(message)
            return
        self._watch.writes()
        await self._send(message)
        self._watch.wrote()

    async def _reply(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self._sent = True
        self._over()
        await respond(self._out, status, body, self._headers | dict(headers))
