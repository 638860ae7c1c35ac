"""Converts between trace headers and contexts of spans."""

from collections.abc import Mapping
from typing import Final

from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, set_span_in_context

_FLAGS: Final = 0b11
"""The flags that are defined: sampled, and that the trace id is random (Trace Context, level 2)."""


def parent_context(trace: Mapping[str, str]) -> Context:
    """Returns the context of the client's span.

    Args:
        trace: Valid headers, as `trace_context.read` returns them.
    """
    root = Context()
    if not trace:
        return root
    _, trace_id, span_id, flags = trace["traceparent"].split("-")[:4]
    state = TraceState.from_header([trace["tracestate"]]) if "tracestate" in trace else None
    remote = SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16) & _FLAGS), state)
    return set_span_in_context(NonRecordingSpan(remote), root)


def trace_headers(context: SpanContext) -> dict[str, str]:
    """Returns the headers by which this span is the parent of what the next server records."""
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    return {"traceparent": parent} | ({"tracestate": context.trace_state.to_header()} if context.trace_state else {})
