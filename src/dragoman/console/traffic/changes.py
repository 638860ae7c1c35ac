"""The rows that have changed since the last look: of exchanges that run, and of those that have ended."""

import msgspec

from dragoman.console.api import TrafficRow
from dragoman.console.traffic.rows import row_of_record, row_of_running
from dragoman.server.observe.live_feed import FeedWatcher, LiveFeed


class RowChanges:
    """Compares the rows of one process with those that were known before."""

    def __init__(self, feed: LiveFeed) -> None:
        """Args:
        feed: the exchanges of the process.
        """
        self._feed = feed
        self._running: dict[str, TrafficRow] = {}
        """The rows of running exchanges, as they were known last."""

    def ended_since(self, time_s: float) -> list[TrafficRow]:
        """Returns the rows of exchanges that have ended since a time, in seconds since 1970."""
        recent = list(self._feed.recent)
        return [row_of_record(record, bool(record.captured)) for record in recent if record.ended_s >= time_s]

    def take(self, watcher: FeedWatcher) -> list[TrafficRow]:
        """Returns the rows that have changed since the last call, those of ended exchanges first.

        Args:
            watcher: has the exchanges that have ended since the last call.
        """
        rows = [row_of_record(record, bool(record.captured)) for record in watcher.take_ended()]
        earlier, self._running = self._running, {}
        for id, (record, capture) in list(self._feed.running.items()):
            row = row_of_running(record, capture is not None)
            if (known := earlier.get(id)) is not None:  # its beginning is computed from two clocks
                row = msgspec.structs.replace(row, began_s=known.began_s)
            self._running[id] = row
            if row != known:
                rows.append(row)
        return rows
