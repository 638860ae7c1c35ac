"""Adds the console to the application of a gateway, if its settings and packages allow it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman import extras
from dragoman.config import Config
from dragoman.config.checks import is_reachable
from dragoman.core.errors import ConfigError

if TYPE_CHECKING:  # the base install has no server, and imports this
    from dragoman.server.app import App
    from dragoman.server.reload.control import ConfigSource
    from dragoman.usage_limits.admission import UsageLimits


def serves_console(config: Config) -> bool:
    """Returns whether the gateway of these settings has a console.

    Args:
        config: the settings.

    Raises:
        ConfigError: the settings ask for it, and its extra is not installed.
    """
    enabled, is_installed = config.console.enabled, not extras.missing_extras("console")
    if enabled and not is_installed:
        raise ConfigError(f"the console needs its extra: {extras.install_command('console')} - at console.enabled")
    return is_installed and (not is_reachable(config.server) if enabled is None else enabled)


def console_installer(
    config: Config,
    source: "ConfigSource | None" = None,
    limits: "UsageLimits | None" = None,
    shared_dir: Path | None = None,
) -> "Callable[[App], None]":
    """Returns what adds the console to an application; it adds nothing if the settings disable it.

    Args:
        config: the settings.
        source: where the settings are read again; None: they cannot be.
        limits: the use of API keys; None: nothing counts it.
        shared_dir: the private folder of all processes; None: there is one process.

    Raises:
        ConfigError: the settings ask for the console, and its extra is not installed.
    """
    if not serves_console(config):
        return lambda app: None

    def install(app: "App") -> None:
        from dragoman.console.app import console_app
        from dragoman.console.services import ConsoleServices
        from dragoman.console.sessions import Sessions, session_secret
        from dragoman.console.workers import ConsoleFolder
        from dragoman.server.observe.live_feed import LiveFeed

        feed = LiveFeed()
        folder = None if shared_dir is None else ConsoleFolder(shared_dir)
        services = ConsoleServices(app, config, feed, source, limits, folder)
        app.serve_console(console_app(services, Sessions(session_secret(shared_dir))), feed)

    return install
