"""Builds the store of responses that clients can continue."""

from pathlib import Path

from dragoman.compose.state import state_store
from dragoman.config import Config
from dragoman.gateway.storage.response_store import ResponseStore
from dragoman.state.memory_store import MemoryStateStore
from dragoman.state.store import StateStore


def response_store(config: Config, shared_dir: Path | None) -> ResponseStore:
    """Returns the store: in the file of `response_store.path`, else with all other state that replicas share.

    Args:
        config: The settings.
        shared_dir: The private folder of several gateway processes; None: there is one process.

    Raises:
        ConfigError: The file or the store of the settings cannot be used.
    """
    settings = config.response_store
    return ResponseStore(_state(config, shared_dir), settings.max_responses, settings.max_bytes, settings.ttl_s)


def _state(config: Config, shared_dir: Path | None) -> StateStore:
    path = config.response_store.path
    if path:
        from dragoman.state.sqlite_store import SqliteStateStore

        return SqliteStateStore(Path(path).expanduser(), setting="response_store.path")
    store = state_store(config.state, shared_dir)
    return store if store.does_io else MemoryStateStore()  # gateways of one process share no responses
