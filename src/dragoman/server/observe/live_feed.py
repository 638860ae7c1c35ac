"""The exchanges of a gateway for pages that watch them: those that run, and those that have just ended."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from dragoman.records.record import ExchangeRecord
from dragoman.server.capture.recorder import CaptureRecorder
from dragoman.server.observe.access_log import AccessRecord

RECENT: Final = 500
"""Number of ended exchanges that are remembered: records of the last seconds are not in their database yet."""
MAX_WAITING: Final = 5_000
"""Maximum number of ended exchanges that wait for a watcher; the oldest are dropped."""


class RunningExchange(NamedTuple):
    """An exchange without its end."""

    record: AccessRecord
    capture: CaptureRecorder | None = None
    """What is captured of it; None: nothing."""


class FeedWatcher:
    """What one watcher has not seen yet."""

    def __init__(self) -> None:
        self._ended: deque[ExchangeRecord] = deque(maxlen=MAX_WAITING)

    def add(self, ended: ExchangeRecord) -> None:
        """An exchange has ended."""
        self._ended.append(ended)

    def take_ended(self) -> list[ExchangeRecord]:
        """Returns the exchanges that have ended since the last call."""
        return [self._ended.popleft() for _ in range(len(self._ended))]  # another thread may add some meanwhile


class LiveFeed:
    """The running exchanges of one process, and its watchers. It holds the text of captured exchanges only."""

    def __init__(self) -> None:
        self.running: dict[str, RunningExchange] = {}
        """The exchanges that run, by their id."""
        self.recent: deque[ExchangeRecord] = deque(maxlen=RECENT)
        self._watchers: set[FeedWatcher] = set()

    @property
    def watcher_count(self) -> int:
        """Number of watchers."""
        return len(self._watchers)

    def begin(self, record: AccessRecord, capture: CaptureRecorder | None) -> None:
        """An exchange begins.

        Args:
            record: what is observed of it.
            capture: what is captured of it; None: nothing.
        """
        self.running[record.id] = RunningExchange(record, capture)

    def end(self, id: str, is_recorded: bool, make: Callable[[], ExchangeRecord]) -> None:
        """An exchange has ended.

        Args:
            id: its id.
            is_recorded: whether its record was made already, so that remembering it costs nothing.
            make: returns its record.
        """
        self.running.pop(id, None)
        if self._watchers or is_recorded:
            ended = make()
            self.recent.append(ended)
            for watcher in list(self._watchers):  # another thread may add one
                watcher.add(ended)

    @contextmanager
    def watch(self) -> Iterator[FeedWatcher]:
        """Yields a watcher, which receives the exchanges that end within the block."""
        watcher = FeedWatcher()
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.remove(watcher)
