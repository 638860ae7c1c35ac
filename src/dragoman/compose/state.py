"""Builds the store of the state that replicas share."""

import functools
from collections.abc import Callable
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
    if config.database_url:
        raise ConfigError("expected an empty value: PostgreSQL is not supported yet - at state.database_url")
    if config.url:
        return _redis(config.url)
    if shared_dir is None:
        return MemoryStateStore()
    from dragoman.state.sqlite_store import SqliteStateStore

    return SqliteStateStore(shared_dir / _FILE_NAME, survives_power_loss=False)


def _redis(url: str) -> StateStore:
    from dragoman.state.redis_store import RedisStateStore

    return _created(lambda: RedisStateStore(url), "redis", "state.url")


def _created(create: Callable[[], StateStore], package: str, setting: str) -> StateStore:
    try:
        return create()
    except ImportError:
        command = extras.install_command("state")
        raise ConfigError(f"{setting} needs the package {package}, which is not installed: {command}") from None
