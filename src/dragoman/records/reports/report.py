"""A report: the totals by group, worst first, the difference between two of them, and what fails significantly more."""

from collections.abc import Iterator, Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from dragoman.records.reports.grouping import Group, Grouping
from dragoman.records.reports.period import Period
from dragoman.records.reports.read import Reader
from dragoman.records.reports.significance import Counts, Outlier, find_worst, fisher_probability, wilson_lower
from dragoman.records.reports.source import RecordSource
from dragoman.records.reports.totals import ExchangeTotals, call_numbers

Numbers: TypeAlias = dict[str, int | float | None]
Side: TypeAlias = Literal["before", "after", "change"]
MAX_PROBABILITY: Final = 0.01
"""A change of the failed share is significant if chance alone produces it less often than this."""


class Table(msgspec.Struct, frozen=True):
    """The totals by group."""

    grouping: Grouping
    groups: dict[Group, ExchangeTotals]
    """Worst first; by day or hour first if that is the first dimension."""
    missing_until_s: float | None
    """Of exchanges before this time, labels such as the key are no longer stored with calls and times."""

    def numbers(self, totals: ExchangeTotals) -> Numbers:
        """Returns the numbers of a row; those of calls only if each tool is a group."""
        return call_numbers(totals) if self.grouping.has_tool else totals.as_row()


class Worst(msgspec.Struct, frozen=True):
    """The model and the tool whose calls fail significantly more often than those of the others."""

    model: Outlier[str] | None
    tool: Outlier[str] | None
    """Of the calls of `model`, if there is one, else of all calls."""
    unoffered: int
    """Failed calls of `model`, else of all models, of tools that were not offered."""
    counts: Counts
    """All calls."""
    has_others: bool
    """Whether calls are of several models or tools, so that there is something to compare."""


def read_table(source: RecordSource, period: Period, grouping: Grouping) -> Table:
    """Returns the totals of a period."""
    reader = Reader(source, period, grouping)
    groups = reader.read()
    missing = None if grouping.is_coarse else reader.parts.missing_until_s
    return Table(grouping, dict(sorted(groups.items(), key=lambda item: _order(grouping, *item))), missing)


BY_TOOL: Final = ("model", "tool")
"""Dimensions for `find_worst_calls`."""


def find_worst_calls(totals: Mapping[Group, ExchangeTotals]) -> Worst:
    """Returns which model and tool fail significantly more often.

    Args:
        totals: by the dimensions `BY_TOOL`.
    """
    model = find_worst(_add_up((name, each.counts) for (name, _), each in totals.items()))
    chosen = [(tool, each) for (name, tool), each in totals.items() if model is None or name == model.name]
    tools = _add_up((tool, each.counts) for tool, each in chosen if tool)
    unoffered = sum(each.counts.failed for tool, each in chosen if not tool)
    everything = _add_up(("", each.counts) for each in totals.values()).get("", Counts(0, 0))
    has_others = len({model for model, _ in totals}) > 1 or len(tools) > 1
    return Worst(model, find_worst(tools), unoffered, everything, has_others)


def compare(before: Table, after: Table) -> Iterator[tuple[Group, dict[Side, Numbers], bool]]:
    """Yields each group of two reports, with its numbers on both sides and their differences, those of `after` first.

    The last value is whether the failed share of the calls changed significantly.
    """
    groups = dict.fromkeys([*after.groups, *before.groups])
    for group in groups:
        earlier, later = before.groups.get(group, ExchangeTotals()), after.groups.get(group, ExchangeTotals())
        old, new = before.numbers(earlier), after.numbers(later)
        change: Numbers = {name: _difference(old[name], new[name]) for name in new}
        yield group, {"before": old, "after": new, "change": change}, has_changed(earlier.counts, later.counts)


def has_changed(before: Counts, after: Counts) -> bool:
    """Whether the failed share changed significantly, in either direction, by Fisher's exact test."""
    if not before.calls or not after.calls:
        return False
    more, less = (before, after) if before.share > after.share else (after, before)
    return 2 * fisher_probability(more, less) < MAX_PROBABILITY


def _difference(old: float | None, new: float | None) -> float | None:
    return None if old is None or new is None else round(new - old, 6)


def _order(grouping: Grouping, group: Group, totals: ExchangeTotals) -> tuple[object, ...]:
    errors = Counts(totals.exchanges, totals.errors)
    time = group[0] if grouping.by[:1] in (("day",), ("hour",)) else ""
    return time, -wilson_lower(totals.counts), -wilson_lower(errors), -totals.exchanges, -totals.calls, group


def _add_up(counts: Iterator[tuple[str, Counts]]) -> Mapping[str, Counts]:
    result: dict[str, Counts] = {}
    for name, each in counts:
        before = result.get(name, Counts(0, 0))
        result[name] = Counts(before.calls + each.calls, before.failed + each.failed)
    return result
