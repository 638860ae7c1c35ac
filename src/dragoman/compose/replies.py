"""Connects backends that write past turns into text with those of other replicas."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.compose.state import state_store
from dragoman.config import Config
from dragoman.core.backend import Backend
from dragoman.state.config import StateConfig

if TYPE_CHECKING:
    from dragoman.backends.text_mode.shared_replies import SharedReplies


def share_replies(backends: Sequence[Backend], config: Config, shared_dir: Path | None) -> None:
    """Lets upstream servers know the replies that other replicas got, if there is a store that they share.

    Args:
        backends: The backends; those that were connected earlier may be among them.
        config: The settings.
        shared_dir: The private folder of several gateway processes; None: there is one process.

    Raises:
        ConfigError: The store of the settings cannot be used.
    """
    if config.upstreams and (shared := shared_replies(config.state, shared_dir)) is not None:
        from dragoman.backends.http.backend import HttpBackend

        for backend in backends:
            if isinstance(backend, HttpBackend):
                backend.reply_store.shared = shared


@functools.cache
def shared_replies(config: StateConfig, shared_dir: Path | None) -> "SharedReplies | None":
    """Returns the replies of all replicas; None: nothing is shared.

    Args:
        config: The settings.
        shared_dir: The private folder of several gateway processes; None: there is one process.

    Raises:
        ConfigError: The store of the settings cannot be used.
    """
    if not (config.url or config.database_url or shared_dir):
        return None
    from dragoman.backends.text_mode.shared_replies import SharedReplies

    return SharedReplies(state_store(config, shared_dir))
