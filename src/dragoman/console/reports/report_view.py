"""What `dragoman report` knows, as numbers over time for charts."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from dragoman.config import Config
from dragoman.console.reports.views import ReportColumns, ReportSeries, ReportsView, WorstGroup
from dragoman.console.traffic.history import records_connection
from dragoman.records.reports.report import Worst
from dragoman.records.reports.significance import Outlier
from dragoman.records.reports.source import RecordSource
from dragoman.records.reports.time_series import (
    TimeAxis,
    TimeSeries,
    TotalsOverTime,
    choose_axis,
    over_time,
    read_time_series,
)
from dragoman.records.reports.totals import FAILED_OUTCOMES, ExchangeTotals
from dragoman.records.reports.worst_text import model_sentence, other_sentences, tool_sentence

MAX_GROUPS: Final = 20
"""Groups that have a series of their own."""
MAX_LABELS: Final = 1_000


def read_report(config: Config, by: str, days: int, only: Mapping[str, str], now_s: float) -> ReportsView:
    """Returns a report; without records, one with zeros and a note.

    Args:
        config: The settings.
        by: The label that divides the exchanges.
        days: Number of days.
        only: Patterns by label.
        now_s: The time, in seconds since 1970.

    Raises:
        BackendUnavailableError: The records cannot be read.
    """
    axis = choose_axis(days, now_s)
    with records_connection(config) as connection:
        if connection is None:
            off = "Exchanges are not recorded (setting records.enabled)."
            return _view(axis, by, None, ["No exchange is recorded yet." if config.records.enabled else off])
        series = read_time_series(RecordSource(connection), axis, by, only, MAX_GROUPS)
    return _view(axis, by, series, list(_notes(axis, by, series)))


def _view(axis: TimeAxis, by: str, series: TimeSeries | None, notes: list[str]) -> ReportsView:
    """Returns the report; None: there are no records."""
    everything = over_time(axis, []) if series is None else series.everything
    groups = {} if series is None else series.groups
    all_series = [_series(name, group) for name, group in groups.items()]
    if series is not None and series.rest is not None:
        all_series.append(_series("", series.rest, is_rest=True))
    return ReportsView(
        begin_s=axis.period.begin_s,
        end_s=axis.period.end_s,
        step_s=axis.step_s,
        times=list(axis.times),
        by=by,
        labels=[] if series is None else series.labels[:MAX_LABELS],
        total=_series("", everything),
        series=all_series,
        worst=[] if series is None else list(_worst_groups(series.worst)),
        rule="" if series is None else _rule(series.worst),
        notes=notes,
    )


def _series(name: str, group: TotalsOverTime, *, is_rest: bool = False) -> ReportSeries:
    return ReportSeries(name=name, totals=_columns([group.totals]), points=_columns(group.points), is_rest=is_rest)


def _columns(totals: Sequence[ExchangeTotals]) -> ReportColumns:
    rows: list[Mapping[str, Any]] = [{**each.as_row(), **_outcomes(each)} for each in totals]
    return ReportColumns(**{name: [row[name] for row in rows] for name in ReportColumns.__struct_fields__})


def _outcomes(totals: ExchangeTotals) -> Mapping[str, int]:
    return {outcome: totals.outcomes.get(outcome, 0) for outcome in FAILED_OUTCOMES}


def _worst_groups(worst: Worst) -> Iterator[WorstGroup]:
    for kind, outlier, text in (
        ("model", worst.model, model_sentence(worst)),
        ("tool", worst.tool, tool_sentence(worst)),
    ):
        if outlier is not None:
            yield _worst_group(kind, outlier, text)


def _worst_group(kind: str, outlier: Outlier[str], text: str) -> WorstGroup:
    return WorstGroup(
        kind=kind,
        name=outlier.name,
        calls=outlier.counts.calls,
        failed=outlier.counts.failed,
        failed_share=outlier.counts.share,
        failed_share_of_others=outlier.others.share,
        probability=outlier.probability,
        text=text,
    )


def _rule(worst: Worst) -> str:
    """Returns how the worst model and tool are found, and what of it is true without one."""
    if not worst.counts.calls:
        return "There are no tool calls."
    if not worst.counts.failed:
        return "No tool call failed."
    return " ".join(other_sentences(worst))


def _notes(axis: TimeAxis, by: str, series: TimeSeries) -> Iterator[str]:
    if series.missing_until_s is not None:
        what = "numbers by hour" if axis.step == "hour" else f"calls and times by {by}"
        time = datetime.fromtimestamp(series.missing_until_s, UTC).strftime("%Y-%m-%d %H:%M")
        yield (f"Exchanges before {time} (UTC) were deleted (setting records.max_bytes); of them there are no {what}.")
    if by == "tool":
        yield "Tokens, cost and times belong to no single tool; only the total has them."
