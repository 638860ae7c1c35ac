"""The cells of a row of the live list, for a width of the terminal."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from dragoman.cli._terminal import one_line
from dragoman.cli.report.tables import format_ms, format_tokens
from dragoman.console.api import TrafficRow
from dragoman.records.reports.totals import FAILED_OUTCOMES

LEGEND: Final = "✓ valid  ~ repaired  ↻ re-asked  ← recovered from text  ? not checked  ✗ failed"
_ARROW: Final = "→"
_WIDE: Final = 110
"""Columns of a terminal with room for wider cells."""
_NARROW: Final = 76
_VERY_NARROW: Final = 48
_MIN_REST: Final = 16
"""Minimum columns for the model and the calls."""
_CALLS: Final = (
    ("valid", "✓", "✓"),
    ("repaired", "~", "repaired"),
    ("reasked", "↻", "re-asked"),
    ("recovered", "←", "recovered"),
    ("unchecked", "?", "unchecked"),
)
"""Outcomes, with the mark and the word for each."""


class Column(NamedTuple):
    """A column of the list."""

    title: str
    width: int
    is_right: bool = False
    """Whether its cells are aligned to the right."""


def columns(width: int) -> list[Column]:
    """Returns the columns for a terminal of this width; a space is between two of them.

    A narrow terminal has no room for tokens and the time to the first byte, a very narrow one none for the agent.
    """
    is_wide, is_narrow = width >= _WIDE, width < _NARROW
    fixed = [Column("TIME", 8)]
    if width >= _VERY_NARROW:
        fixed.append(Column("AGENT", 14 if is_wide else 10))
    numbers = [Column("TOTAL", 6, is_right=True)]
    if not is_narrow:
        numbers = [Column("TOKENS", 13 if is_wide else 12, is_right=True), Column("FIRST", 6, is_right=True), *numbers]
    rest = max(width - sum(column.width + 1 for column in (*fixed, *numbers)) - 1, _MIN_REST)
    calls = min(rest * 2 // 5, 44)
    return [*fixed, Column("MODEL", rest - calls), *numbers, Column("CALLS", calls)]


def cells(row: TrafficRow, layout: Sequence[Column], now_s: float) -> list[str]:
    """Returns the text of each cell, which may be too long for its column.

    Args:
        row: the exchange.
        layout: the columns.
        now_s: the time, in seconds since 1970, for exchanges that run.
    """
    return [_CELLS[column.title](row, column.width, now_s) for column in layout]


def _total_cell(row: TrafficRow, width: int, now_s: float) -> str:
    total_ms = row.total_ms
    if row.state == "running":
        total_ms = max(0, round((now_s - row.began_s) * 1000))
    return "-" if total_ms is None else format_ms(total_ms)


def model_cell(row: TrafficRow, width: int) -> str:
    """Returns the model, the upstream, and its tool mode if there is room.

    Args:
        row: the exchange.
        width: the columns.
    """
    requested, own, upstream = one_line(row.model), one_line(row.upstream_model), one_line(row.upstream)
    mode = f" ({row.tool_mode})" if row.tool_mode else ""
    target = upstream if own in ("", requested) else f"{upstream}:{own}"
    texts = [
        f"{requested or '-'}{f' {_ARROW} {target}' if target else ''}{mode}",
        f"{requested or '-'}{f'{_ARROW}{upstream}' if upstream else ''}{mode}",
        f"{own or requested or '-'}{f'{_ARROW}{upstream}' if upstream else ''}",
    ]
    fitting = next((text for text in texts if len(text) <= width), "")
    if fitting:
        return fitting
    end = f"{_ARROW}{upstream}"[: width // 2]
    name = own or requested or "-"
    return f"{name[: max(1, width - len(end) - 1)]}…{end}" if len(name) + len(end) > width else f"{name}{end}"


def tokens_cell(row: TrafficRow) -> str:
    """Returns the tokens of the prompt and of the response."""
    if not row.input_tokens and not row.output_tokens:
        return "-"
    values = (format_tokens(value) if value else "-" for value in (row.input_tokens, row.output_tokens))
    return _ARROW.join(values)


def calls_cell(row: TrafficRow, width: int) -> str:
    """Returns the outcomes of the calls, and the error; in words if there is room.

    Args:
        row: the exchange.
        width: the columns.
    """
    if row.state == "running":
        return "…"
    counts: dict[str, int] = {}
    for call in row.calls:
        outcome = "failed" if call.outcome in FAILED_OUTCOMES else call.outcome
        counts[outcome] = counts.get(outcome, 0) + call.count
    in_full = [f"{word} {counts[outcome]}" for outcome, _, word in _CALLS if outcome in counts]
    marks = [f"{mark}{counts[outcome]}" for outcome, mark, _ in _CALLS if outcome in counts]
    failed = counts.get("failed", 0)
    if failed:
        in_full.append(f"✗ {failed}")
        marks.append(f"✗{failed}")
    if row.state == "failed":
        name = one_line(row.error.partition(":")[0]) or f"status {row.status}"
        in_full.append(f"✗ {name}")
        marks.append(f"✗ {name}")
    in_words = ", ".join(in_full)
    return in_words if len(in_words) <= width else " ".join(marks)


_CELLS: Final[Mapping[str, Callable[[TrafficRow, int, float], str]]] = {
    "TIME": lambda row, width, now_s: datetime.fromtimestamp(row.began_s).strftime("%H:%M:%S"),
    "AGENT": lambda row, width, now_s: one_line(row.agent or row.key or "-"),
    "MODEL": lambda row, width, now_s: model_cell(row, width),
    "TOKENS": lambda row, width, now_s: tokens_cell(row),
    "FIRST": lambda row, width, now_s: "-" if row.first_ms is None else format_ms(row.first_ms),
    "TOTAL": _total_cell,
    "CALLS": lambda row, width, now_s: calls_cell(row, width),
}
"""The cell of each column, from the row, the width of the column, and the time."""
