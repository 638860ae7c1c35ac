"""Runs one question with its tool calls and their results, by the parts of the gateway itself.

Request ─Gateway.answer→ events → view.event
             └ observer: what the model writes → view.raw
"""

import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final, TypeVar

from msgspec.structs import replace

from dragoman import dialects
from dragoman.backends.embedded.engine_output import TokenText
from dragoman.backends.text_mode import completions
from dragoman.cli._terminal import ProgressLine
from dragoman.cli.ask.plain_view import Totals, View
from dragoman.cli.ask.raw_text import RawTextReader
from dragoman.core.backend import Backend, EventStream, ExchangeContext
from dragoman.core.collect import Collector
from dragoman.core.events import AnyEvent, Failure
from dragoman.core.identifiers import random_id
from dragoman.core.messages import Message, Reply, Request, Text, ToolCall, ToolChoice, ToolResult
from dragoman.gateway.gateway import Gateway
from dragoman.wire import sse
from dragoman.wire.dialect import ResponseReader

T = TypeVar("T")

_MAX_TURNS: Final = 4
"""Maximum number of turns, for a model that calls tools again and again."""
_MAX_IGNORED: Final = 2
"""Number of times that the model may ignore a result and repeat an identical call."""
_IGNORED: Final = (
    "the model does not use the tool's result: it called {} with the same arguments again, twice; "
    "try a larger model, or another mode: dragoman probe URL"
)
_EMPTY: Final = "the model's answer is empty; try a larger model, or --tool-choice none"
_MESSAGES: Final = "anthropic_messages"


class Dialogue:
    """One dialogue with a model."""

    def __init__(
        self,
        gateway: Gateway,
        page: View,
        line: ProgressLine,
        run_tool: Callable[[ToolCall], str],
        turns: int = _MAX_TURNS,
    ) -> None:
        """`run_tool` returns the result of a tool call."""
        self._gateway, self._page, self._line, self._run_tool, self._turns = gateway, page, line, run_tool, turns
        self._requests = 0
        """Number of requests to models in this turn: a backend and the guard may re-ask."""
        self._request = Request("", ())
        self._began_s = time.monotonic()
        self._first_s: float | None = None

    async def run(self, request: Request) -> str:
        """Runs and shows all turns.

        Returns: the fault of the model's response, or "".
        Raises: DragomanError: there is no response, or it broke off.
        """
        self._began_s = time.monotonic()
        replies: list[Reply] = []
        seen: Counter[tuple[str, str]] = Counter()
        fault = ""
        while len(replies) < self._turns:
            replies.append(await self._turn(request))
            calls = [part for part in replies[-1].parts if isinstance(part, ToolCall)]
            if replies[-1].finish_reason != "tool_calls":
                fault = "" if _has_text(replies[-1]) else _EMPTY
                break
            if len(replies) == self._turns:
                break
            seen.update({(call.name, _on_one_line(call.arguments)) for call in calls})
            if name := next((name for (name, _), count in seen.items() if count > _MAX_IGNORED), ""):
                fault = _IGNORED.format(name)
                break
            outputs = [self._run_tool(call) for call in calls]
            for call, output in zip(calls, outputs, strict=True):
                self._page.show_result(call.name, _on_one_line(call.arguments), output)
            results = tuple(ToolResult(call.id, (Text(output),)) for call, output in zip(calls, outputs, strict=True))
            turn_messages = (Message("assistant", replies[-1].parts), Message("tool", results))
            request = replace(request, messages=(*request.messages, *turn_messages), tool_choice=ToolChoice())
        self._page.show_totals(self._sum(replies))
        return fault

    async def _turn(self, request: Request) -> Reply:
        self._page.begin_turn()
        self._requests = 0
        self._line.print("waiting for the first token")
        collector = Collector()
        context = ExchangeContext(random_id(), int(time.time()), random_id, observer=self)
        try:
            async with aclosing(self._gateway.generate(request, context)) as events:
                async for batch in events:
                    self._show_events(batch, collector)
            self._page.end_turn(collector.reply().finish_reason)
        finally:
            self._line.clear()
            self._page.close()
        return collector.reply()

    def _show_events(self, events: Sequence[AnyEvent], collector: Collector) -> None:
        for event in events:
            step = collector.feed(event)
            self._line.clear()
            self._page.feed(event, step)
            if isinstance(event, Failure):
                raise event.error

    def on_backend_call(self, backend: Backend, request: Request) -> None:
        """A backend is called: see `ExchangeObserver`."""
        self._request = request

    def wrap_events(self, events: EventStream) -> EventStream:
        """Events are shown as they leave the guard."""
        return events

    async def wrap_model_output(
        self, target: str, sent: object, pieces: AsyncGenerator[T, None]
    ) -> AsyncGenerator[T, None]:
        """Shows the model's output, and passes it on unchanged."""
        self._requests += 1
        if self._requests > 1:
            self._page.begin_reask()
        wire = RawTextReader(self._reader(target))
        framed = bytes if target.startswith("/") else sse.encode  # the CLI yields events without SSE framing
        async with aclosing(pieces):
            async for piece in pieces:
                if text := wire.feed(framed(piece)) if isinstance(piece, bytes) else _text(piece):
                    self._show(text)
                yield piece

    def _show(self, text: str) -> None:
        if self._first_s is None:
            self._first_s = time.monotonic() - self._began_s
        self._line.clear()
        self._page.feed_raw(text)

    def _reader(self, path: str) -> ResponseReader:
        """Returns the reader for responses from this path; the CLI's are those of its vendor's API."""
        context = ExchangeContext("", 0, lambda: "")
        if path == completions.PATH:
            return completions.CompletionReader(self._request, context)
        api = next((name for name in dialects.names() if dialects.get(name).path == path), _MESSAGES)
        return dialects.get(api).reader(replace(self._request, dialect=api), context)

    def _sum(self, replies: list[Reply]) -> Totals:
        costs = [reply.usage.cost_usd for reply in replies if reply.usage.cost_usd is not None]
        return Totals(
            len(replies),
            sum(reply.usage.input_tokens for reply in replies),
            sum(reply.usage.output_tokens for reply in replies),
            sum(costs) if costs else None,
            time.monotonic() - self._began_s,
            self._first_s,
        )


def _has_text(reply: Reply) -> bool:
    return any(isinstance(part, Text) and part.text.strip() for part in reply.parts)


def _on_one_line(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False)
    except ValueError:
        return arguments


def _text(piece: object) -> str:
    """Returns the text of an engine's output."""
    return piece.text if isinstance(piece, TokenText) else ""
