"""A database that cannot be written: requests do not notice, the log does, and it goes on by itself."""

import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dragoman.records import database
from dragoman.records import writer as writer_module
from dragoman.records.config import RecordsConfig
from dragoman.records.database import Location, locate, open_for_writing
from dragoman.records.record import ExchangeRecord
from dragoman.records.writer import RecordWriter
from support.gateway import until

RECORD = ExchangeRecord(1_790_000_000.0, "ab" * 12, total_ms=1)


@pytest.fixture
def location(tmp_path: Path) -> Location:
    return locate(f"sqlite:///{tmp_path}/records.sqlite")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "_FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(writer_module, "_MAX_RETRY_S", 0.01)
    monkeypatch.setattr("dragoman.records.database.BUSY_TIMEOUT_S", 0.01)


@pytest.fixture
def writer(location: Location, impatient: None) -> Iterator[RecordWriter]:
    made = RecordWriter(RecordsConfig(url=location.url), batch_delay_s=0)
    yield made
    made.close(60)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def stored(location: Location) -> int:
    assert location.path is not None
    connection = sqlite3.connect(location.path)
    try:
        return int(connection.execute("SELECT count(*) FROM exchanges").fetchone()[0])
    except sqlite3.OperationalError:
        return 0
    finally:
        connection.close()


def test_locked_database_delays_records_only(
    writer: RecordWriter, location: Location, caplog: pytest.LogCaptureFixture
) -> None:
    writer.add(RECORD)
    until(lambda: stored(location) == 1)
    assert location.path is not None
    other = sqlite3.connect(location.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    began_s = time.thread_time()
    for _ in range(1000):
        writer.add(RECORD)
    assert time.thread_time() - began_s < 0.5
    until(lambda: lines(caplog))
    other.execute("ROLLBACK")
    until(lambda: len(lines(caplog)) == 2)
    other.close()
    until(lambda: stored(location) == 1001)
    assert lines(caplog) == [
        f"records cannot be written to {location.path}: database is locked; up to 10000 wait, more are dropped, "
        "requests are not affected",
        f"records are written to {location.path} again; 0 were dropped",
    ]


def test_full_queue_drops_records(
    writer: RecordWriter, location: Location, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "QUEUE_LIMIT", 5)
    assert location.path is not None
    other = sqlite3.connect(location.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    for _ in range(12):
        writer.add(RECORD)
    assert writer.dropped == 7
    assert sum("records are dropped: 5 wait" in line for line in lines(caplog)) == 1
    until(lambda: any("database is locked" in line for line in lines(caplog)))
    other.execute("ROLLBACK")
    other.close()
    until(lambda: stored(location) == 5)
    until(lambda: any("again; " in line for line in lines(caplog)))


def test_gateway_ends_in_time_while_the_database_is_locked(
    location: Location, caplog: pytest.LogCaptureFixture, impatient: None
) -> None:
    assert location.path is not None
    other = sqlite3.connect(location.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    writer = RecordWriter(RecordsConfig(url=location.url), batch_delay_s=0)
    writer.add(RECORD)
    writer.close(60)
    assert writer.dropped == 1
    assert lines(caplog)[-1] == f"1 records were not written to {location.path}"
    other.close()


@pytest.mark.parametrize(
    ("pragma", "reason"),
    [
        ("max_page_count = 1", "database or disk is full"),  # clamped to the present size
        ("query_only = ON", "attempt to write a readonly database"),  # root can write to any file
    ],
)
def test_full_disk_and_read_only_file_are_reported(
    pragma: str,
    reason: str,
    location: Location,
    impatient: None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    open_for_writing(location).dispose()
    set_up, is_broken = database._set_up, threading.Event()

    def set_up_broken(connection: sqlite3.Connection, other: object) -> None:
        set_up(connection, other)
        if is_broken.is_set():
            connection.execute(f"PRAGMA {pragma}")

    monkeypatch.setattr(database, "_set_up", set_up_broken)
    monkeypatch.setattr("dragoman.records.writer.open_for_writing", lambda at: database._engine(at))
    is_broken.set()
    writer = RecordWriter(RecordsConfig(url=location.url), batch_delay_s=0)
    writer.add(msgspec.structs.replace(RECORD, session="x" * 100_000))
    until(lambda: lines(caplog))
    is_broken.clear()
    until(lambda: len(lines(caplog)) == 2)
    writer.close(60)
    assert reason in lines(caplog)[0]
    assert "again; 0 were dropped" in lines(caplog)[1]
    assert stored(location) == 1


@pytest.mark.parametrize("kind", ["folder in place of the file", "no database"])
def test_unusable_file_is_reported_once(
    kind: str, writer: RecordWriter, location: Location, caplog: pytest.LogCaptureFixture
) -> None:
    assert location.path is not None
    if kind == "no database":
        location.path.write_bytes(b"not a database" * 1000)
    else:
        location.path.mkdir()
    for _ in range(3):
        writer.add(RECORD)
        until(lambda: lines(caplog))
    writer.close(60)
    assert writer.dropped == 3
    assert len([line for line in lines(caplog) if "cannot be written" in line]) == 1
    assert ("file is not a database" if kind == "no database" else "Is a directory") in lines(caplog)[0]


def test_no_thread_and_no_file_before_the_first_record(location: Location) -> None:
    before = threading.active_count()
    writer = RecordWriter(RecordsConfig(url=location.url))
    assert threading.active_count() == before
    writer.close()
    assert location.path is not None
    assert not location.path.exists()


def test_numbers_are_unique_and_follow_the_clock() -> None:
    numbered = writer_module._Database(RecordsConfig(), time.time)
    numbers = [numbered._next_number(ended_s) for ended_s in (5.0, 5.0, 4.9, 5.1, 100.0, 5.2)]
    assert len(set(numbers)) == 6
    assert [number // 1_024_000_000 for number in numbers] == [5, 5, 5, 5, 100, 5]
