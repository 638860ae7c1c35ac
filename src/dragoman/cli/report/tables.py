"""Reports as text for a terminal."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dragoman.cli.report.rows import SIDE, SIGNIFICANT, RowSet
from dragoman.cli.report.sides import Comparison, format_period
from dragoman.records.reports.period import Period
from dragoman.records.reports.totals import ExchangeTotals
from dragoman.records.reports.worst_text import format_share


def format_count(value: float) -> str:
    """Returns a number with commas."""
    return f"{value:,.0f}"


def format_tokens(value: float) -> str:
    """Returns a number of tokens in three digits: 950, 12.3k, 4.56M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{_three_digits(value / unit)}{name}"
    return f"{value:.0f}"


def format_ms(value: float) -> str:
    """Returns a duration in three digits: 340 ms, 1.23 s, 95 s, 12 min."""
    if abs(value) < 1_000:
        return f"{value:.0f} ms"
    return f"{_three_digits(value / 1_000)} s" if abs(value) < 600_000 else f"{value / 60_000:.0f} min"


def _three_digits(value: float) -> str:
    return f"{value:,.{2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0}f}"


def format_usd(value: float) -> str:
    """Returns an amount of money; small ones with more digits."""
    return f"{value:,.2f}" if abs(value) >= 1 or value == 0 else f"{value:.4f}"


class _Column(NamedTuple):
    title: str
    name: str
    write: Callable[[float], str] = format_count
    is_needed: bool = False
    """Whether the column is printed although all its values are 0 or unknown."""


_CALLS: Final = (
    _Column("CALLS", "calls", is_needed=True),
    _Column("VALID", "valid", is_needed=True),
    _Column("REPAIRED", "repaired", is_needed=True),
    _Column("RE-ASKED", "reasked", is_needed=True),
    _Column("RECOVERED", "recovered"),
    _Column("UNCHECKED", "unchecked"),
    _Column("FAILED", "failed", is_needed=True),
    _Column("FAILED %", "failed_share", format_share, is_needed=True),
)
_TRAFFIC: Final = (
    _Column("EXCHANGES", "exchanges", is_needed=True),
    _Column("ERRORS", "errors", is_needed=True),
    _Column("INPUT", "input_tokens", format_tokens, is_needed=True),
    _Column("CACHED", "cache_share", format_share),
    _Column("OUTPUT", "output_tokens", format_tokens, is_needed=True),
    _Column("REASONING", "reasoning_tokens", format_tokens),
    _Column("USD", "cost_usd", format_usd),
    _Column("FIRST p50", "first_p50_ms", format_ms),
    _Column("p95", "first_p95_ms", format_ms),
    _Column("TOTAL p50", "total_p50_ms", format_ms),
    _Column("p95", "total_p95_ms", format_ms),
)
_OPTIONAL: Final = (
    *("reasoning_tokens", "unchecked", "recovered", "first_p95_ms", "cache_share", "output_tokens", "input_tokens"),
    *("valid", "first_p50_ms"),
)
"""Columns that a narrow terminal leaves out, in this order."""
_RELATIVE: Final = (format_count, format_tokens, format_ms, format_usd)
"""Numbers whose change is printed in percent."""


def format_summary(period: Period, totals: ExchangeTotals | None) -> str:
    """Returns the first lines of a report.

    Args:
        period: the period.
        totals: of all its exchanges; None: there are none.
    """
    if totals is None:
        return f"{format_period(period)} (UTC): no exchanges"
    counts = totals.counts
    calls = f"{counts.calls:,} tool calls, {counts.failed:,} failed ({format_share(counts.share)})"
    errors = f"{totals.errors:,} with an error ({format_share(totals.error_share)})"
    return f"{format_period(period)} (UTC): {totals.exchanges:,} exchanges, {errors}; {calls}"


def format_sides(comparison: Comparison) -> str:
    """Returns which exchanges are compared."""
    return f"before: {comparison.before.name}\nafter:  {comparison.after.name}"


def format_rows(row_set: RowSet, limit: int, width: int | None = None) -> str:
    """Returns the tables of the rows: calls, and, unless each tool is a group, traffic; "" without rows.

    Args:
        row_set: the rows.
        limit: maximum number of groups; 0: all.
        width: columns of the terminal, for which columns are left out; None: there is none.
    """
    if not row_set.rows:
        return ""
    by = ", ".join(row_set.grouping.by)
    groups = len(row_set.rows) // (3 if SIDE in row_set.rows[0] else 1)
    count = len(row_set.rows) if not 0 < limit < groups else limit * (len(row_set.rows) // groups)
    rows = row_set.rows[:count]
    cut = f" (the first {limit} of {groups:,} rows; --limit 0 prints all)" if count < len(row_set.rows) else ""
    tables = []
    if row_set.grouping.has_tool or any(row["calls"] for row in rows):
        tables.append(f"Tool calls by {by}{cut}\n{_table(row_set.grouping.by, rows, _CALLS, width)}")
    if not row_set.grouping.has_tool:
        tables.append(f"Exchanges by {by}{cut}\n{_table(row_set.grouping.by, rows, _TRAFFIC, width)}")
    return "\n\n".join(tables)


def _table(by: Sequence[str], rows: Sequence[Mapping[str, Any]], columns: Sequence[_Column], width: int | None) -> str:
    by = [name for name in by if any(row[name] for row in rows)]
    used = [column for column in columns if column.is_needed or any(row[column.name] for row in rows)]
    sides = (SIDE,) if SIDE in rows[0] else ()
    head = [*(name.upper() for name in (*by, *sides)), *(column.title for column in used)]
    lines = []
    before: Mapping[str, Any] = {}
    for row in rows:
        before = row if row.get(SIDE) == "before" else before
        labels = [str(row[name]) or "-" for name in by]
        if row.get(SIDE, "before") != "before":
            labels = [""] * len(by)
        cells = [_cell(row, before, column) for column in used]
        lines.append([*labels, *(str(row[name]) for name in sides), *cells])
    labels_count = len(by) + len(sides)
    table = [head, *lines]
    for name in _OPTIONAL if width is not None else ():
        if max(map(len, _align(table, labels_count).split("\n"))) <= (width or 0):
            break
        place = next((place for place, column in enumerate(used, labels_count) if column.name == name), None)
        if place is not None:
            table = [line[:place] + line[place + 1 :] for line in table]
            used.pop(place - labels_count)
    return _align(table, labels_count)


def _cell(row: Mapping[str, Any], before: Mapping[str, Any], column: _Column) -> str:
    value = row[column.name]
    if value is None:
        return "-"
    if row.get(SIDE) != "change":
        return column.write(value)
    if column.write in _RELATIVE:
        old = before[column.name]
        return "-" if not old else "=" if abs(value) < old / 200 else f"{100 * value / old:+.0f} %"
    mark = " *" if column.name == "failed_share" and row[SIGNIFICANT] else ""
    return f"{100 * value:+.1f} pt{mark}" if abs(value) >= 0.0005 else f"={mark}"


def _align(lines: Sequence[Sequence[str]], labels: int) -> str:
    """Returns aligned columns: labels to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place < labels else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
