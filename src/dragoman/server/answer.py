"""One exchange over HTTP, the same for every dialect: read, ask, write, watch the client.

The status line waits for the backend's first word, so that an error is a real HTTP error; a backend that
thinks longer than `hold_s` gets its 200 and pings until it speaks. Events that arrive together leave in one
write. When the client goes, or takes nothing for `write_timeout_s`, the answer's generator is closed, which
stops the model. Whatever breaks a stream off, its last event is the API's own error.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from dragoman.core.collect import Collector
from dragoman.core.contracts import Counting, Dialect, Relay, Turn, Writer
from dragoman.core.errors import (
    BackendError,
    DragomanError,
    EncodingError,
    MethodError,
    MisuseError,
    RequestError,
    TooLargeError,
    UpgradeError,
    UpstreamError,
    quote,
)
from dragoman.core.events import AnyEvent, Failure, Finish, Warning
from dragoman.core.values import Request
from dragoman.gateway import Gateway
from dragoman.server.config import ServerConfig
from dragoman.server.inbox import Inbox
from dragoman.server.record import Record

log = logging.getLogger("dragoman.server")

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

T = TypeVar("T")

_MENDED: Final = (400, 404, 422)
"""What a server answers to a request that a backend may amend: a setting or schema that it does not take."""

DRAIN_FACTOR = 4
"""How many times the limit of a too large body is still read and thrown away, so that the client sees the answer."""

QUEUE_EVENTS = 256
"""Events that wait for a slow client before the backend is made to wait."""


class ClientLeftError(Exception):
    """The client closed the connection."""


async def respond(send: Send, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
    """Send a whole JSON response."""
    fields = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    await send({"type": "http.response.start", "status": status, "headers": encoded(fields)})
    await send({"type": "http.response.body", "body": body})


def encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Headers as ASGI has them."""
    return [(k.encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()]


def error_headers(error: DragomanError) -> dict[str, str]:
    """`retry-after` where the error knows when, `allow` where it knows what, `upgrade` as 426 must have it."""
    if isinstance(error, UpgradeError):
        return {"upgrade": "HTTP/1.1"}
    if isinstance(error, MethodError):
        return {"allow": ", ".join(error.allowed)}
    return {} if error.retry_after_s is None else {"retry-after": str(max(1, round(error.retry_after_s)))}


def warning_headers(events: Iterable[object]) -> dict[str, str]:
    """The codes of the warnings among these; their words may hold what somebody said."""
    codes = ",".join(dict.fromkeys(event.code for event in events if isinstance(event, Warning)))
    return {"x-dragoman-warnings": codes} if codes else {}


class Route(NamedTuple):
    """What is served at a path."""

    dialect: Dialect
    counting: Counting | None = None
    """Tokens are counted there, and nothing is answered."""


class Exchange:
    """One request and its answer; the owner of the record logs it."""

    def __init__(
        self, route: Route, gateway: Gateway, config: ServerConfig, record: Record, receive: Receive, send: Send
    ) -> None:
        self._dialect, self._counting = route
        self._gateway = gateway
        self._config = config
        self._record = record
        self._receive = receive
        self._send = send
        self._now_s = asyncio.get_running_loop().time
        self._writing_since_s: float | None = None
        """When the write began that the client has not taken yet."""
        self._sent = False
        """The status line is out."""
        self._ended = False
        """The last byte is out."""
        self._writer: Writer | None = None
        """Of a stream whose last event is still to come."""
        self._headers: dict[str, str] = {}

    async def run(self, headers: Mapping[str, str]) -> None:
        """Answer, whatever happens."""
        try:
            body = await self._body(headers)
            request = (self._counting or self._dialect).read_request(body)
            if carried := {name: headers[name] for name in self._dialect.carries if name in headers}:
                request = msgspec.structs.replace(request, headers=carried)
            self._record.asked(self._dialect.name, request)
            answer = self._count(request, self._counting) if self._counting else self._answer(request, body)
            await self._watched(answer)
        except ClientLeftError:
            self._record.status = 499
        except asyncio.CancelledError:  # nobody but the server's own end cancels an exchange
            await self._fail(BackendError("the gateway is being stopped", retry_after_s=2))
        except DragomanError as error:
            await self._fail(self._bug(error) if isinstance(error, MisuseError) else error)
        except Exception as bug:  # noqa: BLE001 the one place where a bug becomes a 500
            await self._fail(self._bug(bug))

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
                    await self._end(self._writer.send(Failure(error)) if self._writer else b"")

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
                        raise ClientLeftError
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
            raise TooLargeError(
                f"expected a body of at most {limit} bytes, got {announced} (setting server.body_bytes)"
            )
        if (encoding := headers.get("content-encoding", "identity")) != "identity":
            raise EncodingError(f"expected a body that is not compressed, got content-encoding {quote(encoding)}")
        if not size:
            raise RequestError("the body is empty; expected a JSON object")
        return b"".join(pieces)

    async def _watched(self, answer: Awaitable[None]) -> None:
        """Run the answer until it is done, or the client goes or takes nothing any more."""
        task = asyncio.ensure_future(answer)
        gone = asyncio.ensure_future(self._gone())
        try:
            while not (task.done() or gone.done()) and (left_s := self._patience_s()) > 0:
                await asyncio.wait({task, gone}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if gone.done() and self._ended:  # a server says "disconnect" after the last byte too
                await asyncio.wait({task})
            left = not task.done()
        finally:
            for each in (gone, task):
                each.cancel()
            await asyncio.wait({task, gone})
        if left and (task.cancelled() or isinstance(task.exception(), DragomanError)):
            raise ClientLeftError
        task.result()

    def _patience_s(self) -> float:
        """How long the client may still take; looked at seldom, because a timer for each write would cost more."""
        limit_s = self._config.write_timeout_s
        return limit_s if self._writing_since_s is None else self._writing_since_s + limit_s - self._now_s()

    async def _gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _count(self, request: Request, counting: Counting) -> None:
        """Tell how large a request is, in place of answering it."""
        count = await self._gateway.count(request)
        self._record.counted(count.tokens)
        headers = {"x-dragoman-estimated": "true"} if count.estimated else {}
        await self._reply(200, counting.write_count(count.tokens), headers)

    async def _answer(self, request: Request, body: bytes) -> None:
        turn = Turn(self._record.turn_id, int(time.time()), lambda: secrets.token_hex(12))
        relay = self._gateway.relay(request, body, turn)
        if relay is not None and await self._relayed(request, relay):
            return
        async with aclosing(self._gateway.answer(request, turn)) as events:
            if not request.stream:
                await self._whole(request, events)
                return
            self._writer = writer = self._dialect.writer(request)
            await self._stream(events, lambda batch: self._told(batch, b"".join(map(writer.send, batch))))

    async def _relayed(self, request: Request, relay: Relay) -> bool:
        """Pass the answer on unread. False: the server has refused it, and when it is read that may be mended."""
        self._record.relayed = True
        try:
            async with aclosing(relay.pieces()) as pieces:
                if not request.stream:
                    body = b"".join([piece async for piece in pieces])
                    self._told(relay.take(), b"")
                    await self._reply(200, body, {})
                    return True
                self._writer = self._dialect.writer(request)
                await self._stream(pieces, lambda batch: self._told(relay.take(), b"".join(batch)))
        except UpstreamError as error:
            if error.status not in _MENDED:
                raise
            self._record.relayed = False
        return self._record.relayed

    async def _whole(self, request: Request, events: AsyncGenerator[AnyEvent, None]) -> None:
        collector = Collector(self._dialect.name)  # parts are numbered as in the stream
        async for event in events:
            self._record.saw(event)
            collector.send(event)
        if collector.error is not None:
            raise collector.error
        body = self._dialect.write_reply(collector.reply(), request)
        await self._reply(200, body, warning_headers(collector.warnings))

    async def _stream(self, answer: AsyncGenerator[T, None], written: Callable[[Sequence[T]], bytes]) -> None:
        inbox = Inbox[T](QUEUE_EVENTS)
        pump = asyncio.ensure_future(_pump(answer, inbox))
        try:
            await self._write_stream(inbox, written, pump)
        finally:
            inbox.close()
            pump.cancel()
            await asyncio.wait({pump})

    async def _write_stream(
        self, inbox: Inbox[T], written: Callable[[Sequence[T]], bytes], pump: "asyncio.Future[None]"
    ) -> None:
        silence_s = self._config.hold_s
        while True:
            batch, ended = await inbox.take(silence_s)
            if not batch and not ended:
                await self._begin()
                await self._write(self._dialect.ping)
            silence_s = self._config.ping_s
            if ended:
                await asyncio.wait({pump})
                if not self._sent:
                    pump.result()
            if batch:
                await self._begin(batch)
                await self._write(written(batch))
            if ended:
                pump.result()
                await self._end(b"")
                return

    def _told(self, events: Sequence[AnyEvent], data: bytes) -> bytes:
        """The data, with what it says noted down."""
        for event in events:
            self._record.saw(event)
        if events and isinstance(events[-1], Finish | Failure):
            self._writer = None
        return data

    async def _begin(self, first: Sequence[object] = ()) -> None:
        """The head of a stream; what is to be told of the request itself comes with Start."""
        if self._sent:
            return
        self._sent = True
        fields = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", **self._headers}
        fields |= warning_headers(first)
        await self._out({"type": "http.response.start", "status": 200, "headers": encoded(fields)})

    async def _write(self, data: bytes) -> None:
        if data:
            await self._out({"type": "http.response.body", "body": data, "more_body": True})

    async def _end(self, data: bytes) -> None:
        self._ended = True
        await self._out({"type": "http.response.body", "body": data})

    async def _out(self, message: MutableMapping[str, Any]) -> None:
        self._writing_since_s = self._now_s()
        await self._send(message)
        self._writing_since_s = None

    async def _reply(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self._sent = self._ended = True
        await respond(self._out, status, body, self._headers | dict(headers))


async def _pump(events: AsyncGenerator[T, None], inbox: Inbox[T]) -> None:
    """Move what comes into the inbox."""
    try:
        async for event in events:
            inbox.put(event)
            if inbox.full:
                await inbox.room()
    finally:
        inbox.end()
