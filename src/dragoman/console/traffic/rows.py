"""Rows of the list, from records of ended exchanges and from exchanges that run."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dragoman.console.api import RowCall, TrafficRow
from dragoman.records.record import ExchangeRecord
from dragoman.records.reports.exchange_log import LogEntry
from dragoman.server.observe.access_log import NAME_LIMIT_CHARS, AccessRecord

_FAILED_STATUS = 400


def row_of_log(entry: LogEntry, is_captured: bool) -> TrafficRow:
    """Returns the row of a record that was read from the database.

    Args:
        entry: the record.
        is_captured: whether its capture can be read.
    """
    values = entry.as_json()
    calls = [
        RowCall(tool=call.tool, outcome=call.outcome, repairs=call.repairs, count=call.count) for call in entry.calls
    ]
    return _row(values, values.get("warnings", ()), calls, is_captured)


def row_of_record(record: ExchangeRecord, is_captured: bool) -> TrafficRow:
    """Returns the row of an exchange that has just ended.

    Args:
        record: its record.
        is_captured: whether its capture can be read.
    """
    values = msgspec.structs.asdict(record) | msgspec.structs.asdict(record.series) | {"id": f"req_{record.id}"}
    calls = [
        RowCall(
            tool=kind.tool, outcome=kind.outcome, repairs=kind.repairs.split(",") if kind.repairs else [], count=count
        )
        for kind, count in record.calls
    ]
    return _row(values, record.warnings or (), calls, is_captured)


def row_of_running(record: AccessRecord, is_captured: bool) -> TrafficRow:
    """Returns the row of an exchange that runs.

    Args:
        record: what is observed of it.
        is_captured: whether it is captured.
    """
    request, attempts, client, usage = record.request, record.attempts, record.client, record.usage
    is_answered = record.first_s is not None
    return TrafficRow(
        id=record.id,
        began_s=time.time() - record.seconds,
        state="running",
        dialect="" if request is None else request.dialect,
        agent=client.agent,
        role=client.role,
        key=client.key,
        session=client.session or "",
        model="" if request is None else request.model[:NAME_LIMIT_CHARS],
        upstream=attempts.upstream,
        upstream_model=attempts.model[:NAME_LIMIT_CHARS],
        tool_mode=attempts.tool_mode,
        format=attempts.format,
        stream=request is not None and request.stream,
        status=record.status,
        input_tokens=usage.input_tokens if is_answered else None,
        output_tokens=usage.output_tokens or None,
        first_ms=None if record.first_s is None else round(record.first_s * 1000),
        attempts=attempts.count,
        warnings=list(record.labels),
        is_captured=is_captured,
    )


def row_of_facts(facts: Mapping[str, Any], ended_s: float) -> TrafficRow:
    """Returns the row of an exchange of which only its capture is known.

    Args:
        facts: the fields of its log line.
        ended_s: when it ended, in seconds since 1970.
    """
    calls = [
        RowCall(tool=tool, outcome=outcome, count=count)
        for tool, counts in facts.get("by_tool", {}).items()
        for outcome, count in counts.items()
        if outcome != "steps"
    ]
    values = {**facts, "ended_s": ended_s, "total_ms": facts.get("ms", 0)}
    return _row(values, facts.get("warnings", ()), calls, is_captured=True)


def _row(values: Mapping[str, Any], warnings: Sequence[str], calls: list[RowCall], is_captured: bool) -> TrafficRow:
    """Returns the row of an ended exchange.

    Args:
        values: the columns of its record.
        warnings: the labels of its warnings.
        calls: its tool calls.
        is_captured: whether its capture can be read.
    """
    status, error = values.get("status") or 0, values.get("error") or ""
    total_ms = values.get("total_ms") or 0
    text = values.get("error_message") or ""
    fields = {name: values.get(name) or "" for name in _TEXTS} | {name: values.get(name) for name in _NUMBERS}
    fields |= {"stream": bool(values.get("stream")), "attempts": values.get("attempts") or 0}
    return TrafficRow(
        id=values["id"],
        began_s=values["ended_s"] - total_ms / 1000,
        state="failed" if error or status >= _FAILED_STATUS else "done",
        status=status,
        error=f"{error}: {text}" if error and text else error,
        total_ms=total_ms,
        calls=calls,
        warnings=list(warnings),
        is_captured=is_captured,
        **fields,
    )


_TEXTS = (
    "dialect",
    "agent",
    "role",
    "key",
    "session",
    "model",
    "upstream",
    "upstream_model",
    "tool_mode",
    "format",
    "finish",
)
_NUMBERS = ("input_tokens", "cached_tokens", "output_tokens", "first_ms")
