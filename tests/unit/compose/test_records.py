"""Where the settings put the records."""

from pathlib import Path

from dragoman.compose.records import record_writer, records_url
from dragoman.config import Config
from dragoman.records.config import RecordsConfig
from dragoman.state.config import StateConfig

SHARED = "postgresql://u@db.invalid/dragoman"


def test_records_are_in_the_database_of_the_replicas() -> None:
    assert records_url(Config(state=StateConfig(database_url=SHARED))) == SHARED


def test_own_url_of_records_wins(tmp_path: Path) -> None:
    own = f"sqlite:///{tmp_path}/records.sqlite"
    assert records_url(Config(state=StateConfig(database_url=SHARED), records=RecordsConfig(url=own))) == own


def test_redis_has_no_records() -> None:
    assert records_url(Config(state=StateConfig(url="redis://cache.invalid"))) == ""


def test_records_that_are_off_need_no_database() -> None:
    config = Config(state=StateConfig(database_url=SHARED), records=RecordsConfig(enabled=False))
    assert record_writer(config) is None
