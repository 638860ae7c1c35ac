"""Reads single exchanges with their labels and calls, the newest first, or those that are new since the last time."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, exists, or_, select

from dragoman.records import schema
from dragoman.records.reports.grouping import Grouping, matches
from dragoman.records.reports.totals import FAILED_OUTCOMES

_MAX_PARAMETERS: Final = 30_000
"""Maximum number of values in a query; SQLite allows 32,766."""
_PAGE: Final = 500
_OVERLAP_S: Final = 60.0
"""How much later than an exchange with a later end an exchange may be written, by another process."""


class LogFilter(msgspec.Struct, frozen=True):
    """Which exchanges are listed."""

    labels: Mapping[str, str] = {}
    """Patterns such as `qwen*` by label."""
    tool: str | None = None
    """Only exchanges with a call of a tool that matches this pattern."""
    is_failed: bool = False
    """Only exchanges with an error, or with a call that the client cannot run."""
    since_s: float | None = None
    """Only exchanges that ended at this time or later, in seconds since 1970."""
    before_s: float | None = None
    """Only exchanges that ended before this time, in seconds since 1970."""


class LogCall(msgspec.Struct, frozen=True):
    """Calls of one exchange that have everything in common."""

    tool: str
    outcome: str
    repairs: list[str]
    count: int


class LogEntry(msgspec.Struct, frozen=True):
    """A recorded exchange with its labels and calls."""

    number: int
    values: Mapping[str, Any]
    """The columns of `exchanges` and `series`."""
    calls: list[LogCall]

    def as_json(self) -> dict[str, Any]:
        """Returns the exchange as values for JSON; what is not known is left out."""
        values = {name: value for name, value in self.values.items() if value not in (None, "")}
        values |= {name: json.loads(values[name]) for name in ("failed_attempts", "warnings") if name in values}
        calls = [msgspec.to_builtins(call) for call in self.calls]
        return {"ended_s": self.ended_s, "id": f"req_{values.pop('id')}", **values, "calls": calls}

    @property
    def ended_s(self) -> float:
        """When it ended, in seconds since 1970, to the millisecond."""
        return round(self.number / schema.NUMBERS_PER_S, 3)


class ExchangeLog:
    """Reads exchanges; keeps which ones it has read."""

    def __init__(self, filter: LogFilter) -> None:
        self._filter = filter
        self._seen: set[int] = set()
        """Numbers of the read exchanges of the last `_OVERLAP_S`."""

    def read_last(self, connection: Connection, limit: int) -> list[LogEntry]:
        """Returns the newest exchanges, the oldest of them first."""
        lower = None if self._filter.since_s is None else schema.first_number(self._filter.since_s)
        entries = list(_read(connection, self._filter, lower, limit))
        return entries[::-1]

    def read_new(self, connection: Connection, now_s: float) -> list[LogEntry]:
        """Returns the exchanges that were written since the last call, the oldest first; at first, none.

        Args:
            connection: the connection.
            now_s: seconds since 1970.
        """
        lower = schema.first_number(now_s - _OVERLAP_S)
        new = [entry for entry in _read(connection, self._filter, lower) if entry.number not in self._seen]
        self._seen = {number for number in self._seen if number >= lower} | {entry.number for entry in new}
        return new[::-1]


def find_exchanges(connection: Connection, id: str, limit: int = 10) -> list[LogEntry]:
    """Returns the exchanges whose id begins with this text, with or without `req_`, the newest first."""
    column = schema.exchanges.c.id
    condition = column.startswith(id.removeprefix("req_"), autoescape=True)
    return list(_entries(connection, _rows(connection, [condition], limit)))


def _read(connection: Connection, filter: LogFilter, lower: int | None, limit: int | None = None) -> Iterator[LogEntry]:
    table = schema.exchanges
    conditions: list[ColumnElement[bool]] = [] if lower is None else [table.c.number >= lower]
    if filter.before_s is not None:
        conditions.append(table.c.number < schema.first_number(filter.before_s))
    grouping = Grouping((), filter.labels)
    labels = [dict(row) for row in connection.execute(select(schema.series)).mappings()]
    ids = {row["id"] for row in labels if grouping.select(row) is not None}
    failed = {row["id"] for row in labels if row["error"] or row["status"] >= 400}
    kinds = connection.execute(select(schema.call_kinds)).all()
    if filter.labels:
        conditions.append(table.c.series_id.in_(sorted(ids)[:_MAX_PARAMETERS]))
    if filter.tool is not None:
        conditions.append(_has_call([kind.id for kind in kinds if matches(kind.tool, filter.tool)]))
    if filter.is_failed:
        kind_ids = [kind.id for kind in kinds if kind.outcome in FAILED_OUTCOMES]
        conditions.append(or_(table.c.series_id.in_(sorted(failed)[:_MAX_PARAMETERS]), _has_call(kind_ids)))
    return _entries(connection, _rows(connection, conditions, limit))


def _has_call(kind_ids: Sequence[int]) -> ColumnElement[bool]:
    calls = schema.calls
    return exists().where(calls.c.number == schema.exchanges.c.number, calls.c.kind_id.in_(kind_ids))


def _rows(
    connection: Connection, conditions: Sequence[ColumnElement[bool]], limit: int | None
) -> list[Mapping[str, Any]]:
    exchanges, series = schema.exchanges, schema.series
    names = [column for column in series.columns if column.name != "id"]
    query = select(*(column for column in exchanges.columns if column.name != "series_id"), *names)
    query = query.join_from(exchanges, series, exchanges.c.series_id == series.c.id)
    query = query.where(*conditions).order_by(exchanges.c.number.desc()).limit(limit)
    return [dict(row) for row in connection.execute(query).mappings()]


def _entries(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> Iterator[LogEntry]:
    for begin in range(0, len(rows), _PAGE):
        page = rows[begin : begin + _PAGE]
        calls = _calls(connection, [row["number"] for row in page])
        for row in page:
            values = {name: value for name, value in row.items() if name != "number"}
            yield LogEntry(row["number"], values, calls.get(row["number"], []))


def _calls(connection: Connection, numbers: Sequence[int]) -> dict[int, list[LogCall]]:
    calls, kinds = schema.calls, schema.call_kinds
    query = select(calls.c.number, kinds.c.tool, kinds.c.outcome, kinds.c.repairs, calls.c.count)
    query = query.join_from(calls, kinds, calls.c.kind_id == kinds.c.id).where(calls.c.number.in_(numbers))
    found: dict[int, list[LogCall]] = {}
    for number, tool, outcome, repairs, count in connection.execute(query.order_by(kinds.c.tool, kinds.c.outcome)):
        found.setdefault(number, []).append(LogCall(tool, outcome, repairs.split(",") if repairs else [], count))
    return found
