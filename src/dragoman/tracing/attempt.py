"""The span of one attempt: its request, and what the events of the response tell.

A retry ends the span and begins another one. The end of an attempt is recorded when it happens, but its span is only
ended with the next one or with the exchange, as only the exchange knows whether its client has left.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.util.types import AttributeValue

from dragoman.core.backend import PromptProgress, UpstreamFacts
from dragoman.core.collect import finish_reason
from dragoman.core.errors import DragomanError, UpstreamError, failure_reason
from dragoman.core.events import (
    AnyEvent,
    EventOrder,
    EventType,
    Failure,
    Finish,
    Notice,
    Start,
    TextDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
    UsageUpdate,
)
from dragoman.core.messages import Request, Usage
from dragoman.tracing import conventions as conv
from dragoman.tracing.engine_phases import EnginePhases
from dragoman.tracing.propagation import trace_headers
from dragoman.wire.response_headers import REQUEST_ID

Attributes = dict[str, AttributeValue]
_FRAME: Final[frozenset[EventType]] = frozenset((Start, Notice, UsageUpdate, Finish, Failure))
"""Types of events that the model did not write."""
_CALL: Final[frozenset[EventType]] = frozenset((ToolCallStart, ToolCallIncomplete, ToolCallEnd))

MESSAGE_CHARS: Final = 300
NAME_CHARS: Final = 100
_INT64_MAX: Final = 2**63 - 1
_FLOAT_MAX: Final = 1e308
MAX_ITEMS: Final = 48
"""Maximum number of different warnings, or repairs, of a span."""


class Sent(NamedTuple):
    """What an attempt asks, and whom."""

    operation: str
    """`chat`, `embeddings` or another name of `gen_ai.operation.name`."""
    upstream: str
    """Name of the backend."""
    model: str
    """The backend's own name of the model."""
    facts: UpstreamFacts
    more: Attributes
    """Further attributes."""

    def attributes(self, number: int) -> Attributes:
        """Returns the attributes of the span's begin.

        Args:
            number: The number of the attempt, from 1.
        """
        facts = self.facts
        attributes: Attributes = {
            conv.OPERATION: self.operation,
            conv.PROVIDER: facts.provider or self.upstream,
            conv.REQUEST_MODEL: name_text(self.model),
            conv.UPSTREAM: self.upstream,
            conv.ATTEMPT: number,
        }
        if facts.address:
            attributes[conv.SERVER_ADDRESS] = facts.address
            attributes[conv.SERVER_PORT] = facts.port
        return attributes | self.more


def request_attributes(request: Request, session: str) -> Attributes:
    """Returns the attributes about a request; none of its text.

    Args:
        request: The request, as the backend gets it.
        session: The id of the conversation, if the client sends one.
    """
    sampling = request.sampling
    values: dict[str, AttributeValue | None] = {
        conv.REQUEST_MAX_TOKENS: _int64(request.max_tokens),
        conv.REQUEST_TEMPERATURE: _float(sampling.temperature),
        conv.REQUEST_TOP_P: _float(sampling.top_p),
        conv.REQUEST_TOP_K: _float(sampling.top_k),
        conv.REQUEST_SEED: _int64(sampling.seed),
        conv.REQUEST_PRESENCE_PENALTY: _float(sampling.presence_penalty),
        conv.REQUEST_FREQUENCY_PENALTY: _float(sampling.frequency_penalty),
        conv.REQUEST_STREAM: request.stream or None,
        conv.REQUEST_CHOICES: _int64(request.choices) if request.choices != 1 else None,
        conv.OUTPUT_TYPE: "json" if request.response_schema else None,
        conv.TOOLS: len(request.tools) or None,
        conv.CONVERSATION_ID: name_text(session) or None,
    }
    return {name: value for name, value in values.items() if value is not None}


class AttemptSpan:
    """One attempt; after a retry, the next one of the same request."""

    def __init__(self, tracer: Tracer, parent: Context, sent: Sent, number: int, *, streams: bool) -> None:
        """
        Args:
            tracer: Begins the spans.
            parent: The context of the server span.
            sent: The request.
            number: The number of the attempt, from 1.
            streams: The client gets a stream.
        """
        self._tracer, self._parent, self._sent, self._streams = tracer, parent, sent, streams
        self._headers: dict[str, str] = {}
        """Headers of the request that is sent next; changed in place by a retry."""
        self._begin(number)

    def _begin(self, number: int, delay_s: float = 0.0) -> None:
        sent = self._sent
        self._name = f"{sent.operation} {name_text(sent.model)}"
        self._began_ns = time.time_ns() + int(delay_s * 1e9)
        self.span: Span = self._tracer.start_span(
            self._name, self._parent, SpanKind.CLIENT, sent.attributes(number), start_time=self._began_ns
        )
        self._began_s = time.perf_counter() + delay_s
        self._ended_ns = 0
        self._error: BaseException | None = None
        self._is_complete = False
        self._first_s = 0.0
        self._model = self._upstream_request_id = self._finish = ""
        self.usage: Usage | None = None
        self._order = EventOrder()
        self._repairs: list[str] = []
        self._warnings: list[str] = []
        self._phases: EnginePhases | None = None
        if self._headers:
            self._headers |= trace_headers(self.span.get_span_context())

    def retry(self, error: BaseException, number: int, delay_s: float) -> None:
        """The request failed, and is sent again: the span ends, and the next one begins after the delay.

        Args:
            error: Why it failed.
            number: The number of the next attempt.
            delay_s: Seconds until the request is sent again.
        """
        self.stop(error)
        self.end(cancelled=False)
        self._begin(number, delay_s)

    def upstream_headers(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Returns the headers of the request with those of the trace; see `ExchangeSpans`."""
        carried = {name: value for name, value in headers.items() if name not in ("traceparent", "tracestate")}
        self._headers = carried | trace_headers(self.span.get_span_context())
        return self._headers

    def on_progress(self, progress: PromptProgress) -> None:
        """The embedded engine reports how far it is."""
        if self._phases is None:
            self._phases = EnginePhases(self._tracer, set_span_in_context(self.span, self._parent))
        self._phases.on_progress(progress)

    def observe(self, batch: Sequence[AnyEvent]) -> None:
        """Records events of the response."""
        if self._first_s and len(batch) == 1 and type(batch[0]) is TextDelta:  # the most frequent case
            return
        for event in batch:
            kind = type(event)
            if kind in _FRAME:
                self._observe_frame(event)
                continue
            if not self._first_s:
                self._mark_first()
            if kind in _CALL:
                self._observe_call(event)

    def _observe_frame(self, event: AnyEvent) -> None:
        match event:
            case Start(model=model, headers=headers):
                self._model, self._upstream_request_id = model, headers.get(REQUEST_ID, "")
            case UsageUpdate(usage):
                self.usage = usage
            case Notice():
                self._warnings.append(event.label)
            case Finish():
                self._finish = finish_reason(event, self._order)
                self.stop(None)
            case Failure(error):
                self.stop(error)
            case _:
                pass

    def _observe_call(self, event: AnyEvent) -> None:
        match event:
            case ToolCallStart():
                self._order.calls += 1
            case ToolCallIncomplete():
                self._order.incomplete += 1
            case ToolCallEnd(repairs=repairs):
                self._repairs += repairs
            case _:
                pass

    def _mark_first(self) -> None:
        self._first_s = time.perf_counter() - self._began_s
        if self._phases is not None:
            self._phases.on_output()

    def stop(self, error: BaseException | None, *, complete: bool = True) -> None:
        """The attempt is over; only the first call counts.

        Args:
            error: Why it failed; None: it did not.
            complete: The response was read to its end; else the gateway needed no more of it.
        """
        if not self._ended_ns:
            self._ended_ns = max(time.time_ns(), self._began_ns)  # a retry may be cancelled before it begins
            self._error, self._is_complete = error, complete

    def end(self, *, cancelled: bool) -> None:
        """Ends the span, with the time at which the attempt was over.

        Args:
            cancelled: The client did not wait for the end of the exchange.
        """
        self.stop(None, complete=False)
        span = self.span
        if self._phases is not None:
            self._phases.end(self._ended_ns)
        if span.is_recording():
            span.set_attributes(self._response_attributes())
            if self._error is not None:
                set_error(span, self._error)
            elif cancelled and not self._is_complete:
                span.set_attribute(conv.ERROR_TYPE, conv.CANCELLED)
                span.set_status(Status(StatusCode.ERROR, "the client disconnected"))
        span.end(self._ended_ns)

    def _response_attributes(self) -> Attributes:
        """Returns what is known of the response."""
        attributes: Attributes = {}
        if mode := self._sent.facts.tool_mode:
            attributes[conv.TOOL_MODE] = mode
        if self._model:
            attributes[conv.RESPONSE_MODEL] = name_text(self._model)
        if self._finish:
            attributes[conv.RESPONSE_FINISH_REASONS] = [self._finish]
        if self._first_s and self._streams:
            attributes[conv.TIME_TO_FIRST_CHUNK] = self._first_s
        if self._upstream_request_id:
            attributes[conv.UPSTREAM_REQUEST_ID] = self._upstream_request_id
        if self._order.calls:
            attributes[conv.TOOL_CALLS] = self._order.calls
        if self._repairs:
            attributes[conv.REPAIRS] = distinct(self._repairs)
        if self._warnings:
            attributes[conv.WARNINGS] = distinct(self._warnings)
        if self.usage is not None:
            attributes |= usage_attributes(self.usage)
            if self._sent.operation == "embeddings":
                del attributes[conv.USAGE_OUTPUT]
        return attributes


def usage_attributes(usage: Usage) -> Attributes:
    """Returns the attributes about tokens; those of parts of them only if there are any."""
    parts = {
        conv.USAGE_CACHE_READ: usage.cached_input_tokens,
        conv.USAGE_CACHE_WRITE: usage.cache_write_tokens,
        conv.USAGE_REASONING: usage.reasoning_tokens,
    }
    counts = {conv.USAGE_INPUT: usage.input_tokens, conv.USAGE_OUTPUT: usage.output_tokens}
    counts |= {name: count for name, count in parts.items() if count}
    attributes: Attributes = {name: _int64(count) for name, count in counts.items()}
    if usage.cost_usd is not None:
        attributes[conv.COST] = usage.cost_usd
    return attributes


def set_error(span: Span, error: BaseException) -> None:
    """Records on a span that it failed: the status of the server, or the name of the error in docs/errors.md."""
    if isinstance(error, UpstreamError) and error.status:
        kind = str(error.status)
    else:
        kind = type(error).__name__ if isinstance(error, Exception) else conv.CANCELLED
    reason = failure_reason(error) if isinstance(error, DragomanError) else kind
    span.set_attribute(conv.ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR, reason[:MESSAGE_CHARS]))


def name_text(name: str) -> str:
    """Returns the name for a span, shortened; without surrogates, for which the exporter would drop all its spans."""
    short = name[:NAME_CHARS]
    return short if short.isascii() else short.encode("utf-8", "replace").decode()


def distinct(items: Iterable[str]) -> list[str]:
    """Returns each of these once, at most `MAX_ITEMS`."""
    return list(islice(dict.fromkeys(items), MAX_ITEMS))


def _int64(number: int | None) -> int | None:
    """Returns the number, limited to what the exporter can encode."""
    return None if number is None else max(-_INT64_MAX, min(number, _INT64_MAX))


def _float(value: float | None) -> float | None:
    """Returns the value as a float: clients may send integers, also huge ones, and an attribute has one type."""
    return None if value is None else float(max(-_FLOAT_MAX, min(value, _FLOAT_MAX)))
