"""Where the records are; creating, updating and refusing their tables."""

import sqlite3
from pathlib import Path

import pytest

from dragoman.core.errors import ConfigError
from dragoman.records.database import locate, open_for_reading, open_for_writing
from dragoman.records.record import bucket, bucket_ms


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


def test_file_is_private(tmp_path: Path) -> None:
    location = locate(f"sqlite:///{tmp_path}/new/records.sqlite")
    engine = open_for_writing(location)
    with engine.begin() as connection:
        assert connection.exec_driver_sql("PRAGMA auto_vacuum").scalar_one() == 2
    engine.dispose()
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "new").iterdir()} == {0o600}
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_current_tables_are_opened_without_alembic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    location = locate(f"sqlite:///{tmp_path}/records.sqlite")
    open_for_writing(location).dispose()
    monkeypatch.setattr("dragoman.records.migrate._upgrade", lambda _: pytest.fail("upgraded again"))
    open_for_writing(location).dispose()


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


def test_buckets_are_within_five_percent() -> None:
    for ms in (1, 10, 100, 1500, 60_000, 3_600_000):
        assert abs(bucket_ms(bucket(ms)) + 1 - (ms + 1)) <= 0.045 * (ms + 1)
