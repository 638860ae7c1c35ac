"""Client for the probe's requests: short, at temperature 0, and errors are returned instead of raised.

    answer = await client.ask(client.request("Say hello."))
    answer.reply.parts if answer.reply else answer.error

Each request is written by the dialect like any other; the response is also kept as it arrived, as readers correct
errors.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from dragoman.backends.http.connection import UpstreamConnection
from dragoman.backends.http.planning.unsupported_params import remove_rejected_param
from dragoman.backends.probe.server_info import decode_or_none
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
from dragoman.wire import sse
from dragoman.wire.dialect import Dialect, UpstreamRequest
from dragoman.wire.sse import Decoder

MAX_TOKENS: Final = 64
"""Limit of a reply: a call with one argument takes about thirty tokens."""
REQUEST_TIMEOUT_S: Final = 30.0
"""Timeout of one request; the first has a longer one, as servers may load a model for it."""
FIRST_REQUEST_TIMEOUT_S: Final = 180.0
_MAX_CHANGES: Final = 3
_AUTO_CHOICE: Final = ToolChoice()


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """The response to one request."""

    reply: Reply | None = None
    """None if it failed, with the reason in `error`."""
    error: DragomanError | None = None
    frames: tuple[Any, ...] = ()
    """The JSON of each event of a stream, or of the whole body, as it arrived."""
    streamed: bool = False
    has_done: bool = False
    """Whether `[DONE]` was received."""
    argument_deltas: int = 0
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """The reply's text."""
        return "".join(part.text for part in self._parts if isinstance(part, Text))

    @property
    def reasoning(self) -> str:
        """The reply's reasoning."""
        return "".join(part.text for part in self._parts if isinstance(part, Reasoning))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The reply's tool calls."""
        return tuple(part for part in self._parts if isinstance(part, ToolCall))

    @property
    def is_truncated(self) -> bool:
        """Whether a token limit ended the reply."""
        return self.reply is not None and self.reply.finish_reason == "length"

    @property
    def usage(self) -> Usage:
        """The reported usage; zero if there is none."""
        return self.reply.usage if self.reply else Usage()

    @property
    def _parts(self) -> tuple[Part, ...]:
        return self.reply.parts if self.reply else ()


@dataclass(slots=True)
class ProbeClient:
    """Sends requests to one model of one server."""

    connection: UpstreamConnection
    dialect: Dialect
    model: str
    timeout_s: float = 60.0
    """Time for all requests but the first, in seconds."""
    max_tokens: int = MAX_TOKENS
    """Maximum tokens of a reply."""
    extra: dict[str, msgspec.Raw] = field(default_factory=dict)
    """Fields added to each request."""
    answers: list[ProbeAnswer] = field(default_factory=list)
    """All responses so far."""
    _deadline_s: float = 0.0

    def request(
        self,
        text: str,
        *parts: Part,
        tools: Iterable[Tool] = (),
        choice: ToolChoice = _AUTO_CHOICE,
        stream: bool = False,
        stop: tuple[str, ...] = (),
        tokens: int = 0,
        extra: Mapping[str, msgspec.Raw] | None = None,
        before: tuple[Message, ...] = (),
    ) -> Request:
        """Returns a request with this prompt, in the terms of the server's own API.

        Args:
            text: The text of the user's message.
            parts: Other parts of the message, before the text.
            tools: The offered tools.
            choice: The tool choice.
            stream: Whether the response is streamed.
            stop: Stop strings.
            tokens: The limit of the response, if it is less than `max_tokens`; 0: `max_tokens`.
            extra: Fields of the server's own API to add.
            before: Messages before this one.
        """
        return Request(
            model=self.model,
            messages=(*before, Message("user", (*parts, Text(text)))),
            tools=tuple(tools),
            tool_choice=choice,
            sampling=Sampling(temperature=0.0),
            max_tokens=min(tokens, self.max_tokens) if tokens else self.max_tokens,
            stop=stop,
            stream=stream,
            stream_usage=stream,
            extra={**self.extra, **(extra or {})},
            dialect=self.dialect.name,
        )

    async def ask(self, request: Request) -> ProbeAnswer:
        """Sends the request and returns the response; retries without parameters that the server rejects by name."""
        left_s = self._left_s()
        if left_s <= 0:
            return ProbeAnswer(error=UpstreamTimeoutError(f"not asked: {self.timeout_s:g} s are over"))
        try:
            outgoing = self.dialect.write_request(request, self.model)
        except DragomanError as error:
            return ProbeAnswer(error=error)
        answer = await self._send(outgoing, request, left_s)
        for _ in range(_MAX_CHANGES):
            is_rejected = isinstance(answer.error, UpstreamError) and answer.error.status in (400, 422)
            amended = remove_rejected_param(outgoing, answer.error.message) if is_rejected and answer.error else None
            if amended is None:
                break
            outgoing = amended
            answer = await self._send(outgoing, request, left_s)
        if not self._deadline_s:
            self._deadline_s = time.monotonic() + self.timeout_s
        self.answers.append(answer)
        return answer

    async def post(self, path: str, body: Mapping[str, Any]) -> tuple[bytes, DragomanError | None]:
        """Sends a POST to another path; returns the bytes of the response, and the error if it failed."""
        if self._left_s() <= 0:
            return b"", UpstreamTimeoutError(f"not asked: {self.timeout_s:g} s are over")
        data, error, _ = await self._read(path, msgspec.json.encode(body), min(REQUEST_TIMEOUT_S, self._left_s()))
        return data, error

    def _left_s(self) -> float:
        return (
            min(REQUEST_TIMEOUT_S, self._deadline_s - time.monotonic()) if self._deadline_s else FIRST_REQUEST_TIMEOUT_S
        )

    async def _send(self, outgoing: UpstreamRequest, request: Request, limit_s: float) -> ProbeAnswer:
        body, error, seconds = await self._read(self.dialect.path, outgoing.body, limit_s)
        if error is not None:
            return ProbeAnswer(error=error, seconds=seconds)
        reader = self.dialect.reader(request, ExchangeContext("probe", 0, random_id))
        events = [*reader.feed(body), *reader.close()]
        collector = Collector()
        for event in events:
            collector.feed(event)
        streamed = body.lstrip()[:1] != b"{"
        datas = [event.data for event in _decode_sse(body)] if streamed else [body]
        frames = tuple(frame for data in datas if isinstance(frame := decode_or_none(data), dict))
        return ProbeAnswer(
            reply=None if collector.error else collector.reply(),
            error=collector.error,
            frames=frames,
            streamed=streamed,
            has_done=any(data.strip() == sse.DONE for data in datas),
            argument_deltas=sum(isinstance(event, ToolCallDelta) for event in events),
            seconds=seconds,
        )

    async def _read(self, path: str, body: bytes, limit_s: float) -> tuple[bytes, DragomanError | None, float]:
        began, data = time.monotonic(), bytearray()
        error: DragomanError | None = None
        try:
            async with (
                asyncio.timeout(limit_s),
                aclosing(self.connection.stream_post(path, body, {}, is_trial=True)) as pieces,
            ):
                async for piece in pieces:
                    data += piece
        except TimeoutError:
            error = UpstreamTimeoutError(f"no whole answer within {limit_s:.0f} s")
        except DragomanError as e:
            error = e
        return bytes(data), error, time.monotonic() - began


def _decode_sse(data: bytes) -> list[Any]:
    decoder = Decoder()
    try:
        return [*decoder.feed(data), *decoder.close()]
    except UpstreamError:
        return []
