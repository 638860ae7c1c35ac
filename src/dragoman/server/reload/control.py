"""Reloads of the configuration, one at a time: read the settings, compare, apply, report."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from dragoman import compose
from dragoman import config as settings
from dragoman.config.changes import Changes, changes
from dragoman.config.checks import check, check_access
from dragoman.config.position import error_line
from dragoman.core.errors import ConfigError, DragomanError
from dragoman.server.reload.report import ReloadReport

log = logging.getLogger("dragoman.serve")


Stamp: TypeAlias = tuple[int, int, int] | None
"""What changes with each change of a file; None: there is no file."""


def read_stamp(path: Path | None) -> Stamp:
    """Returns what changes with each change of the file."""
    try:
        found = os.stat(path) if path else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if found else None


class ConfigSource(NamedTuple):
    """Where the settings of a gateway come from."""

    path: Callable[[], Path | None]
    """Returns the path of the settings file; None: there is none."""
    environ: Mapping[str, str]
    flags: Mapping[str, Any]
    """Settings from the command line, by their keys."""
    serves_embedded: bool
    """Whether the running gateway serves the embedded model."""
    stamp: Stamp
    """Of the file, from before the settings at the start were read."""

    def changes(self, running: settings.Config, path: Path | None) -> Changes:
        """Reads the settings, and returns what changes.

        Args:
            running: the settings in force.
            path: the settings file.

        Raises:
            ConfigError: the new settings are wrong.
        """
        new, origin = settings.load(path, self.environ, self.flags)
        found = changes(running, new)
        if compose.serves_embedded(new, origin) != self.serves_embedded:
            found = found._replace(need_restart=tuple(dict.fromkeys((*found.need_restart, "embedded"))))
        if not compose.has_upstreams(found.config) and not self.serves_embedded:
            raise ConfigError(
                "expected an upstream server, as the embedded model is not served, and only a restart changes that; "
                "got none"
            )
        try:
            check(found.config, (), origin)  # new settings next to running ones
            check_access(found.config)
        except ConfigError as error:
            waits = ", ".join(found.need_restart)
            raise ConfigError(f"{error.message}; only a restart changes {waits}" if waits else error.message) from None
        if problem := settings.readable_secrets(path, new):
            log.warning("%s", problem)
        return found


class ReloadControl:
    """Replaces the configuration of a running gateway, in one process or in several."""

    def __init__(
        self,
        source: ConfigSource,
        running: settings.Config,
        apply: Callable[[settings.Config], Awaitable[None]],
        on_report: Callable[[ReloadReport], None],
    ) -> None:
        """Args:
        source: the settings.
        running: the settings in force.
        apply: builds everything from new settings, and puts it in force; raises `DragomanError` if that fails, and
            then nothing has changed.
        on_report: called with the result of each reload.
        """
        self.source = source
        self.stamp = source.stamp
        """Of the settings file at the last reload."""
        self._running, self._apply, self._on_report = running, apply, on_report
        self._path = source.path()
        self._lock = asyncio.Lock()

    def read_stamp(self) -> Stamp:
        """Returns what changes with each change of the settings file."""
        return read_stamp(self._path or self.source.path())

    async def reload(self, cause: str) -> ReloadReport:
        """Reloads the configuration, and returns what has changed.

        Args:
            cause: what triggered it, for the log.
        """
        async with self._lock:
            path = self._path = self.source.path() or self._path  # a deleted file is an error
            self.stamp = read_stamp(path)
            report = await self._reload(path)
        level = logging.WARNING if report.result == "rejected" else logging.INFO
        log.log(level, "%s: %s", cause, report.text())
        self._on_report(report)
        return report

    async def _reload(self, path: Path | None) -> ReloadReport:
        file = str(path or "")
        try:
            found = await asyncio.to_thread(self.source.changes, self._running, path)
            if found.changed:
                await self._apply(found.config)
                self._running = found.config
        except DragomanError as error:
            line = await asyncio.to_thread(error_line, error, path) if isinstance(error, ConfigError) else 0
            return ReloadReport("rejected", file, error=error.message, line=line)
        except Exception:
            log.exception("bug: the configuration was not reloaded")
            return ReloadReport("rejected", file, error="internal error; the log has more")
        return ReloadReport("reloaded" if found.changed else "unchanged", file, found.changed, found.need_restart)
