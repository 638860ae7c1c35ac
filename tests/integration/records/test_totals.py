"""Totals that are read from a database: the same as of the records one by one, whatever the period and the groups."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, delete

from dragoman.records import schema
from dragoman.records.database import locate, open_for_reading, open_for_writing
from dragoman.records.reports.grouping import Grouping
from dragoman.records.reports.period import Period
from dragoman.records.reports.read import Reader, read_totals
from dragoman.records.reports.source import RecordSource
from support.sample_records import DAY_S, START_S, sample_records, totals_of, write_records

RECORDS = list(sample_records(700))
ALWAYS = Period(0, 2**33)
GROUPINGS = {
    "model": Grouping(("model",)),
    "all coarse labels": Grouping(("model", "upstream", "mode", "format", "agent", "api", "version")),
    "day": Grouping(("day", "model")),
    "hour": Grouping(("hour", "model")),
    "tool by hour": Grouping(("tool", "hour")),
    "key": Grouping(("key", "role")),
    "status": Grouping(("status", "error", "requested")),
    "tool": Grouping(("model", "tool")),
    "tool by day": Grouping(("tool", "day")),
    "tool by key": Grouping(("key", "tool")),
    "only a model": Grouping(("agent",), {"model": "q*"}),
    "only a key": Grouping(("day", "model"), {"key": "alice"}),
    "only a tool": Grouping(("model", "tool"), {"agent": "claude-code"}, "Ba*"),
    "nothing": Grouping(("model",), {"model": "other"}),
    "everything": Grouping(()),
}
PERIODS = {
    "always": ALWAYS,
    "whole days": Period(START_S + DAY_S, START_S + 3 * DAY_S),
    "parts of days": Period(START_S + 0.3 * DAY_S, START_S + 3.4 * DAY_S),
    "part of one day": Period(START_S + 1.2 * DAY_S, START_S + 1.9 * DAY_S),
    "parts of two days": Period(START_S + 1.2 * DAY_S, START_S + 2.1 * DAY_S),
    "until now": Period(START_S + 2.5 * DAY_S, 2**33),
    "before the first record": Period(0, START_S),
    "empty": Period(START_S + DAY_S, START_S + DAY_S),
}


@pytest.fixture(scope="module")
def engine(empty_url: str) -> Iterator[Engine]:
    writing = open_for_writing(locate(empty_url))
    write_records(writing, RECORDS)
    writing.dispose()
    reading = open_for_reading(locate(empty_url))
    yield reading
    reading.dispose()


@pytest.mark.parametrize("period", PERIODS.values(), ids=PERIODS)
@pytest.mark.parametrize("grouping", GROUPINGS.values(), ids=GROUPINGS)
def test_totals_are_those_of_the_records(engine: Engine, period: Period, grouping: Grouping) -> None:
    with engine.begin() as connection:
        assert read_totals(connection, period, grouping) == totals_of(RECORDS, period, grouping)


def test_sums_of_days_remain_when_their_exchanges_are_deleted(tmp_path: Path) -> None:
    engine = open_for_writing(locate(f"sqlite:///{tmp_path}/records.sqlite"))
    write_records(engine, RECORDS)
    middle_s = START_S + 2.5 * DAY_S
    with engine.begin() as connection:
        for table in (schema.calls, schema.exchanges):
            connection.execute(delete(table).where(table.c.number < schema.first_number(middle_s)))
    with engine.begin() as connection:
        by_model = Reader(RecordSource(connection), Period(START_S, 2**33), Grouping(("model",)))
        assert by_model.read() == totals_of(RECORDS, ALWAYS, by_model.grouping)
        by_hour = read_totals(connection, Period(START_S, 2**33), Grouping(("hour",)))
        left = [record for record in RECORDS if record.ended_s >= middle_s]
        assert by_hour == totals_of(left, ALWAYS, Grouping(("hour",)))
        by_key = Reader(RecordSource(connection), Period(START_S, 2**33), Grouping(("key",)))
        totals = by_key.read()
        assert sum(each.exchanges for each in totals.values()) == len(RECORDS)
        assert sum(each.calls for each in totals.values()) < sum(count for r in RECORDS for _, count in r.calls)
        assert by_key.parts.missing_until_s == pytest.approx(middle_s, abs=DAY_S / 300)
    engine.dispose()


def test_sums_remain_when_all_exchanges_are_deleted(tmp_path: Path) -> None:
    engine = open_for_writing(locate(f"sqlite:///{tmp_path}/records.sqlite"))
    write_records(engine, RECORDS)
    with engine.begin() as connection:
        for table in (schema.calls, schema.exchanges):
            connection.execute(delete(table))
    with engine.begin() as connection:
        assert read_totals(connection, ALWAYS, Grouping(("model",))) == totals_of(RECORDS, ALWAYS, Grouping(("model",)))
    engine.dispose()


def test_database_without_records(tmp_path: Path) -> None:
    engine = open_for_writing(locate(f"sqlite:///{tmp_path}/records.sqlite"))
    with engine.begin() as connection:
        assert read_totals(connection, ALWAYS, Grouping(("model",))) == {}
    engine.dispose()
