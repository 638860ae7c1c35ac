"""Reloads of a gateway with one process."""

from collections.abc import Callable
from typing import NamedTuple

from dragoman.config import Config
from dragoman.server.app import App
from dragoman.server.reload.control import ConfigSource, ReloadControl
from dragoman.server.reload.live import LiveConfiguration, Rebuild
from dragoman.server.reload.triggers import Triggers


class Reloadable(NamedTuple):
    """A configuration that can be reloaded."""

    source: ConfigSource
    config: Config
    """The settings at the start."""
    rebuild: Rebuild


class ProcessReload:
    """Reloads the configuration of an application in this process."""

    def __init__(self, app: App, reloadable: Reloadable, stop: Callable[[int], None]) -> None:
        """Args:
        app: the application.
        reloadable: its configuration.
        stop: stops the gateway because of a signal.
        """
        source, config, rebuild = reloadable
        mode = config.server.reload
        self._live = LiveConfiguration(app, config, rebuild)
        control = ReloadControl(source, config, self._live.apply, app.count_reload)
        if mode != "off":
            app.reload = control.reload
        self._triggers = Triggers(control, mode, stop)
        self.on_sighup = self._triggers.on_sighup
        self.run = self._triggers.run

    async def close(self) -> None:
        """Closes the gateway, also what earlier configurations use.

        Raises:
            ExceptionGroup: something could not be closed.
        """
        await self._live.close()
