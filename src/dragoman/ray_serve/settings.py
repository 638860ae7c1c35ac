"""Reads the settings of all nodes."""

import os
from pathlib import Path

import msgspec

from dragoman import compose
from dragoman import config as settings
from dragoman.config import Config
from dragoman.config.position import error_line, with_line
from dragoman.core.errors import ConfigError


def load(path: Path | None) -> tuple[Config, dict[str, str]]:
    """Returns the settings for all nodes, and where each comes from.

    Args:
        path: the settings file, or None.

    Raises:
        ConfigError: a setting is wrong; the message has its line, if that is known.
    """
    try:
        config, origin = settings.load(path, os.environ, {})
    except ConfigError as error:
        raise ConfigError(with_line(error.message, str(path), error_line(error, path))) from None
    stored, state = config.response_store, config.state
    has_shared_key = stored.seal_key or state.url or state.database_url
    if not has_shared_key and (key := compose.seal_key()):  # all replicas need the same one
        stored = msgspec.structs.replace(stored, seal_key=key.hex())
    return msgspec.structs.replace(config, response_store=stored), origin
