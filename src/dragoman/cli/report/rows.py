"""The rows of a report: labels and numbers by name, the same for tables, JSON, CSV and Parquet."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from dragoman.cli._records.time_range import format_time
from dragoman.cli.report.sides import Comparison
from dragoman.records.reports.grouping import Group, Grouping, describe
from dragoman.records.reports.period import Period
from dragoman.records.reports.report import compare, read_table
from dragoman.records.reports.source import RecordSource
from dragoman.records.reports.totals import ExchangeTotals

Row: TypeAlias = dict[str, str | int | float | bool | None]

SIDE = "side"
"""Column of comparisons: `before`, `after` or `change`."""
SIGNIFICANT = "significant"
"""Column of comparisons: whether the failed share of the calls changed significantly."""


class RowSet(NamedTuple):
    """One table of a report."""

    grouping: Grouping
    rows: list[Row]
    notes: list[str]
    """What to know about the numbers."""
    groups: Mapping[Group, ExchangeTotals]
    """The totals of which the rows are made, of the later side."""


def read_rows(source: RecordSource, period: Period, grouping: Grouping, comparison: Comparison | None) -> RowSet:
    """Returns the rows of the period, or of both sides of a comparison and their change.

    Args:
        source: the database.
        period: the exchanges, or those of the later side.
        grouping: how they are divided.
        comparison: the sides; None: there are none.
    """
    if comparison is None:
        table = read_table(source, period, grouping)
        rows = [{**describe(grouping.by, group), **table.numbers(totals)} for group, totals in table.groups.items()]
        return RowSet(grouping, rows, list(_notes(grouping, table.missing_until_s)), table.groups)
    before, after = (read_table(source, side.period, side.select(grouping)) for side in comparison)
    rows = []
    for group, sides, is_significant in compare(before, after):
        for side, numbers in sides.items():
            significant = {SIGNIFICANT: is_significant if side == "change" else None}
            rows.append({**describe(grouping.by, group), SIDE: side, **numbers, **significant})
    return RowSet(grouping, rows, list(_notes(grouping, before.missing_until_s)), after.groups)


def _notes(grouping: Grouping, missing_until_s: float | None) -> Iterator[str]:
    if missing_until_s is not None:
        labels = ", ".join((*grouping.by, *grouping.only))
        what = "numbers" if grouping.has_hour else "calls and times"
        yield (
            f"exchanges before {format_time(missing_until_s)} were deleted (setting records.max_bytes); of them there "
            f"are no {what} by {labels}"
        )
