"""The fast path: the bytes of a trusted server's answer, for a client of the same API, unread but for both ends.

    client's body ─(model's name)→ POST; bytes ─Splice→ bytes for the client

What is read is the first event, which may be an error that the client is to get with its status, and the last ones, for
usage and for how it ended. An answer that is no stream where one was asked for, or the other way round, is read whole.
"""

import dataclasses
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final

import msgspec
from msgspec.structs import replace

from dragoman.backends.http.connection import rest
from dragoman.core.backend import ExchangeContext
from dragoman.core.collect import collect
from dragoman.core.errors import DragomanError, UpstreamError
from dragoman.core.events import AnyEvent, Failure, Finish, Start, ToolCallStart, UsageUpdate
from dragoman.core.messages import Request
from dragoman.text import json_cursor
from dragoman.wire.dialect import Dialect
from dragoman.wire.passing import StreamPassthrough
from dragoman.wire.passthrough import StreamRewriter, named

_NO_STREAM: Final = (b"{", b"[", b"<")
_BLANK: Final = b" \t\r\n\xef\xbb\xbf"
_BLANK_LIMIT_BYTES: Final = 65_536
"""Before an answer: some servers send blanks while their model thinks."""

Post = Callable[[bytes], AsyncGenerator[bytes, None]]
"""Asks the server with this body."""


class HttpRelay:
    """One answer."""

    def __init__(
        self,
        dialect: Dialect,
        passing: StreamPassthrough,
        request: Request,
        body: bytes,
        name: str,
        turn: ExchangeContext,
        post: Post,
        clean: Callable[[DragomanError], DragomanError] = lambda error: error,
        headers: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`body` is the client's, in which the model is called `name`; `clean` hides secrets in errors;
        `headers` of the answer are for Start.
        """
        self._dialect, self._passing, self._request, self._turn, self._post = dialect, passing, request, turn, post
        self._clean, self._headers = clean, headers
        self._name = None if name == request.model else name
        self._hides_usage = request.stream and bool(passing.wanted) and not request.stream_usage
        self.body = self._asked(body)
        """What the server is sent."""
        self._told: list[AnyEvent] = []
        self._splice = StreamRewriter(passing, self._name, hides_usage=self._hides_usage)
        self._started = False
        self._start_events: tuple[Start, ...] = ()

    def _asked(self, body: bytes) -> bytes:
        wanted = self._passing.wanted if self._hides_usage else {}
        if self._name is None and not wanted:
            return body
        members = json_cursor.at(body).fields().left()
        said: dict[str, object] = {**members, "model": self._request.model}
        for member, values in wanted.items():
            had = msgspec.json.decode(members.get(member, b"null"), type=dict[str, msgspec.Raw] | None)
            said[member] = {**(had or {}), **values}
        return msgspec.json.encode(said)

    def take(self) -> Sequence[AnyEvent]:
        """What has become known; see `PassthroughResponse`."""
        told, self._told = self._told, []
        return told

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The bytes for the client; see `PassthroughResponse`."""
        async with aclosing(self._turn.heard(self._dialect.path, self.body, self._post(self.body))) as pieces:
            begun = await _begun(pieces)
            if self._request.stream and begun[:1] not in _NO_STREAM:
                async with aclosing(self._stream(begun, pieces)) as stream:
                    async for data in stream:
                        yield data
            else:
                yield await self._whole(begun, pieces)

    async def _stream(self, begun: bytes, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        splice = self._splice
        error: DragomanError | None = None
        try:
            data = splice.feed(begun)
            while not splice.first:
                if data:  # a comment; half an event may yet become an error with a status of its own
                    yield data
                data = splice.feed(await anext(pieces))
            self._start(splice.first)
            yield data
            while not splice.over:
                yield splice.feed(await anext(pieces))
            await rest(pieces)
        except StopAsyncIteration:
            data = splice.close()
            if splice.first and not self._started:
                self._start(splice.first)
            yield data
        except DragomanError as broken:
            if not self._started:
                raise
            error = broken
        yield self._end(error)

    def _start(self, first: bytes) -> None:
        """Raises: DragomanError: the server begins with an error, as which the client is told of it."""
        events = self._dialect.reader(self._request, self._turn).feed(first)
        for event in events:
            if isinstance(event, Failure):
                raise self._clean(event.error)
        self._started = True
        named = self._name or self._request.model
        starts = (event for event in events if isinstance(event, Start))
        self._start_events = tuple(replace(event, model=named, headers=self._headers()) for event in starts)
        self._told += self._start_events

    def failed(self, error: DragomanError) -> bytes:
        """What ends the stream; see `PassthroughResponse`."""
        writer, error = self._dialect.writer(self._request), self._clean(error)
        for event in self._start_events:  # the server has told the client of it
            writer.send(event)
        told = writer.send(Failure(error))
        joined = self._passing.joined if self._started else None
        return joined(told, self._splice.ending()) if joined else told

    def _end(self, error: DragomanError | None) -> bytes:
        """What the client still lacks, once it is known how the stream ended.

        Raises: DragomanError: it never began.
        """
        splice = self._splice
        reader = self._dialect.reader(self._request, dataclasses.replace(self._turn, is_partial=True))
        events = reader.feed(b"".join(splice.ending())) + reader.close()
        self._told += [event for event in events if isinstance(event, UsageUpdate | ToolCallStart)]
        last = events[-1]
        if not splice.over and isinstance(last, Failure) and error is not None:
            last = Failure(error)
        elif not splice.over and isinstance(last, Finish) and not self._passing.end:
            last = Failure(UpstreamError("the server's stream broke off before its end"))
        if isinstance(last, Failure) and not self._started:
            raise self._clean(last.error)
        self._told.append(last)
        if splice.over:
            return b""
        return self.failed(last.error) if isinstance(last, Failure) else self._passing.end

    async def _whole(self, begun: bytes, pieces: AsyncGenerator[bytes, None]) -> bytes:
        """What the client gets for an answer that is to be read whole.

        Raises: DragomanError: it is none.
        """
        reader = self._dialect.reader(self._request, self._turn)
        body, events = bytearray(begun), reader.feed(begun)
        async for piece in pieces:
            body += piece
            events += reader.feed(piece)
            self._raise_failure(events)  # before the rest of it is here, as it may be endless
        events += reader.close()
        self._raise_failure(events)
        self._told += [replace(e, headers=self._headers()) if isinstance(e, Start) else e for e in events]
        if self._request.stream:
            return b"".join(map(self._dialect.writer(self._request).send, events))
        if bytes(body.lstrip(_BLANK)[:1]) in _NO_STREAM:
            return bytes(body) if self._name is None else named(bytes(body), self._name)
        return self._dialect.write_reply(collect(events, self._dialect.name), self._request)

    def _raise_failure(self, events: Sequence[AnyEvent]) -> None:
        """Raises: DragomanError: that by which the events end."""
        if events and isinstance(events[-1], Failure):
            raise self._clean(events[-1].error)


async def _begun(pieces: AsyncGenerator[bytes, None]) -> bytes:
    """The first piece that says something, without what is blank before it; empty: the server says nothing.

    Raises: UpstreamError: more than that is blank.
    """
    blank = 0
    async for piece in pieces:
        if begun := piece.lstrip(_BLANK):
            return begun
        blank += len(piece)
        if blank > _BLANK_LIMIT_BYTES:
            raise UpstreamError(f"expected an answer of the server, got more than {_BLANK_LIMIT_BYTES} bytes of blanks")
    return b""
