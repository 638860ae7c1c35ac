"""The rows of the live list: kept by id, filtered and sorted. A bounded number of them is kept."""

from bisect import insort
from collections.abc import Iterable
from typing import Final

from dragoman.console.api import TrafficRow
from dragoman.records.reports.totals import FAILED_OUTCOMES

MAX_ROWS: Final = 10_000


class TrafficList:
    """The newest exchanges of a gateway."""

    def __init__(self, max_rows: int = MAX_ROWS) -> None:
        """Args:
        max_rows: number of rows above which the oldest are dropped.
        """
        self._max_rows = max_rows
        self._rows: dict[str, TrafficRow] = {}
        self._texts: dict[str, str] = {}
        """What a search looks at, by id."""
        self._order: list[tuple[float, str]] = []
        """Negative begin and id of each row, the newest first."""
        self.query = ""
        """Words that all must occur in a row, in any case."""
        self.only_failed = False
        self.failed_first = False
        self.is_paused = False
        self._visible: list[TrafficRow] = []
        self.new_count = 0
        """Number of rows that arrived in the pause."""

    def __len__(self) -> int:
        """Returns the number of rows, with those that a filter hides."""
        return len(self._rows)

    @property
    def visible(self) -> list[TrafficRow]:
        """The rows to show, in order."""
        return self._visible

    @property
    def is_filtered(self) -> bool:
        """Whether some rows may be hidden."""
        return bool(self.query.split()) or self.only_failed

    @property
    def running_count(self) -> int:
        """Number of exchanges that run."""
        return sum(row.state == "running" for row in self._rows.values())

    def get(self, id: str) -> TrafficRow | None:
        """Returns the row with this id; None: it was dropped."""
        return self._rows.get(id)

    def add(self, rows: Iterable[TrafficRow]) -> None:
        """Inserts rows, or replaces those with the same ids; an ended exchange does not run again."""
        for row in rows:
            earlier = self._rows.get(row.id)
            if earlier is None:
                insort(self._order, (-row.began_s, row.id))
                self.new_count += self.is_paused
            elif earlier.state != "running" and row.state == "running":
                continue
            self._rows[row.id] = row
            self._texts.pop(row.id, None)
        for _, id in self._order[self._max_rows :]:
            del self._rows[id]
            self._texts.pop(id, None)
        del self._order[self._max_rows :]
        self.update()

    def end_others(self, rows: Iterable[TrafficRow]) -> None:
        """Removes running exchanges that are not among these: they ended while there was no connection."""
        ids = {row.id for row in rows}
        removed = {row.id for row in self._rows.values() if row.state == "running" and row.id not in ids}
        if removed:
            self._order = [pair for pair in self._order if pair[1] not in removed]
            for id in removed:
                del self._rows[id]
                self._texts.pop(id, None)

    def pause(self, is_paused: bool) -> None:
        """Begins or ends a pause, in which `visible` does not change by itself."""
        self.is_paused, self.new_count = is_paused, 0
        self.update()

    def update(self, *, in_pause: bool = False) -> None:
        """Filters and sorts again.

        Args:
            in_pause: also in a pause, as the user has changed the filter.
        """
        if self.is_paused and not in_pause:
            return
        keywords = self.query.lower().split()
        rows = [self._rows[id] for _, id in self._order]
        if self.only_failed:
            rows = [row for row in rows if is_failed(row)]
        if keywords:
            rows = [row for row in rows if all(word in self._text(row) for word in keywords)]
        if self.failed_first:
            rows.sort(key=lambda row: not is_failed(row))
        self._visible = rows

    def _text(self, row: TrafficRow) -> str:
        text = self._texts.get(row.id)
        if text is None:
            values = (row.id, row.agent, row.role, row.key, row.model, row.upstream, row.upstream_model)
            more = (row.tool_mode, row.format, row.dialect, row.state, str(row.status), row.error, row.finish)
            calls = (f"{call.tool} {call.outcome} {' '.join(call.repairs)}" for call in row.calls)
            text = self._texts[row.id] = " ".join((*values, *more, *calls, *row.warnings)).lower()
        return text


def is_failed(row: TrafficRow) -> bool:
    """Returns whether an exchange has an error, or a call that the client cannot run."""
    return row.state == "failed" or any(call.outcome in FAILED_OUTCOMES for call in row.calls)
