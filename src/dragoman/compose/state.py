"""Builds the store of the state that replicas share."""

import functools
from pathlib import Path

from dragoman.core.errors import ConfigError
from dragoman.state.config import StateConfig
from dragoman.state.memory_store import MemoryStateStore
from dragoman.state.store import StateStore


@functools.cache
def state_store(config: StateConfig, shared_dir: Path | None) -> StateStore:
    """Returns the store that the settings name; a process has one for the same settings.

    Args:
        config: The settings.
        shared_dir: The private folder of several gateway processes of this machine; None: there is one process.

    Raises:
        ConfigError: A package is missing.
    """
    if config.url or config.database_url or shared_dir is not None:
        raise ConfigError("state is kept in the memory of one process only - at state.url")
    return MemoryStateStore()
