"""What the pages of the console need of the gateway."""

from dragoman.config import Config
from dragoman.console.captures import ConsoleCaptures
from dragoman.server.app import App
from dragoman.server.observe.live_feed import LiveFeed
from dragoman.server.reload.control import ConfigSource
from dragoman.usage_limits.admission import UsageLimits


class ConsoleServices:
    """The parts of one gateway process that its console shows. It begins nothing by itself."""

    def __init__(
        self,
        app: App,
        config: Config,
        feed: LiveFeed,
        source: ConfigSource | None = None,
        limits: UsageLimits | None = None,
    ) -> None:
        """Args:
        app: the gateway.
        config: its settings at the start.
        feed: its running exchanges.
        source: where the settings are read again; None: they cannot be.
        limits: the use of API keys; None: nothing counts it.
        """
        self.app, self.config, self.feed = app, config, feed
        self.source, self.limits = source, limits
        self.captures = ConsoleCaptures(app, config.capture.filter, feed)
        self.open_streams = 0
        """Number of responses that are streams."""
