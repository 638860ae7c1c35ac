"""What the pages of the console need of the gateway."""

from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from dragoman.config import Config
from dragoman.console.api import TrafficRow
from dragoman.console.captures import ConsoleCaptures
from dragoman.console.workers import ConsoleFolder, RowReceiver, RowSender
from dragoman.server.app import App
from dragoman.server.observe.live_feed import LiveFeed
from dragoman.server.reload.control import ConfigSource
from dragoman.usage_limits.admission import UsageLimits

_MAX_WAITING: Final = 5_000
"""Maximum rows of other processes that wait for a page; the oldest are dropped."""


class ConsoleServices:
    """The parts of one gateway process that its console shows. It begins nothing by itself."""

    def __init__(
        self,
        app: App,
        config: Config,
        feed: LiveFeed,
        source: ConfigSource | None = None,
        limits: UsageLimits | None = None,
        folder: ConsoleFolder | None = None,
    ) -> None:
        """Args:
        app: the gateway.
        config: its settings at the start.
        feed: its running exchanges.
        source: where the settings are read again; None: they cannot be.
        limits: the use of API keys; None: nothing counts it.
        folder: the files by which the processes of the gateway share the console; None: there is one process.
        """
        self.app, self.feed, self._config = app, feed, config
        self.source, self.limits = source, limits
        self.captures = ConsoleCaptures(app, config.capture.filter, feed, folder)
        self._waiting: list[deque[TrafficRow]] = []
        self._receiver = None if folder is None else RowReceiver(folder, self._receive)
        if folder is not None:
            RowSender(folder, feed, self.captures.set_capturing).start()

    @property
    def config(self) -> Config:
        """The settings in force."""
        return self.app.snapshot.settings or self._config

    @contextmanager
    def other_rows(self) -> "Iterator[deque[TrafficRow]]":
        """Yields a queue that receives the rows of the gateway's other processes within the block."""
        rows: deque[TrafficRow] = deque(maxlen=_MAX_WAITING)
        with ExitStack() as opened:
            if self._receiver is not None:
                opened.enter_context(self._receiver.receiving())
            self._waiting.append(rows)
            opened.callback(self._waiting.remove, rows)
            yield rows

    def _receive(self, rows: list[TrafficRow]) -> None:
        for waiting in self._waiting:
            waiting.extend(rows)
