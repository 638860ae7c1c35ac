"""One line for each exchange, as `dragoman log` and `dragoman watch --plain` print it."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from dragoman.cli._terminal import one_line
from dragoman.records.reports.totals import FAILED_OUTCOMES

_ID_CHARS: Final = 10
_COLUMNS: Final = (
    ("TIME (UTC)", 19),
    ("ID", _ID_CHARS),
    ("STATUS", -6),
    ("TOTAL", -9),
    ("INPUT", -7),
    ("OUTPUT", -6),
    ("CALLS", -5),
    ("KEY", 10),
    ("AGENT", 12),
    ("MODEL", 24),
    ("UPSTREAM", 10),
    ("PROBLEMS", 0),
)
"""Titles and widths; negative: aligned to the right."""


def head_line() -> str:
    """Returns the titles of the columns."""
    return _row(title for title, _ in _COLUMNS)


def exchange_line(values: Mapping[str, Any], calls: Iterable[tuple[str, str, int]], ended_s: float) -> str:
    """Returns an exchange as a line.

    Args:
        values: columns of its record; None and "" if they are not known.
        calls: tool, outcome and number of its calls.
        ended_s: when it ended, in seconds since 1970.
    """
    calls = list(calls)
    return one_line(
        _row(
            [
                datetime.fromtimestamp(ended_s, UTC).strftime("%Y-%m-%d %H:%M:%S"),
                values["id"].removeprefix("req_")[:_ID_CHARS],
                str(values["status"] or "-"),
                "-" if values["total_ms"] is None else f"{values['total_ms'] / 1000:,.2f} s",
                *(_number(values[f"{name}_tokens"]) for name in ("input", "output")),
                _number(sum(count for _, _, count in calls)),
                *(values[name] or "-" for name in ("key", "agent")),
                values["upstream_model"] or values["model"] or "-",
                values["upstream"] or "-",
                ", ".join(_problems(values, calls)),
            ]
        )
    )


def _problems(values: Mapping[str, Any], calls: Iterable[tuple[str, str, int]]) -> Iterator[str]:
    """Yields the error, the failed attempts and the failed calls."""
    if error := values.get("error"):
        yield error
    for backend, reason in values.get("failed_attempts") or ():
        yield f"{backend}: {reason}"
    for tool, outcome, count in calls:
        if outcome in FAILED_OUTCOMES:
            yield f"{tool or 'unknown tool'} {outcome}{f' x{count}' if count > 1 else ''}"


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _row(cells: Iterable[str]) -> str:
    pairs = zip(cells, _COLUMNS, strict=True)
    return "  ".join(cell.rjust(-width) if width < 0 else cell.ljust(width) for cell, (_, width) in pairs).rstrip()
