"""Spans of one exchange: that of the server, and below it those of attempts and tool runs."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TypeVar

from msgspec.structs import replace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.util.types import AttributeValue

from dragoman.core.backend import (
    Attempts,
    Backend,
    EventStream,
    ExchangeContext,
    PassthroughResponse,
    PromptProgress,
)
from dragoman.core.errors import DragomanError
from dragoman.core.events import AnyEvent
from dragoman.core.messages import Request, Usage
from dragoman.tracing import conventions as conv
from dragoman.tracing.attempt import AttemptSpan, Sent, name_text, request_attributes, set_error
from dragoman.tracing.propagation import parent_context, trace_headers

T = TypeVar("T")


class ExchangeTrace:
    """The spans of one exchange; implements `ExchangeSpans`."""

    def __init__(self, tracer: Tracer, span: Span, parent: Context, attempts: Attempts) -> None:
        """
        Args:
            tracer: Begins the spans.
            span: The server span.
            parent: The context of the client's span.
            attempts: Counts the attempts of the exchange.
        """
        self._tracer, self._span, self._attempts = tracer, span, attempts
        self._context = set_span_in_context(span, parent)
        self._attempt: AttemptSpan | None = None
        """The last attempt."""
        self._number = self._round = 0

    def finish(
        self,
        attributes: Mapping[str, AttributeValue],
        error: BaseException | None,
        *,
        failed: bool,
        cancelled: bool,
        usage: Usage,
    ) -> None:
        """Ends all spans.

        Args:
            attributes: What is known of the response.
            error: Why the exchange failed; None: it did not.
            failed: Whether that is the gateway's or an upstream server's fault, not the client's.
            cancelled: The client did not wait for the end.
            usage: The tokens of the response, for an attempt that did not report its own.
        """
        span = self._span
        if (attempt := self._attempt) is not None:
            if attempt.usage is None and usage != Usage():
                attempt.usage = usage
            attempt.end(cancelled=cancelled)
        span.set_attributes(dict(attributes))
        if failed and error is not None:
            set_error(span, error)
        elif cancelled:
            span.set_attribute(conv.ERROR_TYPE, conv.CANCELLED)
            span.set_status(Status(StatusCode.ERROR, "the client disconnected"))
        span.end()

    def generate(self, backend: Backend, request: Request, context: ExchangeContext) -> EventStream:
        """Yields the events of the backend; see `ExchangeSpans`."""
        return self._traced(backend, request, context)

    async def _traced(self, backend: Backend, request: Request, context: ExchangeContext) -> EventStream:
        attempt = self._begin("chat", backend, request, context)
        report = context.progress
        if report is not None:
            context = replace(context, progress=_both(report, attempt.on_progress))
        try:
            async with aclosing(context.generate_untraced(backend, request)) as batches:
                async for batch in batches:
                    attempt.observe(batch)
                    yield batch
        except GeneratorExit:  # who reads the response needs no more of it
            attempt.stop(None, complete=False)
            raise
        except BaseException as error:
            attempt.stop(error)
            raise
        attempt.stop(None)

    def _begin(self, operation: str, backend: Backend, request: Request, context: ExchangeContext) -> AttemptSpan:
        more = request_attributes(request, context.client.session)
        if context.reasked and self._attempts.failed:
            more[conv.REASK] = self._attempts.failed[-1][1]
        return self._new_attempt(operation, backend, request.model, more, streams=request.stream)

    def _new_attempt(
        self, operation: str, backend: Backend, model: str, more: dict[str, AttributeValue], *, streams: bool
    ) -> AttemptSpan:
        if self._attempt is not None:
            self._attempt.end(cancelled=False)
        self._round = self._round + 1 if self._number == self._attempts.count else 1
        self._number = self._attempts.count
        if self._round > 1:
            more[conv.ROUND] = self._round
        sent = Sent(operation, self._attempts.upstream, model, backend.upstream_facts(model), more)
        self._attempt = AttemptSpan(self._tracer, self._context, sent, self._number, streams=streams)
        return self._attempt

    def retry(self, error: DragomanError, delay_s: float) -> None:
        """The request is sent again to the same backend; see `ExchangeSpans`."""
        if self._attempt is not None:
            self._number = self._attempts.count
            self._attempt.retry(error, self._number, delay_s)

    def upstream_headers(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Returns the headers of the request that is sent next; see `ExchangeSpans`."""
        return headers if self._attempt is None else self._attempt.upstream_headers(headers)

    def wrap_passthrough(
        self, backend: Backend, request: Request, response: PassthroughResponse, context: ExchangeContext
    ) -> PassthroughResponse:
        """Returns the response of a request that is passed through; see `ExchangeSpans`.

        Args:
            backend: The backend that is asked.
            request: The parsed request.
            response: Its response.
            context: The exchange.
        """
        return _TracedPassthrough(response, lambda: self._begin("chat", backend, request, context))

    async def forward(self, operation: str, backend: Backend, model: str, send: Callable[[], Awaitable[None]]) -> None:
        """Sends a request of an API that is not translated; see `ExchangeSpans`.

        Args:
            operation: What the API does, such as `embeddings`.
            backend: The backend that is asked.
            model: The backend's own name of the model.
            send: Sends the request, and forwards the response.
        """
        attempt = self._new_attempt(operation, backend, model, {}, streams=False)
        try:
            await send()
        except BaseException as error:
            attempt.stop(error)
            raise
        attempt.stop(None)

    async def run_tool(self, name: str, call_id: str, run: Callable[[], Awaitable[T]]) -> T:
        """Runs a tool; see `ExchangeSpans`."""
        attributes: dict[str, AttributeValue] = {
            conv.OPERATION: "execute_tool",
            conv.TOOL_NAME: name_text(name),
            conv.TOOL_CALL_ID: name_text(call_id),
            conv.TOOL_TYPE: "extension",
        }
        title = f"execute_tool {name_text(name)}"
        span = self._tracer.start_span(title, self._context, SpanKind.INTERNAL, attributes)
        try:
            result = await run()
            if code := getattr(result, "error", ""):
                span.set_attribute(conv.ERROR_TYPE, code)
                span.set_status(Status(StatusCode.ERROR))
            return result
        except BaseException as error:
            set_error(span, error)
            raise
        finally:
            span.end()


class _TracedPassthrough:
    """A response that is passed through, with its attempt."""

    def __init__(self, response: PassthroughResponse, begin: Callable[[], AttemptSpan]) -> None:
        self._response, self._begin = response, begin
        self._attempt: AttemptSpan | None = None

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """See `PassthroughResponse`."""
        attempt = self._attempt = self._begin()
        try:
            async with aclosing(self._response.stream()) as pieces:
                async for piece in pieces:
                    yield piece
        except GeneratorExit:
            attempt.stop(None, complete=False)
            raise
        except BaseException as error:
            attempt.stop(error)
            raise

    def drain_events(self) -> Sequence[AnyEvent]:
        """See `PassthroughResponse`."""
        events = self._response.drain_events()
        if self._attempt is not None and events:
            self._attempt.observe(events)
        return events

    def error_event(self, error: DragomanError) -> bytes:
        """See `PassthroughResponse`."""
        return self._response.error_event(error)


class Tracing:
    """Begins the spans of exchanges with one tracer."""

    def __init__(self, tracer: Tracer, close: Callable[[], None] = lambda: None) -> None:
        """
        Args:
            tracer: Begins the spans.
            close: Exports what is not exported yet.
        """
        self._tracer = tracer
        self.close = close

    def begin(
        self, name: str, attributes: Mapping[str, AttributeValue], trace: Mapping[str, str], attempts: Attempts
    ) -> tuple[ExchangeTrace | None, dict[str, str]]:
        """Begins the server span of an exchange.

        Args:
            name: The name of the span.
            attributes: What is known of the request.
            trace: The client's trace headers, which are valid.
            attempts: Counts the attempts of the exchange.

        Returns:
            The spans, or None if the exchange is not sampled, and the trace headers for upstream servers.
        """
        parent = parent_context(trace)
        span = self._tracer.start_span(name, parent, SpanKind.SERVER, dict(attributes))
        headers = trace_headers(span.get_span_context()) if span.get_span_context().is_valid else dict(trace)
        if not span.is_recording():
            return None, headers
        spans = ExchangeTrace(self._tracer, span, parent, attempts)
        attempts.spans = spans
        return spans, headers


def _both(
    one: Callable[[PromptProgress], None], other: Callable[[PromptProgress], None]
) -> Callable[[PromptProgress], None]:
    def report(progress: PromptProgress) -> None:
        one(progress)
        other(progress)

    return report
