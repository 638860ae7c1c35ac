"""Reads the totals of a period, by groups, from the database.

Exchanges of whole days come from the sums by day, the rest of the period from single exchanges. The sums by day of
calls and times have only the labels `record.COARSE_LABELS`; a report with others, such as the key, reads single calls.
A report by hour reads single exchanges only.
"""

import math
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Integer, Table, Text, cast, func, literal, select

from dragoman.records import schema
from dragoman.records.record import BUCKETS_PER_DOUBLING
from dragoman.records.reports.grouping import Group, Grouping, matches
from dragoman.records.reports.period import Period, PeriodPart, PeriodParts, find_parts
from dragoman.records.reports.source import RecordSource
from dragoman.records.reports.totals import ExchangeTotals

_SUMS: Final = ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "attempts", "cost_usd")
"""Columns of both `exchanges` and `day_totals`, and fields of `ExchangeTotals`."""
_TIMES: Final = ("first_ms", "total_ms")
_NO_STEP: Final = 0
_MAX_PARAMETERS: Final = 500


def read_totals(connection: Connection, period: Period, grouping: Grouping) -> dict[Group, ExchangeTotals]:
    """Returns the totals by group."""
    return Reader(RecordSource(connection), period, grouping).read()


class Reader:
    """Reads the totals of one period."""

    def __init__(self, source: RecordSource, period: Period, grouping: Grouping) -> None:
        self.parts: PeriodParts = find_parts(source.connection, period)
        self._source = source
        self.grouping = grouping
        self._totals: dict[Group, ExchangeTotals] = {}
        self._cells: dict[tuple[int, int, str], ExchangeTotals] = {}
        """The totals by series, day or hour, and tool."""
        self._groups: dict[int, Group] = {}
        """Group of each series that the filters leave in."""
        self._failed: set[int] = set()
        """Series of exchanges with an error."""

    def read(self) -> dict[Group, ExchangeTotals]:
        """Returns the totals by group."""
        self._read_series()
        if not self.grouping.has_tool:
            for part in self.parts.single if self.grouping.has_hour else self.parts.mixed:
                self._read_exchanges(part)
            for part in self._detailed:
                self._read_times(part)
        for part in self._detailed:
            self._read_calls(part)
        return self._totals

    @property
    def _detailed(self) -> list[PeriodPart]:
        """The parts of calls and times."""
        return self.parts.mixed if self.grouping.is_coarse else self.parts.single

    def _read_series(self) -> None:
        for series in self._source.series:
            group = self.grouping.select(series)
            if group is not None:
                self._groups[series["id"]] = group
            if series["error"]:
                self._failed.add(series["id"])

    def _read_exchanges(self, part: PeriodPart) -> None:
        table = schema.day_totals if part.is_days else schema.exchanges
        count = func.sum(schema.day_totals.c.exchanges) if part.is_days else func.count()
        sums = (func.coalesce(func.sum(table.c[name]), 0) for name in _SUMS)
        rows = self._rows(table, part, (), (count, *sums))
        for step, series_id, exchanges, input, cached, output, reasoning, attempts, cost_usd in rows:
            totals = self._cell(series_id, step)
            if totals is None:
                continue
            totals.exchanges += int(exchanges)
            totals.errors += int(exchanges) if series_id in self._failed else 0
            totals.input_tokens += int(input)
            totals.cached_tokens += int(cached)
            totals.output_tokens += int(output)
            totals.reasoning_tokens += int(reasoning)
            totals.attempts += int(attempts)
            totals.cost_usd += cost_usd

    def _read_times(self, part: PeriodPart) -> None:
        if part.is_days:
            self._read_times_of_days(part)
            return
        table = schema.exchanges
        # As texts, of which there is one for each series: a million rows take half the time.
        texts = tuple(func.aggregate_strings(cast(_bucket(table.c[name]), Text), ",") for name in _TIMES)
        for step, series_id, *values in self._rows(table, part, (), texts):
            totals = None if series_id in self._failed else self._cell(series_id, step)
            if totals is not None:
                _count_numbers(totals.first_ms, values[0])
                _count_numbers(totals.total_ms, values[1])

    def _read_times_of_days(self, part: PeriodPart) -> None:
        table = schema.day_times
        sums = (func.sum(table.c.first), func.sum(table.c.total))
        for step, series_id, number, first, total in self._rows(table, part, (table.c.bucket,), sums):
            if (totals := self._cell(series_id, step)) is not None:
                _count(totals.first_ms, number, int(first))
                _count(totals.total_ms, number, int(total))

    def _read_calls(self, part: PeriodPart) -> None:
        kinds = self._source.kinds
        counted = {id for id, (tool, _) in kinds.items() if matches(tool, self.grouping.tool)}
        for step, series_id, kind_id, count in self._call_counts(part):
            if kind_id in counted:
                tool, outcome = kinds[kind_id]
                if (totals := self._cell(series_id, step, tool)) is not None:
                    _count(totals.outcomes, outcome, count)

    def _call_counts(self, part: PeriodPart) -> Iterator[tuple[int, int, int, int]]:
        """Yields day or hour, series, kind and number of calls."""
        table = schema.day_calls if part.is_days else schema.calls
        if not self._source.is_sqlite:
            for step, series_id, kind_id, count in self._rows(
                table, part, (table.c.kind_id,), (func.sum(table.c.count),)
            ):
                yield step, series_id, kind_id, int(count)
            return
        # Counted here: SQLite sorts the rows of a GROUP BY, which takes longer.
        query = select(self._step(table, part), table.c.series_id, table.c.kind_id, table.c.count)
        with self._source.tuples(query.where(*self._conditions(table, part))) as cursor:
            rows = Counter(cursor)
        for (step, series_id, kind_id, count), number in rows.items():
            yield step, series_id, kind_id, count * number

    def _cell(self, series_id: int, step: int, tool: str = "") -> ExchangeTotals | None:
        """Returns the totals of the group to which exchanges of this series belong; None: they are left out."""
        key = (series_id, step, tool if self.grouping.has_tool else "")
        totals = self._cells.get(key)
        if totals is None and (group := self._groups.get(series_id)) is not None:
            time = datetime.fromtimestamp(step * self._step_s, UTC)
            names = {"day": f"{time:%Y-%m-%d}", "hour": f"{time:%Y-%m-%dT%H:00Z}"}
            complete = self.grouping.complete(group, **names, tool=key[2])
            totals = self._cells[key] = self._totals.setdefault(complete, ExchangeTotals())
        return totals

    def _rows(
        self,
        table: Table,
        part: PeriodPart,
        keys: tuple[ColumnElement[Any], ...],
        sums: tuple[ColumnElement[Any], ...],
    ) -> Iterator[tuple[Any, ...]]:
        """Yields day or hour, series, the values of the keys, and the sums of the rows that share all these."""
        groups = (self._step(table, part), table.c.series_id, *keys)
        grouped = groups if self.grouping.has_times else groups[1:]
        query = select(*groups, *sums).where(*self._conditions(table, part)).group_by(*grouped)
        with self._source.tuples(query) as cursor:
            yield from cursor

    @property
    def _step_s(self) -> int:
        """Seconds of an hour or a day."""
        return schema.HOUR_S if self.grouping.has_hour else schema.DAY_S

    def _step(self, table: Table, part: PeriodPart) -> ColumnElement[Any]:
        """Returns the day or hour since 1970."""
        if not self.grouping.has_times:
            return literal(_NO_STEP).label("step")
        column = table.c.day if part.is_days else table.c.number // (schema.NUMBERS_PER_S * self._step_s)
        return column.label("step")

    def _conditions(self, table: Table, part: PeriodPart) -> Iterator[ColumnElement[bool]]:
        column = table.c.day if part.is_days else table.c.number
        yield column >= part.begin
        yield column < part.end
        if len(self._groups) < min(len(self._source.series), _MAX_PARAMETERS):
            yield table.c.series_id.in_(self._groups)


def _bucket(column: ColumnElement[int]) -> ColumnElement[int]:
    """Returns `record.bucket` of a column."""
    return cast(func.round(func.ln(column + 1) * (BUCKETS_PER_DOUBLING / math.log(2))), Integer)


def _count_numbers(histogram: dict[int, int], text: str | None) -> None:
    for number, count in Counter(text.split(",") if text else ()).items():
        _count(histogram, int(number), count)


def _count(counts: dict[Any, int], key: Any, number: int) -> None:
    if number:
        counts[key] = counts.get(key, 0) + number
