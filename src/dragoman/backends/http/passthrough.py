"""Passthrough of a server's response to a client of the same API: only its beginning and end are parsed.

    client's body ─(model's name)→ POST; bytes ─StreamRewriter→ bytes for the client

The first event is parsed, as it may be an error that the client must get with its status, and so are the last ones, for
usage and the finish reason. If the client wants a stream and the response is not one, or the other way round, the
response is parsed whole.
"""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from dragoman.backends.http.upstream_response import ResponseBody, drain
from dragoman.core.backend import ExchangeContext
from dragoman.core.collect import collect
from dragoman.core.errors import DragomanError, UpstreamError
from dragoman.core.events import AnyEvent, Failure, Finish, Start, ToolCallStart, UsageUpdate
from dragoman.core.messages import Request
from dragoman.text import json_cursor
from dragoman.wire.dialect import Dialect
from dragoman.wire.passthrough import StreamPassthrough, StreamRewriter, replace_model_name
from dragoman.wire.response_headers import client_headers
from dragoman.wire.response_reader import BLANK, BODY_STARTS

_BLANK_LIMIT_BYTES: Final = 65_536
"""Limit of blanks before a response: some servers send them while their model thinks."""

Post = Callable[[bytes], Awaitable[ResponseBody]]
"""Sends this body to the server."""


class HttpPassthrough:
    """One response that is passed through."""

    def __init__(
        self,
        dialect: Dialect,
        passthrough: StreamPassthrough,
        request: Request,
        body: bytes,
        name: str,
        context: ExchangeContext,
        post: Post,
        clean: Callable[[DragomanError], DragomanError],
    ) -> None:
        """
        Args:
            dialect: the API of both the client and the server.
            passthrough: how streams of this API are passed through.
            request: the client's request, parsed.
            body: the client's body.
            name: the name by which the client knows the model.
            context: the exchange that this response is part of.
            post: sends a body to the server.
            clean: removes secrets from errors.
        """
        self._dialect, self._passthrough, self._request, self._post = dialect, passthrough, request, post
        self._context = context
        self._clean = clean
        self._headers: Mapping[str, str] = {}
        """Headers of the server's response."""
        self._name = None if name == request.model else name
        self._hides_usage = request.stream and bool(passthrough.usage_request) and not request.stream_usage
        self.body = self._request_body(body)
        """The body sent to the server."""
        self._pending_events: list[AnyEvent] = []
        self._rewriter = StreamRewriter(passthrough, self._name, hides_usage=self._hides_usage)
        self._started = False
        self._start_events: tuple[Start, ...] = ()

    def _request_body(self, body: bytes) -> bytes:
        usage_fields = self._passthrough.usage_request if self._hides_usage else {}
        if self._name is None and not usage_fields:
            return body
        members = json_cursor.parse(body).fields().remaining_with_nulls()
        changed: dict[str, object] = {**members, "model": self._request.model}
        for member, values in usage_fields.items():
            previous = msgspec.json.decode(members.get(member, b"null"), type=dict[str, msgspec.Raw] | None)
            changed[member] = {**(previous or {}), **values}
        return msgspec.json.encode(changed)

    def drain_events(self) -> Sequence[AnyEvent]:
        """Returns the events that have become known since the last call; see `PassthroughResponse`."""
        events, self._pending_events = self._pending_events, []
        return events

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Yields the bytes for the client; see `PassthroughResponse`."""
        began_s = time.perf_counter()
        response = await self._post(self.body)
        try:
            first_data = await _first_data(response)
            self._context.attempts.wait(time.perf_counter() - began_s)
            self._headers = response.headers
            if not self._request.stream or first_data[:1] in BODY_STARTS:
                yield await self._buffered(first_data, response)
                return
            rewriter, piece, error = self._rewriter, first_data, None
            try:
                while piece and not self._started:
                    yield self._begin(rewriter.feed(piece))
                    piece = b"" if rewriter.finished else await response.read()
                while piece:
                    yield rewriter.feed(piece)
                    piece = b"" if rewriter.finished else await response.read()
                if rewriter.finished:
                    await drain(response)
                else:
                    yield self._begin(rewriter.close())
            except DragomanError as broken:
                if not self._started:
                    raise
                error = broken
            yield self._finish(error)
        finally:
            await response.close()

    def _begin(self, data: bytes) -> bytes:
        """Returns the bytes; half of an event is kept back, as it may become an error with its status."""
        if self._rewriter.first and not self._started:
            self._start(self._rewriter.first)
        return data

    def _start(self, first: bytes) -> None:
        """
        Raises:
            DragomanError: the server's first event is an error, which the client gets with its status.
        """
        events = self._dialect.reader(self._request, self._context).feed(first)
        for event in events:
            if isinstance(event, Failure):
                raise self._clean(event.error)
        self._started = True
        replace_model_name = self._name or self._request.model
        starts = (event for event in events if isinstance(event, Start))
        self._start_events = tuple(
            replace(event, model=replace_model_name, headers=client_headers(self._headers)) for event in starts
        )
        self._pending_events += self._start_events

    def error_event(self, error: DragomanError) -> bytes:
        """Returns the bytes that end the stream with this error; see `PassthroughResponse`."""
        writer, error = self._dialect.writer(self._request), self._clean(error)
        for event in self._start_events:  # the client has these already, from the server
            writer.feed(event)
        payload = writer.feed(Failure(error))
        rewrite_error = self._passthrough.rewrite_error if self._started else None
        return rewrite_error(payload, self._rewriter.boundary_events()) if rewrite_error else payload

    def _finish(self, error: DragomanError | None) -> bytes:
        """Returns the bytes that the client still needs once the upstream stream has ended.

        Raises:
            DragomanError: the stream never began.
        """
        rewriter = self._rewriter
        reader = self._dialect.reader(self._request, msgspec.structs.replace(self._context, is_partial=True))
        events = reader.feed(b"".join(rewriter.boundary_events())) + reader.close()
        self._pending_events += [event for event in events if isinstance(event, UsageUpdate | ToolCallStart)]
        last = events[-1]
        if not rewriter.finished and isinstance(last, Failure) and error is not None:
            last = Failure(error)
        elif not rewriter.finished and isinstance(last, Finish) and not self._passthrough.end_event:
            last = Failure(UpstreamError("the stream of the server ended before it was complete"))
        if isinstance(last, Failure) and not self._started:
            raise self._clean(last.error)
        self._pending_events.append(last)
        if rewriter.finished:
            return b""
        return self.error_event(last.error) if isinstance(last, Failure) else self._passthrough.end_event

    async def _buffered(self, first_data: bytes, response: ResponseBody) -> bytes:
        """Returns the client's bytes for a response that is parsed whole.

        Raises:
            DragomanError: the response is an error.
        """
        reader = self._dialect.reader(self._request, self._context)
        body, events = bytearray(first_data), reader.feed(first_data)
        while piece := await response.read():
            body += piece
            events += reader.feed(piece)
            self._raise_failure(events)  # before the rest arrives, as that may be endless
        events += reader.close()
        self._raise_failure(events)
        self._pending_events += [
            replace(e, headers=client_headers(self._headers)) if isinstance(e, Start) else e for e in events
        ]
        if self._request.stream:
            return b"".join(map(self._dialect.writer(self._request).feed, events))
        if bytes(body.lstrip(BLANK)[:1]) in BODY_STARTS:
            return bytes(body) if self._name is None else replace_model_name(bytes(body), self._name)
        return self._dialect.write_reply(collect(events, self._dialect.name), self._request)

    def _raise_failure(self, events: Sequence[AnyEvent]) -> None:
        """
        Raises:
            DragomanError: the error of the last event, if it is a Failure.
        """
        if events and isinstance(events[-1], Failure):
            raise self._clean(events[-1].error)


async def _first_data(response: ResponseBody) -> bytes:
    """Returns the first chunk that is not blank, without leading blanks; empty if there is none.

    Raises:
        UpstreamError: there are more than `_BLANK_LIMIT_BYTES` blanks.
    """
    blank = 0
    while piece := await response.read():
        if first_data := piece.lstrip(BLANK):
            return first_data
        blank += len(piece)
        if blank > _BLANK_LIMIT_BYTES:
            raise UpstreamError(
                f"expected a response of the server, got more than {_BLANK_LIMIT_BYTES} bytes of blanks"
            )
    return b""
