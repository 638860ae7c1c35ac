"""Totals over time: every exchange is in one point of one group, and in the totals."""

from collections.abc import Iterator, Mapping

import pytest
from sqlalchemy import Engine

from dragoman.records.database import locate, open_for_writing
from dragoman.records.reports.grouping import Grouping
from dragoman.records.reports.period import Period
from dragoman.records.reports.reading import QueryTimeoutError, opened, snapshot
from dragoman.records.reports.source import RecordSource
from dragoman.records.reports.time_series import TimeSeries, choose_axis, read_time_series
from dragoman.records.reports.totals import ExchangeTotals
from support.sample_records import DAY_S, START_S, sample_records, totals_of, write_records

RECORDS = list(sample_records(500))
NOW_S = START_S + 3.99 * DAY_S


@pytest.fixture(scope="module")
def engine(empty_url: str) -> Iterator[Engine]:
    writing = open_for_writing(locate(empty_url))
    write_records(writing, RECORDS)
    writing.dispose()
    with opened(empty_url) as reading:
        yield reading


def read(engine: Engine, days: int, by: str, only: Mapping[str, str] | None = None, max_groups: int = 9) -> TimeSeries:
    with snapshot(engine, 60) as connection:
        return read_time_series(RecordSource(connection), choose_axis(days, NOW_S), by, only or {}, max_groups)


def test_axis_has_hours_of_two_days_and_days_of_more() -> None:
    hours, days = choose_axis(2, NOW_S), choose_axis(7, NOW_S)
    assert (hours.step_s, len(hours.times), hours.times[-1]) == (3600, 48, START_S + 3 * DAY_S + 23 * 3600)
    assert (days.step_s, len(days.times), days.times[-1]) == (DAY_S, 7, START_S + 3 * DAY_S)
    assert hours.period == Period(START_S + 2 * DAY_S, START_S + 4 * DAY_S)
    assert days.labels()[-1] == "2024-10-07"


@pytest.mark.parametrize(("days", "step"), [(2, "hour"), (3, "day")])
@pytest.mark.parametrize("by", ["model", "key"])
def test_points_are_the_totals_of_each_time(engine: Engine, days: int, step: str, by: str) -> None:
    axis, series = choose_axis(days, NOW_S), read(engine, days, by)
    expected = totals_of(RECORDS, axis.period, Grouping((step, by)))
    points = {
        (label, name): totals
        for name, group in series.groups.items()
        for label, totals in zip(axis.labels(), group.points, strict=True)
        if totals != ExchangeTotals()
    }
    assert points == expected
    assert {(name,): group.totals for name, group in series.groups.items()} == totals_of(
        RECORDS, axis.period, Grouping((by,))
    )
    assert series.everything.totals == totals_of(RECORDS, axis.period, Grouping(()))[()]
    assert series.rest is None


def test_groups_above_the_limit_are_added_up(engine: Engine) -> None:
    series = read(engine, 3, "model", max_groups=1)
    assert series.rest is not None
    assert len(series.groups) == 1
    assert len(series.labels) == 4
    (shown,) = series.groups.values()
    assert shown.totals.exchanges + series.rest.totals.exchanges == series.everything.totals.exchanges


def test_everything_of_a_report_by_tool_has_tokens(engine: Engine) -> None:
    series = read(engine, 3, "tool")
    assert set(series.groups) == {"Read", "Bash", "shell"}
    assert series.everything.totals.input_tokens > 0
    assert sum(group.totals.calls for group in series.groups.values()) == series.everything.totals.calls


def test_filters_count_for_all_numbers(engine: Engine) -> None:
    axis, series = choose_axis(3, NOW_S), read(engine, 3, "agent", {"model": "q*"})
    assert series.everything.totals == totals_of(RECORDS, axis.period, Grouping((), {"model": "q*"}))[()]


def test_query_over_the_time_limit_is_ended(engine: Engine) -> None:
    endless = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000000000) SELECT count(*) FROM n"
    )
    with pytest.raises(QueryTimeoutError, match=r"took longer than 0\.2 s"), snapshot(engine, 0.2) as connection:
        connection.exec_driver_sql(endless)
