"""Builds the store of the state that replicas share."""

import functools
from pathlib import Path
from typing import Final

from dragoman import extras
from dragoman.core.errors import ConfigError
from dragoman.state.config import StateConfig
from dragoman.state.memory_store import MemoryStateStore
from dragoman.state.store import StateStore

_FILE_NAME: Final = "state.sqlite"


@functools.cache
def state_store(config: StateConfig, shared_dir: Path | None) -> StateStore:
    """Returns the store that the settings name; a process has one for the same settings. Servers are not connected yet.

    Args:
        config: The settings.
        shared_dir: The private folder of several gateway processes of this machine; None: there is one process.

    Raises:
        ConfigError: A package is missing, a URL cannot be parsed, or the file cannot be created.
    """
    if config.database_url and config.url:
        from dragoman.state.tiered_store import TieredStateStore

        return TieredStateStore(durable=_postgresql(config.database_url), other=_redis(config.url))
    if config.database_url:
        return _postgresql(config.database_url)
    if config.url:
        return _redis(config.url)
    if shared_dir is None:
        return MemoryStateStore()
    from dragoman.state.sqlite_store import SqliteStateStore

    return SqliteStateStore(shared_dir / _FILE_NAME, survives_power_loss=False)


def _redis(url: str) -> StateStore:
    try:
        from dragoman.state.redis_store import RedisStateStore

        return RedisStateStore(url)
    except ImportError:
        raise _missing("redis", "state.url") from None


def _postgresql(url: str) -> StateStore:
    try:
        from dragoman.state.postgresql_store import PostgresqlStateStore

        return PostgresqlStateStore(url)
    except ImportError:
        raise _missing("psycopg", "state.database_url") from None


def _missing(package: str, setting: str) -> ConfigError:
    command = extras.install_command("state")
    return ConfigError(f"{setting} needs the package {package}, which is not installed: {command}")
