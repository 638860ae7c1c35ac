"""What holds for the records in SQLite and in PostgreSQL."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Engine, func, inspect, select, text

from dragoman.core.errors import ConfigError
from dragoman.records import schema
from dragoman.records.batch import Batch
from dragoman.records.config import RecordsConfig
from dragoman.records.database import Location, locate, open_for_reading, open_for_writing
from dragoman.records.migrate import SchemaError
from dragoman.records.record import CallKind, ExchangeRecord, Series, bucket
from dragoman.records.retention import STEP, Retention
from dragoman.records.writer import RecordWriter
from support import postgresql
from support.gateway import until

DAY_S = 86_400
NOW_S = 20_000 * DAY_S + 1000.0
VALID = CallKind("read", "valid")


@pytest.fixture(scope="module")
def new_url() -> Iterator[Callable[[], str]]:
    with postgresql.running() as server:
        yield server.new_database


@pytest.fixture(params=["sqlite", "postgresql"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "sqlite":
        return locate(f"sqlite:///{tmp_path}/records.sqlite")
    if postgresql.programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    return locate(request.getfixturevalue("new_url")())


def record(ended_s: float = NOW_S, model: str = "m", calls: int = 1) -> ExchangeRecord:
    series = Series(version="1", model=model, key="alice", stream=True, status=200)
    return ExchangeRecord(ended_s, "ab" * 12, series, [(VALID, calls)] if calls else (), input_tokens=10, total_ms=1500)


@pytest.fixture
def opened(location: Location) -> Iterator[Engine]:
    """An engine that writes to the database."""
    engine = open_for_writing(location)
    yield engine
    engine.dispose()


def write(engine: Engine, records: list[ExchangeRecord]) -> None:
    batch = Batch()
    for place, each in enumerate(records):
        batch.add(each, schema.first_number(each.ended_s) + place)
    with engine.begin() as connection:
        batch.write(connection)


def count(location: Location, *tables: str) -> list[int]:
    with open_for_reading(location).begin() as connection:
        return [connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one() for table in tables]


def test_migrations_create_the_schema(location: Location, opened: Engine) -> None:
    engine = opened
    found = inspect(engine)
    for table in (*schema.metadata.tables.values(), schema.exchange_view, schema.call_view):
        assert [column["name"] for column in found.get_columns(table.name)] == [c.name for c in table.columns]
    for table in schema.metadata.tables.values():
        assert found.get_pk_constraint(table.name)["constrained_columns"] == [c.name for c in table.primary_key]
        assert [
            (column["name"], str(column["type"].compile(engine.dialect)), column["nullable"])
            for column in found.get_columns(table.name)
        ] == [(c.name, str(c.type.compile(engine.dialect)), c.nullable) for c in table.columns]


def test_record_is_read_as_it_was_written(location: Location, opened: Engine) -> None:
    writing = opened
    series = Series(version="1", model="m\0\ud800", key="alice", stream=True, status=200)
    calls = [(VALID, 2), (CallKind("read", "repaired", "a,b"), 1), (VALID, 1)]
    written = ExchangeRecord(
        1_790_000_000.5,
        "ab" * 12,
        series,
        calls,
        session="s\0",
        attempts=2,
        failed_attempts=[("up", "UpstreamError: status 503")],
        input_tokens=10**12,
        warnings=["content_dropped: strict"],
        total_ms=1500,
        cost_usd=float("inf"),
    )
    write(writing, [written, written])
    with open_for_reading(location).begin() as connection:
        row = connection.execute(select(schema.exchange_view)).mappings().first()
        assert row is not None
        assert row["time"] == written.ended_s
        assert (row["model"], row["key"], row["stream"], row["session"]) == ("m\ufffd?", "alice", True, "s\ufffd")
        assert (row["input_tokens"], row["cost_usd"], row["first_ms"]) == (2**31 - 1, None, None)
        assert row["failed_attempts"] == '[["up","UpstreamError: status 503"]]'
        assert row["warnings"] == '["content_dropped: strict"]'
        found = connection.execute(select(schema.call_view.c["tool", "outcome", "repairs", "count"])).all()
        assert sorted(map(tuple, found)) == sorted([("read", "repaired", "a,b", 1), ("read", "valid", "", 3)] * 2)


def test_sums_of_a_day_are_those_of_all_batches(location: Location, opened: Engine) -> None:
    engine = opened
    for offset_s in (0.0, 0.5):
        records = [record(NOW_S), record(NOW_S, calls=2), record(NOW_S + DAY_S)]
        write(engine, [msgspec.structs.replace(each, ended_s=each.ended_s + offset_s) for each in records])
    write(engine, [record(NOW_S + 1)])
    with engine.begin() as connection:
        totals = connection.execute(select(schema.day_totals.c["day", "exchanges", "input_tokens", "total_ms"])).all()
        assert sorted(map(tuple, totals)) == [(20_000, 5, 50, 7500), (20_001, 2, 20, 3000)]
        calls = connection.execute(select(schema.day_calls.c["day", "count"])).all()
        assert sorted(map(tuple, calls)) == [(20_000, 7), (20_001, 2)]
        times = connection.execute(select(schema.day_times.c["day", "bucket", "first", "total"])).all()
        assert sorted(map(tuple, times)) == [(20_000, bucket(1500), 0, 5), (20_001, bucket(1500), 0, 2)]


def test_several_writers_create_and_fill_the_same_database(location: Location) -> None:
    writers = [RecordWriter(RecordsConfig(url=location.url), lambda: NOW_S, batch_delay_s=0) for _ in range(3)]
    for writer in writers:
        for place in range(200):
            writer.add(record(NOW_S, model=f"m{place % 5}"))
    threads = [threading.Thread(target=writer.close, args=(60,)) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [writer.dropped for writer in writers] == [0, 0, 0]
    assert count(location, "exchanges", "calls", "call_kinds") == [600, 600, 1]
    with open_for_reading(location).begin() as connection:
        assert connection.execute(select(func.sum(schema.day_totals.c.exchanges))).scalar_one() == 600


def test_newer_tables_are_refused(location: Location, caplog: pytest.LogCaptureFixture) -> None:
    engine = open_for_writing(location)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '002'")
    engine.dispose()
    with pytest.raises(SchemaError, match=r"expected tables of revision 001 or older, got 002.*update Dragoman"):
        open_for_writing(location)
    with pytest.raises(ConfigError, match="got 002"):
        open_for_reading(location)
    writer = RecordWriter(RecordsConfig(url=location.url), batch_delay_s=0)
    writer.add(record())
    writer.close(60)
    assert writer.dropped == 1
    (line,) = [each.getMessage() for each in caplog.records]
    assert "got 002" in line
    assert "they are dropped, requests are not affected" in line


def test_old_records_are_deleted(location: Location, opened: Engine) -> None:
    engine = opened
    days = [record(NOW_S - age * DAY_S, model=f"m{age}") for age in (40, 31, 30, 29, 0)]
    write(engine, days)
    finish(Retention(engine, 30, 10**9, lambda: NOW_S))
    assert count(location, "exchanges", "calls", "day_totals", "day_calls", "day_times") == [3, 3, 3, 3, 3]
    with engine.begin() as connection:  # each exchange has a series and its coarse one
        assert set(connection.execute(select(schema.series.c.model)).scalars()) == {"m30", "m29", "m0", ""}


def test_oldest_exchanges_are_deleted_above_the_maximum_size(location: Location, opened: Engine) -> None:
    engine = opened
    for begin in range(0, 6 * STEP, STEP):
        write(engine, [record(NOW_S - 100 + (begin + place) / 1e3) for place in range(STEP)])
    finish(Retention(engine, 30, 1024 * 1024, lambda: NOW_S))
    exchanges, calls, totals = count(location, "exchanges", "calls", "day_totals")
    assert 0 < exchanges == calls < 6 * STEP
    assert totals == 1
    with engine.begin() as connection:
        assert connection.execute(select(func.sum(schema.day_totals.c.exchanges))).scalar_one() == 6 * STEP


def test_file_becomes_smaller(tmp_path: Path) -> None:
    location = locate(f"sqlite:///{tmp_path}/records.sqlite")
    engine = open_for_writing(location)
    for begin in range(0, 10 * STEP, STEP):
        write(engine, [record(NOW_S - 9e6 + (begin + place) / 1e3) for place in range(STEP)])
    path = tmp_path / "records.sqlite"
    engine.dispose()
    before = path.stat().st_size
    engine = open_for_writing(location)
    finish(Retention(engine, 30, 10**9, lambda: NOW_S))
    engine.dispose()
    assert path.stat().st_size < before / 4


def test_writer_deletes_old_records(location: Location, opened: Engine) -> None:
    write(opened, [record(NOW_S - 31 * DAY_S)])
    writer = RecordWriter(RecordsConfig(url=location.url, keep_days=30), lambda: NOW_S, batch_delay_s=0)
    writer.add(record())
    until(lambda: count(location, "exchanges") == [1], "only the new exchange")
    writer.close(60)


def finish(retention: Retention) -> None:
    while retention.step():
        pass
