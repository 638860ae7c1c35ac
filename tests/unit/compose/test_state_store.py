"""Which store the settings select."""

import sys
from pathlib import Path

import pytest

from dragoman import extras
from dragoman.compose.state import state_store
from dragoman.config.values import is_secret_setting
from dragoman.core.errors import ConfigError
from dragoman.state.config import StateConfig
from dragoman.state.memory_store import MemoryStateStore
from dragoman.state.postgresql_store import PostgresqlStateStore
from dragoman.state.redis_store import RedisStateStore
from dragoman.state.sqlite_store import SqliteStateStore
from dragoman.state.tiered_store import TieredStateStore


def test_process_without_settings_keeps_its_state_in_memory() -> None:
    assert isinstance(state_store(StateConfig(), None), MemoryStateStore)
    assert state_store(StateConfig(), None) is state_store(StateConfig(), None)


def test_processes_of_one_machine_share_a_file(tmp_path: Path) -> None:
    store = state_store(StateConfig(), tmp_path)
    assert isinstance(store, SqliteStateStore)
    assert (tmp_path / "state.sqlite").stat().st_mode & 0o777 == 0o600
    store.close()


def test_database_has_durable_state_and_redis_the_rest() -> None:
    database_url = "postgresql://u:secret@nowhere.invalid/db"
    assert isinstance(state_store(StateConfig(database_url=database_url), None), PostgresqlStateStore)
    both = state_store(StateConfig(url="redis://nowhere.invalid", database_url=database_url), None)
    assert isinstance(both, TieredStateStore)
    both.close()


@pytest.mark.parametrize("url", ["redis://h/0?socket_timeout=secret", "redis://h/0?unknown=secret"])
def test_wrong_options_of_a_url_are_errors_without_secrets(url: str) -> None:
    with pytest.raises(ConfigError, match=r"expected a URL like redis://.* - at state\.url") as caught:
        state_store(StateConfig(url=url), None)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["redis", "rediss", "valkey", "valkeys"])
def test_server_is_not_connected_before_its_use(tmp_path: Path, scheme: str) -> None:
    store = state_store(StateConfig(url=f"{scheme}://:secret@nowhere.invalid:1/0"), tmp_path)
    assert isinstance(store, RedisStateStore)
    assert not list(tmp_path.iterdir())


def test_missing_file_system_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"expected a writable SQLite file, got .*/missing/state.sqlite: No such file"
    ):
        state_store(StateConfig(), tmp_path / "missing")


def test_urls_with_passwords_are_secret_settings() -> None:
    assert is_secret_setting("state.url", "redis://:pw@host/0")
    assert is_secret_setting("state.url", "redis://host/0?password=pw")
    assert is_secret_setting("state.database_url", "postgresql://user:pw@host/db")
    assert is_secret_setting("state.database_url", "postgresql://host/db?password=pw")


def test_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigError, match=r"state\.url needs the package redis, which is not installed: ") as caught:
        state_store(StateConfig(url="redis://host-of-this-test/0"), None)
    assert str(caught.value).endswith(extras.install_command("state"))
