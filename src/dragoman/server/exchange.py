"""One exchange over HTTP, the same for every dialect: read, ask, write, watch the client.

The status line waits for the backend's first word, so that an error is a real HTTP error; a backend that
thinks longer than `hold_s` gets its 200 and pings until it speaks. Events that arrive together leave in one
write. When the client goes, or takes nothing for `write_timeout_s`, the answer's generator is closed, which
stops the model. Whatever breaks a stream off, its last event is the API's own error.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, TypeVar

import msgspec

from dragoman.config import ServerConfig
from dragoman.core.backend import ExchangeContext, PassthroughResponse
from dragoman.core.collect import Collector
from dragoman.core.errors import (
    RequestError,
    UpstreamError,
    quote,
)
from dragoman.core.events import AnyEvent, Failure, Finish, Notice, Start
from dragoman.core.messages import Request, Usage
from dragoman.gateway import compaction
from dragoman.gateway.delta_size import chunked
from dragoman.gateway.gateway import Gateway
from dragoman.guard.policy import DELIVERIES, Delivery
from dragoman.off_loop import off_loop
from dragoman.server import stored
from dragoman.server.client_watch import Receive, Watch
from dragoman.server.event_queue import Inbox
from dragoman.server.http_exchange import HttpExchange, Route, Send, encoded, naming
from dragoman.server.observe.access_log import Record
from dragoman.server.observe.observer import Hearing
from dragoman.server.observe.prompt_progress import Reading
from dragoman.wire import sse
from dragoman.wire.dialect import TokenCounting

log = logging.getLogger("dragoman.server")

T = TypeVar("T")

_MENDED: Final = (400, 404, 422)
"""What a server answers to a request that a backend may amend: a setting or schema that it does not take."""

LARGE_BYTES: Final = 256 * 1024
"""Of a body: reading one of many small values takes some 5 ms from there."""

DELIVERY_HEADER: Final = "x-dragoman-delivery"

LABELS: Final = 48
"""Warnings that a response names in its header, or in one comment of its stream."""

QUEUE_EVENTS = 256
"""Events that wait for a slow client before the backend is made to wait."""


def warning_headers(events: Iterable[object]) -> dict[str, str]:
    """Returns the header with the labels of the warnings among these; their messages may quote the request."""
    labels = warning_labels(events)
    return {"x-dragoman-warnings": labels} if labels else {}


def warning_labels(events: Iterable[object]) -> str:
    """Returns codes and names, `content_dropped: strict, estimated_usage`: each label once, at most `LABELS`."""
    labels = list(dict.fromkeys(event.label for event in events if isinstance(event, Notice)))
    more = [f"{len(labels) - LABELS} more"] if len(labels) > LABELS else []
    return ", ".join([*labels[:LABELS], *more])


def _remarked(events: Sequence[AnyEvent], written: Iterable[bytes]) -> bytes:
    """Returns what is written of these, after a comment with the labels of their warnings.

    The response headers are sent by then, unless these are the first events, whose labels the headers have.
    """
    labels = "" if events and isinstance(events[0], Start) else warning_labels(events)
    comment = sse.comment(f"dragoman-warnings {labels}") if labels else b""
    return comment + b"".join(written)


def cost_headers(usage: Usage) -> dict[str, str]:
    """What it cost, where that is known."""
    return {} if usage.cost_usd is None else {"x-dragoman-cost-usd": f"{usage.cost_usd:.6f}"}


def _delivery(headers: Mapping[str, str]) -> Delivery | None:
    """What the request asks for.

    Raises: RequestError: there is no such way.
    """
    asked = headers.get(DELIVERY_HEADER)
    found = next((each for each in DELIVERIES if each == asked), None)
    if asked is not None and found is None:
        raise RequestError(f"expected one of {', '.join(DELIVERIES)}, got {quote(asked)} - at {DELIVERY_HEADER}")
    return found


class Exchange(HttpExchange):
    """One request of a dialect and its answer; the owner of the record logs it."""

    def __init__(
        self,
        route: Route,
        gateway: Gateway,
        config: ServerConfig,
        record: Record,
        receive: Receive,
        send: Send,
        hearing: Hearing | None = None,
    ) -> None:
        super().__init__(route.dialect, config, record, receive, hearing.sending(send) if hearing else send)
        self._counting, self._named, self._compacts = route.counting, route.model, route.compacts
        self._gateway = gateway
        self._hearing = hearing
        self._reading = Reading(gateway.progress)
        self._delivery: Delivery | None = None
        """Of calls, where the request asks for another than usual."""

    async def _serve(self, headers: Mapping[str, str]) -> None:
        body = await self._body(headers)
        large = len(body) >= LARGE_BYTES
        if self._named:
            body = await off_loop(large, naming, body, self._named)
        if self._hearing:
            self._hearing.came(body)
        read = (self._counting or self._dialect).read_request
        with self._record.spent:
            request = await off_loop(large, read, body)
        if carried := {name: headers[name] for name in self._dialect.carries if name in headers}:
            request = msgspec.structs.replace(request, headers=carried)
        if self._compacts:
            request = msgspec.structs.replace(compaction.triggered(request), stream=False)
        self._delivery = _delivery(headers)
        if self._hearing:
            self._hearing.read(request)
        self._record.asked(self._dialect.name, request)
        async with Watch(self._receive, self._config.write_timeout_s) as self._watch:
            await (self._count(request, self._counting, large) if self._counting else self._answer(request, body))

    async def _count(self, request: Request, counting: TokenCounting, large: bool) -> None:
        """Tell how large a request is, in place of answering it."""
        count = await self._gateway.count(request, large=large)
        self._record.counted(count.tokens)
        headers = {"x-dragoman-estimated": "true"} if count.estimated else {}
        await self._reply(200, counting.write_count(count.tokens, count.cleared), headers)

    async def _answer(self, request: Request, body: bytes) -> None:
        new_id = partial(secrets.token_hex, 12)
        large = len(body) >= LARGE_BYTES
        turn = ExchangeContext(self._record.turn_id, int(time.time()), new_id, progress=self._reading.saw, large=large)
        if self._hearing:
            turn = self._hearing.tapped(turn)
        relay = await off_loop(large, self._gateway.relay, request, body, turn)
        if relay is not None and await self._relayed(request, relay):
            return
        answer = self._gateway.answer(request, turn, self._delivery)
        if request.stream and (self._config.delta_min_chars or self._config.delta_max_chars):
            answer = chunked(answer, self._config.delta_min_chars, self._config.delta_max_chars)
        async with aclosing(self._hearing.leaving(answer) if self._hearing else answer) as events:
            if not request.stream:
                await self._whole(request, events)
                return
            writer = self._dialect.writer(request)
            self._ending = lambda error: writer.send(Failure(error))

            def written(batch: Sequence[AnyEvent]) -> bytes:
                with self._record.spent:
                    data = _remarked(batch, map(writer.send, batch))
                return self._told(batch, data)

            await self._stream(events, written)

    async def _relayed(self, request: Request, relay: PassthroughResponse) -> bool:
        """Pass the answer on unread. False: the server has refused it, and when it is read that may be mended."""
        self._record.relayed = True
        if request.choices > 1:
            told = Notice("unguarded_choices", "several choices are passed on unread: no call is checked", detail="n")
            self._record.saw(told)
            self._headers |= warning_headers([told])
        try:
            async with aclosing(relay.pieces()) as pieces:
                if not request.stream:
                    body = b"".join([piece async for piece in pieces])
                    await self._reply(200, self._told(relay.take(), body), {})
                    return True
                self._ending = relay.failed
                await self._stream(pieces, lambda batch: self._told(relay.take(), b"".join(batch)))
        except UpstreamError as error:
            if error.status not in _MENDED or request.choices > 1:
                raise
            self._record.relayed = False
        return self._record.relayed

    async def _whole(self, request: Request, events: AsyncGenerator[AnyEvent, None]) -> None:
        collector = Collector(self._dialect.name)  # parts are numbered as in the stream
        async for event in events:
            self._told([event], b"")
            collector.send(event)
        if collector.error is not None:
            raise collector.error
        write = stored.compacted if self._compacts else self._dialect.write_reply
        with self._record.spent:
            body = write(collector.reply(), request)
        told = warning_headers(collector.warnings) | cost_headers(collector.usage) | self._record.timing()
        await self._reply(200, body, told)

    async def _stream(self, answer: AsyncGenerator[T, None], written: Callable[[Sequence[T]], bytes]) -> None:
        inbox = Inbox[T](QUEUE_EVENTS)
        pump = asyncio.ensure_future(_pump(answer, inbox))
        try:
            await self._write_stream(inbox, written, pump)
        finally:
            self._reading.over()
            inbox.close()
            pump.cancel()
            await _done(pump)

    async def _write_stream(
        self, inbox: Inbox[T], written: Callable[[Sequence[T]], bytes], pump: "asyncio.Future[None]"
    ) -> None:
        silence_s = self._config.hold_s
        while True:
            batch, ended = await inbox.take(silence_s)
            if not batch and not ended:
                await self._begin()
                await self._write(self._progress())
                await self._write(self._dialect.ping)
            silence_s = self._config.ping_s
            if ended:
                await _done(pump)
                if not self._sent:
                    pump.result()
            if batch:
                data = written(batch)
                await self._begin(batch)
                await self._write(data)
            if ended:
                pump.result()
                await self._end(b"")
                return

    def _progress(self) -> bytes:
        """How far the prompt has been read, as a comment; now and then for the log too."""
        line = self._reading.line
        if self._reading.is_due():
            log.info("%s: %s", self._record.id, line)
        return sse.comment(f"dragoman-progress {line}") if line else b""

    def _told(self, events: Sequence[AnyEvent], data: bytes) -> bytes:
        """The data, with what it says noted down."""
        for event in events:
            self._record.saw(event)
            if isinstance(event, Start):
                self._headers |= event.headers
        if events and isinstance(events[-1], Finish | Failure):
            self._ending = None
        return data

    async def _begin(self, first: Sequence[object] = ()) -> None:
        """The head of a stream; what is to be told of the request itself comes with Start."""
        if self._sent:
            return
        self._sent = True
        fields = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", **self._headers}
        fields |= warning_headers(first) | self._record.timing()
        await self._out({"type": "http.response.start", "status": 200, "headers": encoded(fields)})


async def _done(task: "asyncio.Future[None]") -> None:
    """Wait for its end, if it has not ended; what came of it is not asked.

    Also where this is cancelled again, as at the server's own end: a generator can only be closed when nobody runs it.
    """
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def _pump(events: AsyncGenerator[T, None], inbox: Inbox[T]) -> None:
    """Move what comes into the inbox."""
    try:
        async for event in events:
            inbox.put(event)
            if inbox.full:
                await inbox.room()
    finally:
        inbox.end()
