"""Totals over time: of all exchanges of a period, and of those of each group, by hour or by day."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from dragoman.records import schema
from dragoman.records.reports.grouping import Grouping
from dragoman.records.reports.period import Period
from dragoman.records.reports.report import BY_TOOL, Worst, find_worst_calls, read_table
from dragoman.records.reports.source import RecordSource
from dragoman.records.reports.totals import ExchangeTotals

Step: TypeAlias = Literal["hour", "day"]

_HOURS_UP_TO_DAYS: Final = 2
"""Length of the longest period that is divided by hours."""
_STEPS_S: Final[Mapping[Step, int]] = {"hour": schema.HOUR_S, "day": schema.DAY_S}


class TimeAxis(NamedTuple):
    """The hours or days (UTC) of a period."""

    step: Step
    times: tuple[int, ...]
    """Begin of each hour or day, in seconds since 1970."""

    @property
    def step_s(self) -> int:
        """Seconds of an hour or a day."""
        return _STEPS_S[self.step]

    @property
    def period(self) -> Period:
        """The period: whole hours or days, also the last one, which has not ended."""
        return Period(self.times[0], self.times[-1] + self.step_s)

    def labels(self) -> list[str]:
        """Returns the times as a report by day or hour names them."""
        pattern = "%Y-%m-%d" if self.step == "day" else "%Y-%m-%dT%H:00Z"
        return [datetime.fromtimestamp(time, UTC).strftime(pattern) for time in self.times]


class TotalsOverTime(msgspec.Struct):
    """The exchanges of one group."""

    totals: ExchangeTotals
    """Of the whole period."""
    points: list[ExchangeTotals]
    """One for each time of the axis."""


class TimeSeries(msgspec.Struct, frozen=True):
    """A report over time."""

    everything: TotalsOverTime
    groups: dict[str, TotalsOverTime]
    """By the value of the label, those with the most exchanges first; by tool, those with the most calls."""
    rest: TotalsOverTime | None
    """The sum of the groups that are left out; None: there are none."""
    labels: list[str]
    """All values of the label, also of groups that are left out."""
    worst: Worst
    missing_until_s: float | None
    """Of exchanges before this time, not all numbers are stored."""


def choose_axis(days: int, now_s: float) -> TimeAxis:
    """Returns the hours of the last two days at most, or the days of a longer period; the last one is the present one.

    Args:
        days: Number of days.
        now_s: The time, in seconds since 1970.
    """
    step: Step = "hour" if days <= _HOURS_UP_TO_DAYS else "day"
    count, step_s = (days * 24 if step == "hour" else days), _STEPS_S[step]
    last = int(now_s) // step_s
    return TimeAxis(step, tuple(step_s * number for number in range(last - count + 1, last + 1)))


def read_time_series(
    source: RecordSource, axis: TimeAxis, by: str, only: Mapping[str, str], max_groups: int
) -> TimeSeries:
    """Returns the totals of the period of the axis.

    Args:
        source: The database.
        axis: The times.
        by: The label that divides the exchanges, or `tool`.
        only: Patterns by label, as for `Grouping`.
        max_groups: Number of groups after which the others are added up.
    """
    table = read_table(source, axis.period, Grouping((axis.step, by), only))
    by_name: dict[str, dict[str, ExchangeTotals]] = {}
    for (time, name), totals in table.groups.items():
        by_name.setdefault(name, {})[time] = totals
    if table.grouping.has_tool:
        undivided = read_table(source, axis.period, Grouping((axis.step,), only)).groups
        everything = over_time(axis, [{time: totals for (time,), totals in undivided.items()}])
    else:
        everything = over_time(axis, by_name.values())
    names = sorted(by_name, key=lambda name: _order(name, by_name[name]))
    cut = names if len(names) <= max_groups else names[:max_groups]
    left_out = [by_name[name] for name in names[len(cut) :]]
    return TimeSeries(
        everything=everything,
        groups={name: over_time(axis, [by_name[name]]) for name in cut},
        rest=over_time(axis, left_out) if left_out else None,
        labels=names,
        worst=find_worst_calls(read_table(source, axis.period, Grouping(BY_TOOL, only)).groups),
        missing_until_s=table.missing_until_s,
    )


def over_time(axis: TimeAxis, groups: Iterable[Mapping[str, ExchangeTotals]]) -> TotalsOverTime:
    """Returns the sum of groups, each of which has its totals by the labels of the axis."""
    points = {label: ExchangeTotals() for label in axis.labels()}
    total = ExchangeTotals()
    for group in groups:
        for label, totals in group.items():
            points[label].add(totals)
            total.add(totals)
    return TotalsOverTime(totals=total, points=list(points.values()))


def _order(name: str, group: Mapping[str, ExchangeTotals]) -> tuple[int, int, str]:
    exchanges = sum(totals.exchanges for totals in group.values())
    return -exchanges, -sum(totals.calls for totals in group.values()), name
