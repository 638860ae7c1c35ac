"""Generates the response to a request of any dialect: whole, or as a stream with keep-alive pings.

The status line is sent with the backend's first event, so that an early error becomes an HTTP error; if there is no
event within `max_status_delay_s`, status 200 is sent, and then pings until the first event. Events that arrive together
are sent in one write; while the client does not accept it, the backend waits. If the client disconnects, or accepts no
data for `write_timeout_s`, the generator of events is closed, which stops the model. A stream that fails ends with an
error event of its API.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, TypeVar

import msgspec

from dragoman.config.server import ServerConfig
from dragoman.core.backend import EventStream, ExchangeContext, PassthroughResponse
from dragoman.core.collect import Collector
from dragoman.core.errors import (
    RequestError,
    UpstreamError,
    quote,
)
from dragoman.core.events import AnyEvent, Failure, Finish, Notice, Start, TextDelta
from dragoman.core.identifiers import random_id
from dragoman.core.messages import Request, Usage
from dragoman.core.stage import EventStage
from dragoman.gateway import compaction
from dragoman.gateway.delta_size import DeltaResizer
from dragoman.gateway.gateway import Gateway
from dragoman.guard.policy import BUFFERING_MODES, Buffering
from dragoman.identify.client import identify_client
from dragoman.off_loop import off_loop
from dragoman.server import stored
from dragoman.server.base_exchange import BaseExchange, Route, encode_headers, with_model
from dragoman.server.client_watch import Client, ClientWatch
from dragoman.server.keep_alive import KeepAlive
from dragoman.server.keys.admission import admit
from dragoman.server.observe.access_log import AccessRecord
from dragoman.server.observe.observer import ServerObserver
from dragoman.server.observe.prompt_progress import PromptProgressReport
from dragoman.steps.read import HEADER as STEPS_HEADER
from dragoman.steps.read import read_header
from dragoman.wire import sse
from dragoman.wire.dialect import TokenCounting
from dragoman.wire.response_headers import WARNINGS

log = logging.getLogger("dragoman.server")

T = TypeVar("T")

_RETRY_READ: Final = (400, 404, 422)
"""Statuses of an upstream server for a setting or schema that it does not accept: a backend may adapt the request."""

LARGE_BYTES: Final = 256 * 1024
"""Size of a body from which it is parsed in a thread: reading one with many small values takes about 5 ms."""

BUFFERING_HEADER: Final = "x-dragoman-buffering"

MAX_LABELS: Final = 48
"""Maximum number of warnings in the response header, or in one comment of the stream."""


def warning_headers(events: Iterable[object]) -> dict[str, str]:
    """Returns the header with the labels of the warnings among these events.

    Labels only: the messages may quote the request.
    """
    labels = warning_labels(events)
    return {WARNINGS: labels} if labels else {}


def warning_labels(events: Iterable[object]) -> str:
    """Returns codes and names, `content_dropped: strict, estimated_usage`: each label once, at most `MAX_LABELS`."""
    labels = list(dict.fromkeys([event.label for event in events if type(event) is Notice]))
    if not labels:
        return ""
    more = [f"{len(labels) - MAX_LABELS} more"] if len(labels) > MAX_LABELS else []
    return ", ".join([*labels[:MAX_LABELS], *more])


def _warning_comment(events: Sequence[AnyEvent]) -> bytes:
    """Returns a comment with the labels of the warnings among these events, or no bytes."""
    labels = warning_labels(events)
    return sse.comment(f"dragoman-warnings {labels}") if labels else b""


def cost_headers(usage: Usage) -> dict[str, str]:
    """Returns the header with the cost of the response in US dollars, if it is known."""
    return {} if usage.cost_usd is None else {"x-dragoman-cost-usd": f"{usage.cost_usd:.6f}"}


def _buffering(headers: Mapping[str, str]) -> Buffering | None:
    """Returns the buffering mode that the request header asks for, or None.

    Raises: RequestError: the mode does not exist.
    """
    value = headers.get(BUFFERING_HEADER)
    if value is None:
        return None
    mode = next((each for each in BUFFERING_MODES if each == value), None)
    if mode is None:
        raise RequestError(f"expected one of {', '.join(BUFFERING_MODES)}, got {quote(value)} - at {BUFFERING_HEADER}")
    return mode


class Exchange(BaseExchange):
    """One request of a dialect and its response. The owner of the record logs it."""

    def __init__(
        self,
        route: Route,
        gateway: Gateway,
        config: ServerConfig,
        record: AccessRecord,
        client: Client,
        observer: ServerObserver | None = None,
    ) -> None:
        super().__init__(route.dialect, config, record, client)
        self._counting, self._named, self._compacts = route.counting, route.model, route.compacts
        self._gateway = gateway
        self._observer = observer
        self._reading = PromptProgressReport(gateway.progress)
        self._buffering: Buffering | None = None
        """Buffering mode of tool calls that the request asks for; None: the one of the settings."""

    async def _serve(self, headers: Mapping[str, str]) -> None:
        body = await self._body(headers)
        large = len(body) >= LARGE_BYTES
        if self._named:
            body = await off_loop(large, with_model, body, self._named)
        if self._observer:
            self._observer.on_body(body)
        read = (self._counting or self._dialect).read_request
        with self._record.spent:
            request = await asyncio.to_thread(read, body) if large else read(body)
        if carried := {name: headers[name] for name in self._dialect.forwarded_headers if name in headers}:
            request = msgspec.structs.replace(request, headers=carried | self._record.trace)
        elif self._record.trace:
            request = msgspec.structs.replace(request, headers=self._record.trace)
        if STEPS_HEADER in headers and request.steps is None:
            request = msgspec.structs.replace(request, steps=read_header(headers[STEPS_HEADER]))
        if self._compacts:
            request = msgspec.structs.replace(compaction.with_trigger(request), stream=False)
        self._buffering = _buffering(headers)
        if self._observer:
            self._observer.on_request(request)
        self._record.client = identify_client(headers, request, self._record.client, self._record.turn_id)
        self._record.on_request(self._dialect.name, request)
        try:
            async with ClientWatch(self._client, self._config.write_timeout_s) as self._watch:
                await (self._count(request, self._counting, large) if self._counting else self._answer(request, body))
        finally:
            self._reading.close()

    async def _count(self, request: Request, counting: TokenCounting, large: bool) -> None:
        """Responds with the number of tokens of a request."""
        count = await self._gateway.count_tokens(request, self._record.client, large=large)
        self._record.on_count(count.tokens)
        headers = {"x-dragoman-token-count": "estimated"} if count.estimated else {}
        await self._reply(200, counting.write_count(count.tokens, count.cleared), headers)

    async def _answer(self, request: Request, body: bytes) -> None:
        large = len(body) >= LARGE_BYTES
        admission = self._record.admission
        if admission is not None:
            await admit(self._record, self._gateway, request, large=large)
        context = ExchangeContext(
            self._record.turn_id,
            int(time.time()),
            random_id,
            progress=self._reading.observe,
            is_large=large,
            attempts=self._record.attempts,
            client=self._record.client,
            reserve=None if admission is None else admission.extend,
        )
        if self._observer:
            context = self._observer.wrap_context(context)
        find = self._gateway.passthrough
        passthrough = await asyncio.to_thread(find, request, body, context) if large else find(request, body, context)
        if passthrough is not None and await self._pass_through(request, passthrough):
            return
        answer = self._gateway.generate(request, context, self._buffering, self._client_stages(request))
        async with aclosing(self._observer.wrap_client_events(answer) if self._observer else answer) as batches:
            if not request.stream:
                await self._send_unstreamed(request, batches)
                return
            writer = self._dialect.writer(request)
            self._ending = lambda error: writer.feed(Failure(error))

            def write(batch: Sequence[AnyEvent]) -> bytes:
                began_s = time.perf_counter()
                if len(batch) == 1 and type(batch[0]) is TextDelta:  # the most frequent case
                    data = writer.feed(batch[0])
                else:
                    written = b"".join(map(writer.feed, batch))
                    self._observe(batch)
                    data = self._report_warnings(batch) + written
                self._record.spent.seconds += time.perf_counter() - began_s
                return data

            await self._stream(batches, write)

    def _report_warnings(self, events: Sequence[AnyEvent]) -> bytes:
        """Puts warnings into the response header if it is not sent yet; else returns a comment with them."""
        if self._has_started:
            return _warning_comment(events)
        self._headers |= self._warnings(events)
        return b""

    def _warnings(self, events: Sequence[AnyEvent]) -> dict[str, str]:
        """Returns the header with these warnings, after those that an upstream gateway reported."""
        own, reported = warning_headers(events), self._headers.get(WARNINGS, "")
        return {WARNINGS: f"{reported}, {own[WARNINGS]}"} if own and reported else own

    def _client_stages(self, request: Request) -> Sequence[EventStage]:
        """Returns the stage that changes the size of deltas, if the settings want it."""
        least, most = self._config.delta_min_chars, self._config.delta_max_chars
        return (DeltaResizer(least, most),) if request.stream and (least or most) else ()

    async def _pass_through(self, request: Request, response: PassthroughResponse) -> bool:
        """Passes the upstream response through unchanged.

        Returns: False if the server refused the request with a status that translation may avoid; nothing is sent then.
        """
        self._record.is_passthrough = True
        if request.choices > 1:
            notice = Notice(
                "unguarded_choices", "several choices are passed through: their calls are not validated", detail="n"
            )
            self._record.observe(notice)
            self._headers |= warning_headers([notice])
        try:
            async with aclosing(response.stream()) as pieces:
                if not request.stream:
                    body = b"".join([piece async for piece in pieces])
                    self._observe(response.drain_events())
                    await self._reply(200, body, self._record.attempt_headers() | cost_headers(self._record.usage))
                    return True
                self._ending = response.error_event

                def write(piece: bytes) -> bytes:
                    self._observe(response.drain_events())
                    return piece

                await self._stream(pieces, write)
        except UpstreamError as error:
            if error.status not in _RETRY_READ or request.choices > 1:
                raise
            self._record.attempts.fail(error)
            self._record.is_passthrough = False
        return self._record.is_passthrough

    async def _send_unstreamed(self, request: Request, batches: EventStream) -> None:
        collector = Collector(self._dialect.name)  # numbers the parts as a stream does
        async for batch in batches:
            self._observe(batch)
            for event in batch:
                collector.feed(event)
        if collector.error is not None:
            raise collector.error
        write = stored.write_compacted if self._compacts else self._dialect.write_reply
        with self._record.spent:
            body = write(collector.reply(), request)
        headers = self._record.timing() | self._record.attempt_headers()
        if collector.warnings:
            headers |= self._warnings(collector.warnings)
        if self._record.usage.cost_usd is not None:
            headers |= cost_headers(self._record.usage)
        await self._reply(200, body, headers)

    async def _stream(self, batches: AsyncGenerator[T, None], write: Callable[[T], bytes]) -> None:
        """Sends the bytes of each batch as it arrives, and pings while none does."""
        config = self._config
        async with KeepAlive(config.max_status_delay_s, config.keepalive_interval_s, self._send_ping) as pings:
            async for batch in batches:
                if data := write(batch):
                    while (ping := pings.pause()) is not None:
                        await ping
                    if not self._has_started:
                        await self._begin()
                    await self._send_counted({"type": "http.response.body", "body": data, "more_body": True})
                    pings.resume()
        await self._end(b"")

    async def _send_ping(self) -> None:
        if not self._has_started:
            await self._begin()
        await self._write(self._progress())
        await self._write(self._dialect.ping)

    def _progress(self) -> bytes:
        """Returns a comment with the progress of reading the prompt, and logs it from time to time."""
        line = self._reading.line
        if self._reading.is_due():
            log.info("%s: %s", self._record.id, line)
        return sse.comment(f"dragoman-progress {line}") if line else b""

    def _observe(self, events: Sequence[AnyEvent]) -> None:
        """Records the events."""
        for event in events:
            if type(event) is TextDelta:  # the most frequent case
                continue
            self._record.observe(event)
            if isinstance(event, Start):
                self._headers |= event.headers
        if events and isinstance(events[-1], Finish | Failure):
            self._ending = None

    async def _begin(self) -> None:
        """Sends the response headers of a stream; warnings about the request itself arrive with `Start`."""
        self._has_started = True
        fields = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", **self._headers}
        fields |= self._record.timing()
        if self._record.first_s is not None:  # else it is not known yet which backend answers
            fields |= self._record.attempt_headers()
        await self._send_counted({"type": "http.response.start", "status": 200, "headers": encode_headers(fields)})
