"""What the supervisor passes to each process that it starts, except at its command line, which other users can read."""

import os
from pathlib import Path
from typing import Any

import msgspec

from dragoman.cli._log_format import LogFormat
from dragoman.config import Config
from dragoman.server.reload.control import ConfigSource


class Plan(msgspec.Struct, frozen=True):
    """The settings of all processes."""

    config: Config
    embedded: bool
    """Whether the embedded model is served."""
    log_format: LogFormat
    debug: bool
    weights: str = ""
    """The file of the embedded model."""
    shared_dir: str = ""
    """The private folder of all processes."""
    sockets: tuple[int, ...] = ()
    """File descriptors of the bound sockets, for gateway processes."""
    settings_path: str = ""
    """The settings file; empty: the gateway has none."""
    flags: dict[str, Any] = {}
    """Settings from the command line, by their keys."""
    number: int = 0
    """The index of the process among the gateway processes."""

    @property
    def folder(self) -> Path:
        """The private folder of all processes."""
        return Path(self.shared_dir)

    @property
    def source(self) -> ConfigSource:
        """Where the settings come from."""
        path = Path(self.settings_path) if self.settings_path else None
        return ConfigSource(lambda: path, os.environ, self.flags, self.embedded, None)

    @property
    def has_models(self) -> bool:
        """Whether a process for models is needed."""
        return self.embedded or self.config.claude_cli.enabled


LOG_LOCK = "log.lock"
"""Name of the file in the private folder by which the processes write whole lines."""
