"""Questions to a server under the probe: short, without chance, and never an exception.

    heard = await asker.ask(asker.request("Say hello."))
    heard.reply.parts if heard.reply else heard.error

Each goes by the dialect as any request does; what came is kept as it came too, as a reader makes good what is amiss.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from dragoman.backends.http.connection import UpstreamConnection
from dragoman.backends.http.unsupported_params import remove_rejected_param
from dragoman.backends.probe.server_info import json
from dragoman.core.backend import ExchangeContext
from dragoman.core.collect import Collector
from dragoman.core.errors import DragomanError, UpstreamError, UpstreamTimeoutError
from dragoman.core.events import ToolCallDelta
from dragoman.core.identifiers import random_id
from dragoman.core.messages import (
    Message,
    Part,
    Reasoning,
    Reply,
    Request,
    Sampling,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    Usage,
)
from dragoman.wire.dialect import Dialect, UpstreamRequest
from dragoman.wire.sse import Decoder

TOKENS: Final = 64
"""Most of an answer: a call of one argument takes some thirty."""
QUESTION_S: Final = 30.0
"""For one answer; the first may take `FIRST_S`, as servers load a model for it."""
FIRST_S: Final = 180.0
_AMENDED_AT_MOST: Final = 3
_FREE: Final = ToolChoice()


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of one question."""

    reply: Reply | None = None
    """None where it broke, and `error` says how."""
    error: DragomanError | None = None
    frames: tuple[Any, ...] = ()
    """The JSON of each event of a stream, or of the whole body, as it came."""
    streamed: bool = False
    done: bool = False
    """`[DONE]` came."""
    argument_pieces: int = 0
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """The answer's words."""
        return "".join(part.text for part in self._parts if isinstance(part, Text))

    @property
    def thoughts(self) -> str:
        """The answer's thoughts."""
        return "".join(part.text for part in self._parts if isinstance(part, Reasoning))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The answer's calls."""
        return tuple(part for part in self._parts if isinstance(part, ToolCall))

    @property
    def cut_off(self) -> bool:
        """A limit ended it."""
        return self.reply is not None and self.reply.finish_reason == "length"

    @property
    def usage(self) -> Usage:
        """As it was told."""
        return self.reply.usage if self.reply else Usage()

    @property
    def _parts(self) -> tuple[Part, ...]:
        return self.reply.parts if self.reply else ()


@dataclass(slots=True)
class Asker:
    """Asks one model of one server."""

    connection: UpstreamConnection
    dialect: Dialect
    model: str
    within_s: float = 60.0
    """For all questions but the first."""
    tokens: int = TOKENS
    """Most of an answer."""
    extra: dict[str, msgspec.Raw] = field(default_factory=dict)
    """What goes along with each question."""
    heard: list[Heard] = field(default_factory=list)
    """All answers so far."""
    _ends: float = 0.0

    def request(
        self,
        words: str,
        *parts: Part,
        tools: Iterable[Tool] = (),
        choice: ToolChoice = _FREE,
        stream: bool = False,
        stop: tuple[str, ...] = (),
        tokens: int = 0,
        extra: Mapping[str, msgspec.Raw] | None = None,
        before: tuple[Message, ...] = (),
    ) -> Request:
        """A question of these words, behind what was said `before`, in the terms of the server's own API."""
        return Request(
            model=self.model,
            messages=(*before, Message("user", (*parts, Text(words)))),
            tools=tuple(tools),
            tool_choice=choice,
            sampling=Sampling(temperature=0.0),
            max_tokens=min(tokens, self.tokens) if tokens else self.tokens,
            stop=stop,
            stream=stream,
            stream_usage=stream,
            extra={**self.extra, **(extra or {})},
            dialect=self.dialect.name,
        )

    async def ask(self, request: Request) -> Heard:
        """The answer, once more without a setting that the server refuses by name."""
        left_s = self._left_s()
        if left_s <= 0:
            return Heard(error=UpstreamTimeoutError(f"not asked: {self.within_s:g} s are over"))
        try:
            outgoing = self.dialect.write_request(request, self.model)
        except DragomanError as error:
            return Heard(error=error)
        heard = await self._heard(outgoing, request, left_s)
        for _ in range(_AMENDED_AT_MOST):
            refused = isinstance(heard.error, UpstreamError) and heard.error.status in (400, 422)
            amended = remove_rejected_param(outgoing, heard.error.message) if refused and heard.error else None
            if amended is None:
                break
            outgoing = amended
            heard = await self._heard(outgoing, request, left_s)
        if not self._ends:
            self._ends = time.monotonic() + self.within_s
        self.heard.append(heard)
        return heard

    async def posted(self, path: str, body: Mapping[str, Any]) -> tuple[bytes, DragomanError | None]:
        """The bytes that another path answers with, and why there are none."""
        if self._left_s() <= 0:
            return b"", UpstreamTimeoutError(f"not asked: {self.within_s:g} s are over")
        got, error, _ = await self._bytes(path, msgspec.json.encode(body), min(QUESTION_S, self._left_s()))
        return got, error

    def _left_s(self) -> float:
        return min(QUESTION_S, self._ends - time.monotonic()) if self._ends else FIRST_S

    async def _heard(self, outgoing: UpstreamRequest, request: Request, limit_s: float) -> Heard:
        got, error, seconds = await self._bytes(self.dialect.path, outgoing.body, limit_s)
        if error is not None:
            return Heard(error=error, seconds=seconds)
        reader = self.dialect.reader(request, ExchangeContext("probe", 0, random_id))
        events = [*reader.feed(got), *reader.close()]
        collector = Collector()
        for event in events:
            collector.send(event)
        streamed = got.lstrip()[:1] != b"{"
        datas = [event.data for event in _decoded(got)] if streamed else [got]
        frames = tuple(frame for data in datas if isinstance(frame := json(data), dict))
        return Heard(
            reply=None if collector.error else collector.reply(),
            error=collector.error,
            frames=frames,
            streamed=streamed,
            done=any(data.strip() == b"[DONE]" for data in datas),
            argument_pieces=sum(isinstance(event, ToolCallDelta) for event in events),
            seconds=seconds,
        )

    async def _bytes(self, path: str, body: bytes, limit_s: float) -> tuple[bytes, DragomanError | None, float]:
        began, got = time.monotonic(), bytearray()
        error: DragomanError | None = None
        try:
            async with (
                asyncio.timeout(limit_s),
                aclosing(self.connection.stream_post(path, body, {}, is_trial=True)) as pieces,
            ):
                async for piece in pieces:
                    got += piece
        except TimeoutError:
            error = UpstreamTimeoutError(f"no whole answer within {limit_s:.0f} s")
        except DragomanError as e:
            error = e
        return bytes(got), error, time.monotonic() - began


def _decoded(got: bytes) -> list[Any]:
    decoder = Decoder()
    try:
        return [*decoder.feed(got), *decoder.close()]
    except UpstreamError:
        return []
