"""Converts between trace headers and contexts of spans.

Source: https://www.w3.org/TR/trace-context-2/ (2024-03-28).
"""

import re
from collections.abc import Mapping
from typing import Final

from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, set_span_in_context

_MEMBER: Final = re.compile(
    r"([a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    r"=([\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e])"
)
_MAX_MEMBERS: Final = 32
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
    state = _trace_state(trace["tracestate"]) if "tracestate" in trace else None
    remote = SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16) & _FLAGS), state)
    return set_span_in_context(NonRecordingSpan(remote), root)


def _trace_state(header: str) -> TraceState | None:
    """Returns the members of `tracestate`; None if one is invalid.

    They are checked here, because OpenTelemetry logs what is invalid, and strangers must not write into the log.
    """
    members = [member for each in header.split(",") if (member := each.strip(" \t"))]
    pairs = [match.groups() for match in map(_MEMBER.fullmatch, members) if match is not None]
    if not 0 < len(pairs) == len(members) <= _MAX_MEMBERS or len({key for key, _ in pairs}) < len(pairs):
        return None
    return TraceState([(str(key), str(value)) for key, value in pairs])


def trace_headers(context: SpanContext) -> dict[str, str]:
    """Returns the headers by which this span is the parent of what the next server records."""
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    return {"traceparent": parent} | ({"tracestate": context.trace_state.to_header()} if context.trace_state else {})
