"""Where the use of keys is kept."""

import sys
from pathlib import Path

import pytest

from dragoman.compose import limits
from dragoman.config import Config
from dragoman.core.errors import ConfigError
from dragoman.state.config import StateConfig
from dragoman.usage_limits.config import LimitsConfig

REDIS = "redis://127.0.0.1:1/0"
DATABASE = "postgresql://user@127.0.0.1:1/name"


@pytest.mark.parametrize(
    ("state", "path", "expected"),
    [
        (StateConfig(), "usage.sqlite", "SqliteLedger"),
        (StateConfig(url=REDIS), "", "RedisLedger"),
        (StateConfig(url=REDIS.replace("redis", "valkey")), "", "RedisLedger"),
        (StateConfig(database_url=DATABASE), "", "PostgresqlLedger"),
        (StateConfig(url=REDIS, database_url=DATABASE), "", "PostgresqlLedger"),
        (StateConfig(url=REDIS, database_url=DATABASE), "usage.sqlite", "SqliteLedger"),
    ],
)
def test_shared_ledger_is_used_unless_a_file_is_named(
    tmp_path: Path, state: StateConfig, path: str, expected: str
) -> None:
    config = Config(state=state, limits=LimitsConfig(path=str(tmp_path / path) if path else ""))
    store = limits._ledger_store(config)
    assert type(store).__name__ == expected
    store.close()


def test_missing_driver_is_an_error_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "dragoman.usage_limits.ledgers.postgresql_ledger", raising=False)
    with pytest.raises(ConfigError, match=r"state.database_url needs the package psycopg, .*: pip install"):
        limits._ledger_store(Config(state=StateConfig(database_url=DATABASE)))
