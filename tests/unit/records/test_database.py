"""Where the records are; creating, updating and refusing their tables."""

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import inspect, select

from dragoman.core.errors import ConfigError
from dragoman.records import schema
from dragoman.records.batch import Batch
from dragoman.records.database import Location, locate, open_for_reading, open_for_writing
from dragoman.records.migrate import SchemaError
from dragoman.records.record import CallKind, ExchangeRecord, Series, bucket, bucket_ms


def test_default_is_a_file_in_the_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert locate("").path == tmp_path / "dragoman" / "records.sqlite"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("sqlite:////var/lib/records.sqlite", "/var/lib/records.sqlite"),
        ("postgresql://me:secret@db/records?sslmode=require&password=secret", "postgresql+psycopg://db/records"),
        ("postgresql+psycopg://me:secret@db/records", "postgresql+psycopg://db/records"),
    ],
)
def test_display_name_has_no_password(url: str, name: str) -> None:
    assert locate(url).display_name == name


@pytest.mark.parametrize("url", ["records.sqlite", "mysql://me:secret@db/records", "sqlite://", "postgresql://"])
def test_other_urls_are_refused_without_password(url: str) -> None:
    with pytest.raises(ConfigError, match="expected '' for SQLite") as raised:
        locate(url)
    assert "secret" not in str(raised.value)


def test_migrations_create_the_schema(tmp_path: Path) -> None:
    location = locate(f"sqlite:///{tmp_path}/new/records.sqlite")
    engine = open_for_writing(location)
    found = inspect(engine)
    for table in (*schema.metadata.tables.values(), schema.exchange_view, schema.call_view):
        assert [column["name"] for column in found.get_columns(table.name)] == [c.name for c in table.columns]
    for table in schema.metadata.tables.values():
        assert [
            (column["name"], str(column["type"]), column["nullable"]) for column in found.get_columns(table.name)
        ] == [(c.name, str(c.type.compile(engine.dialect)), c.nullable) for c in table.columns]
    engine.dispose()
    assert location.path is not None
    assert location.path.stat().st_mode & 0o777 == 0o600
    assert location.path.parent.stat().st_mode & 0o777 == 0o700


def test_current_tables_are_opened_without_alembic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    location = locate(f"sqlite:///{tmp_path}/records.sqlite")
    open_for_writing(location).dispose()
    monkeypatch.setattr("dragoman.records.migrate._upgrade", lambda _: pytest.fail("upgraded again"))
    open_for_writing(location).dispose()


def test_newer_tables_are_refused(tmp_path: Path) -> None:
    location = locate(f"sqlite:///{tmp_path}/records.sqlite")
    open_for_writing(location).dispose()
    _stamp(location, "002")
    with pytest.raises(SchemaError, match=r"expected tables of revision 001 or older, got 002.*update Dragoman"):
        open_for_writing(location)
    with pytest.raises(ConfigError, match="got 002"):
        open_for_reading(location)


def test_reading_needs_the_file_and_its_tables(tmp_path: Path) -> None:
    location = locate(f"sqlite:///{tmp_path}/records.sqlite")
    with pytest.raises(ConfigError, match="got no such file"):
        open_for_reading(location)
    sqlite3.connect(tmp_path / "records.sqlite").close()
    with pytest.raises(ConfigError, match="got no tables"):
        open_for_reading(location)
    (tmp_path / "records.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(ConfigError, match="file is not a database"):
        open_for_reading(location)


def test_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    location = locate(f"sqlite:///{tmp_path}/records.sqlite")
    writing = open_for_writing(location)
    series = Series(version="1", model="m\0\ud800", key="alice", stream=True, status=200)
    calls = [(CallKind("read", "valid"), 2), (CallKind("read", "repaired", "a,b"), 1), (CallKind("read", "valid"), 1)]
    record = ExchangeRecord(
        1_790_000_000.5, "ab" * 12, series, calls, attempts=2, input_tokens=10**12, total_ms=1500, cost_usd=float("inf")
    )
    batch = Batch()
    batch.add(record, schema.first_number(record.ended_s))
    batch.add(record, schema.first_number(record.ended_s) + 1)
    with writing.begin() as connection:
        batch.write(connection)
    reading = open_for_reading(location)
    with reading.begin() as connection:
        row = connection.execute(select(schema.exchange_view)).mappings().first()
        assert row is not None
        assert row["time"] == record.ended_s
        assert (row["model"], row["key"], row["stream"]) == ("m\ufffd?", "alice", True)
        assert (row["input_tokens"], row["cost_usd"], row["first_ms"]) == (2**31 - 1, None, None)
        found = connection.execute(select(schema.call_view.c["tool", "outcome", "repairs", "count"])).all()
        assert sorted(map(tuple, found)) == sorted([("read", "repaired", "a,b", 1), ("read", "valid", "", 3)] * 2)
        totals = connection.execute(select(schema.day_totals)).mappings().one()
        assert (totals["day"], totals["exchanges"], totals["attempts"]) == (20717, 2, 4)
        times = connection.execute(select(schema.day_times)).mappings().one()
        assert (times["bucket"], times["first"], times["total"]) == (bucket(1500), 0, 2)
    writing.dispose()


def test_buckets_are_within_five_percent() -> None:
    for ms in (1, 10, 100, 1500, 60_000, 3_600_000):
        assert abs(bucket_ms(bucket(ms)) + 1 - (ms + 1)) <= 0.045 * (ms + 1)


def _stamp(location: Location, revision: str) -> None:
    assert location.path is not None
    connection = sqlite3.connect(location.path)
    connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    connection.commit()
    connection.close()
