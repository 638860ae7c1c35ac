"""Base class of all exchanges: one HTTP request from its first byte to the last byte of the response.

Subclasses answer the request in `_serve`: `exchange` by generating, `passthrough` by forwarding. This class enforces
the limits on the body and on the time for it, sends errors in the shape of the API until the response has begun, and
handles clients that disconnect or stop reading.
"""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final, NamedTuple

import msgspec

from dragoman.config.server import ServerConfig
from dragoman.core.errors import (
    BackendUnavailableError,
    BudgetExceededError,
    ContentEncodingError,
    ContextOverflowError,
    DragomanError,
    MethodNotAllowedError,
    RateLimitError,
    RequestError,
    RequestTooLargeError,
    UpstreamError,
    UsageError,
    WebSocketUnsupportedError,
)
from dragoman.server import encodings
from dragoman.server.client_watch import Client, ClientDisconnectedError, ClientWatch, Send
from dragoman.server.observe.access_log import AccessRecord
from dragoman.wire.dialect import Dialect, TokenCounting
from dragoman.wire.response_headers import SHOULD_RETRY

log = logging.getLogger("dragoman.server")

CLIENT_LEFT: Final = 499
"""Status in the log of a request whose client has disconnected."""
DRAIN_FACTOR = 4
"""A body that is too large is read up to this multiple of the limit and discarded: then the client sees the error."""


async def respond(send: Send, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
    """Sends a complete JSON response.

    Args:
        send: The `send` of ASGI.
        status: The HTTP status.
        body: The JSON.
        headers: Headers to add.
    """
    fields = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    await send({"type": "http.response.start", "status": status, "headers": encode_headers(fields)})
    await send({"type": "http.response.body", "body": body})


def encode_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Returns the headers as ASGI expects them."""
    return [(k.encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()]


def error_headers(error: DragomanError) -> dict[str, str]:
    """Returns the response headers of an error.

    `retry-after` if the error has a delay, `allow` and `accept-encoding` if it names methods or encodings, and the
    `upgrade` that status 426 requires. Of an upstream error also its rate limits and its request id, and
    `x-should-retry` as the server set it; "false" where the same request would fail again, because clients retry a 502
    for minutes.
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
    is_permanent = isinstance(error, ContextOverflowError | BudgetExceededError)
    if is_permanent or (isinstance(error, RateLimitError) and error.is_permanent):
        return {SHOULD_RETRY: "false"} | fields
    return fields


class Route(NamedTuple):
    """What is served at a path."""

    dialect: Dialect
    counting: TokenCounting | None = None
    """Set if the path counts tokens instead of generating."""
    passed: str = ""
    """The path at the upstream server, if the request is passed through untranslated."""
    model: str = ""
    """The model, if the path names it."""
    compacts: bool = False
    """Whether the path compacts the conversation instead of generating."""
    loads: bool | None = None
    """Whether the path loads a model, or unloads it; None: neither."""

    @property
    def is_limited(self) -> bool:
        """Whether requests count against the limits of their key: those that ask a model."""
        return self.counting is None and self.loads is None

    @property
    def label(self) -> str:
        """The API, as the label in metrics."""
        if self.loads is not None:
            return "models"
        return "passthrough" if self.passed else self.dialect.name


def with_model(body: bytes, model: str) -> bytes:
    """Returns the JSON body with this model; a body that is not an object is returned unchanged."""
    try:
        members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return body
    return msgspec.json.encode({**members, "model": model})


def _too_large(limit: int, size: int, headers: Mapping[str, str]) -> RequestTooLargeError:
    announced = headers.get("content-length", str(size))
    return RequestTooLargeError(
        f"expected a body of at most {limit} bytes, got {announced} (setting server.max_body_bytes)"
    )


class BaseExchange(ABC):
    """One request and its response. The owner of the record logs it."""

    def __init__(self, dialect: Dialect, config: ServerConfig, record: AccessRecord, client: Client) -> None:
        self._dialect = dialect
        """The dialect of error responses."""
        self._config = config
        self._record = record
        self._client = client
        self._watch: ClientWatch | None = None
        self._has_started = False
        """The status line has been sent."""
        self._ended = False
        """The last byte has been sent."""
        self._ending: Callable[[DragomanError], bytes] | None = None
        """Returns the last event of a stream that fails; None: the stream has no last event to send."""
        self._headers: dict[str, str] = {}

    async def run(self, headers: Mapping[str, str]) -> None:
        """Answers the request; every error becomes a response."""
        try:
            await self._serve(headers)
        except ClientDisconnectedError:
            self._record.status = CLIENT_LEFT
        except asyncio.CancelledError:  # an exchange is cancelled only at shutdown
            await self._fail(BackendUnavailableError("the gateway is being stopped", retry_after_s=2))
        except DragomanError as error:
            await self._fail(self._bug(error) if isinstance(error, UsageError) else error)
        except Exception as bug:  # noqa: BLE001 the one place where a bug becomes a 500
            await self._fail(self._bug(bug))

    @abstractmethod
    async def _serve(self, headers: Mapping[str, str]) -> None:
        """Reads the body and answers it. Exceptions become the error response."""

    def _bug(self, bug: Exception) -> DragomanError:
        """Logs an unexpected exception, and returns the error for the client."""
        log.exception("bug while answering %s", self._record.id)
        self._record.on_error(bug)
        return DragomanError("internal error; the server's log has it")

    async def _fail(self, error: DragomanError) -> None:
        """Sends the error to the client, as far as that is still possible."""
        if self._ended:
            return
        self._record.on_error(error)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._config.write_timeout_s):
                if not self._has_started:
                    body, headers = self._dialect.write_error(error), error_headers(error)
                    headers |= self._record.attempt_headers()
                    await self._reply(self._dialect.status(error), body, headers)
                else:
                    await self._end(self._ending(error) if self._ending else b"")

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        """Returns the body, decoded.

        Raises:
            RequestError: the body is empty, too large, or too slow.
            ClientDisconnectedError: the client has left.
        """
        limit = self._config.max_body_bytes
        body = self._client.take_body() if self._client.take_body else None
        if body is None:
            body = await self._receive_body(headers, limit)
        elif len(body) > limit:
            raise _too_large(limit, len(body), headers)
        if "content-encoding" in headers and (applied := encodings.parse_content_encoding(headers["content-encoding"])):
            body = await asyncio.to_thread(encodings.decode_body, body, applied, limit)
        if not body:
            raise RequestError("the body is empty; expected a JSON object")
        return body

    async def _receive_body(self, headers: Mapping[str, str], limit: int) -> bytes:
        """Waits for the rest of a body."""
        pieces: list[bytes] = []
        size = 0
        self._headers["connection"] = "close"  # the rest of a body that was not read to its end is not awaited
        try:
            async with asyncio.timeout(self._config.body_timeout_s):
                while True:
                    message = await self._client.receive()
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
            raise _too_large(limit, size, headers)
        return b"".join(pieces)

    async def _write(self, data: bytes) -> None:
        if data:
            await self._send_counted({"type": "http.response.body", "body": data, "more_body": True})

    async def _end(self, data: bytes) -> None:
        self._mark_sent()
        await self._send_counted({"type": "http.response.body", "body": data})

    def _mark_sent(self) -> None:
        """Marks the response as complete: a disconnect no longer cancels anything."""
        self._ended = True
        if self._watch is not None:
            self._watch.finished = True

    async def _send_counted(self, message: MutableMapping[str, Any]) -> None:
        if self._watch is None:
            await self._client.send(message)
            return
        self._watch.write_started()
        await self._client.send(message)
        self._watch.write_finished()

    async def _reply(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self._has_started = True
        self._mark_sent()
        await respond(self._send_counted, status, body, self._headers | dict(headers))
