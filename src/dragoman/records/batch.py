"""Writes records to the tables, many in one transaction."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

from dragoman.records import schema
from dragoman.records.record import CallKind, ExchangeRecord, Series, bucket

_SUMS: Final = (
    "attempts",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "reasoning_tokens",
    "total_ms",
    "cost_usd",
)
_encode_key = msgspec.msgpack.Encoder().encode
_ID_BYTES: Final = 6
"""Size of the digests: two of 10,000 series have the same one with a probability of 1 in 5 million."""

_INTEGER_LIMIT: Final = 2**31 - 1
_SMALL_LIMIT: Final = 2**15 - 1

Row: TypeAlias = dict[str, Any]
T = TypeVar("T")


class Batch:
    """Rows of several records."""

    def __init__(self) -> None:
        self.exchanges: list[Row] = []
        self.calls: list[Row] = []
        self._ids: dict[Series | CallKind, int] = {}
        self._series: dict[int, Row] = {}
        self._kinds: dict[int, Row] = {}
        self._totals: dict[tuple[int, int], list[float]] = {}
        self._day_calls: Counter[tuple[int, int, int]] = Counter()
        self._first: Counter[tuple[int, int, int]] = Counter()
        self._total: Counter[tuple[int, int, int]] = Counter()

    def add(self, record: ExchangeRecord, number: int) -> None:
        """Adds a record.

        Args:
            record: The record.
            number: Its `exchanges.number`, which no other record has.
        """
        series_id = self._ids.get(record.series) or self._id(record.series, self._series)
        day = number // (schema.NUMBERS_PER_S * schema.DAY_S)
        row = _exchange_row(record, number, series_id)
        self.exchanges.append(row)
        counts: Counter[int] = Counter()  # kinds are unique in the table
        for kind, count in record.calls:
            counts[self._ids.get(kind) or self._id(kind, self._kinds)] += count
        for kind_id, count in counts.items():
            self.calls.append({"number": number, "kind_id": kind_id, "series_id": series_id, "count": count})
            self._day_calls[day, series_id, kind_id] += count
        self._add_to_day(row, day, series_id)

    def write(self, connection: Connection) -> None:
        """Writes all rows, in the transaction of the connection."""
        # Before the rows that refer to them, and always: another process may have deleted them as unused.
        _insert_missing(connection, schema.series, self._series)
        _insert_missing(connection, schema.call_kinds, self._kinds)
        connection.execute(schema.exchanges.insert(), self.exchanges)
        if self.calls:
            connection.execute(schema.calls.insert(), self.calls)
        totals = [
            dict(zip(("day", "series_id", "exchanges", *_SUMS), (*key, *sums), strict=True))
            for key, sums in self._totals.items()
        ]
        _add_up(connection, schema.day_totals, totals)
        _add_up(connection, schema.day_calls, _rows(("day", "series_id", "kind_id"), count=self._day_calls))
        times = _rows(("day", "series_id", "bucket"), first=self._first, total=self._total)
        _add_up(connection, schema.day_times, times)

    def _id(self, labels: Series | CallKind, rows: dict[int, Row]) -> int:
        """Returns the key of the row with these labels, which becomes one of the rows."""
        row = {name: _text(value) for name, value in msgspec.structs.asdict(labels).items()}
        content = _encode_key(list(row.values()))
        id = self._ids[labels] = int.from_bytes(hashlib.blake2b(content, digest_size=_ID_BYTES).digest()) or 1
        rows[id] = {"id": id, **row}
        return id

    def _add_to_day(self, row: Row, day: int, series_id: int) -> None:
        totals = self._totals.setdefault((day, series_id), [0] * (1 + len(_SUMS)))
        for place, value in enumerate((1, *(row[name] or 0 for name in _SUMS))):
            totals[place] += value
        self._total[day, series_id, bucket(row["total_ms"])] += 1
        if row["first_ms"] is not None:
            self._first[day, series_id, bucket(row["first_ms"])] += 1


def _exchange_row(record: ExchangeRecord, number: int, series_id: int) -> Row:
    return {
        "number": number,
        "id": record.id,
        "series_id": series_id,
        "session": _text(record.session),
        "attempts": min(record.attempts, _SMALL_LIMIT),
        "failed_attempts": _json(record.failed_attempts),
        "input_tokens": _count(record.input_tokens),
        "cached_tokens": _count(record.cached_tokens),
        "output_tokens": _count(record.output_tokens),
        "reasoning_tokens": _count(record.reasoning_tokens),
        "tools_offered": record.tools_offered,
        "error_message": _text(record.error_message),
        "warnings": _json(record.warnings),
        "first_ms": _count(record.first_ms),
        "total_ms": _count(record.total_ms),
        "queue_ms": _count(record.queue_ms),
        "prompt_ms": _count(record.prompt_ms),
        "cost_usd": record.cost_usd if record.cost_usd is not None and math.isfinite(record.cost_usd) else None,
        "captured": _text(record.captured),
    }


def _text(value: T) -> T | str:
    """Returns a text without NUL and lone surrogates, which databases refuse; other values are returned unchanged."""
    if not isinstance(value, str) or (value.isascii() and "\0" not in value):
        return value
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def _count(value: int | None) -> int | None:
    """Returns a number within the range of its column: numbers of tokens come from upstream servers."""
    return None if value is None else max(0, min(value, _INTEGER_LIMIT))


def _json(value: object) -> str | None:
    return json.dumps(value, separators=(",", ":")) if value else None


def _rows(keys: Sequence[str], **columns: Counter[tuple[int, int, int]]) -> list[Row]:
    merged = {key: dict(zip(keys, key, strict=True)) for counter in columns.values() for key in counter}
    for name, counter in columns.items():
        for key, row in merged.items():
            row[name] = counter[key]
    return list(merged.values())


def _insert_missing(connection: Connection, table: Table, rows: Mapping[int, Row]) -> None:
    if rows:
        ordered = [rows[id] for id in sorted(rows)]  # transactions that lock rows in the same order cannot deadlock
        connection.execute(_upsert(connection)(table).on_conflict_do_nothing(), ordered)


def _add_up(connection: Connection, table: Table, rows: Iterable[Row]) -> None:
    """Inserts rows, or adds their values to the existing ones."""
    keys = [column.name for column in table.primary_key]
    ordered = sorted(rows, key=lambda row: [row[key] for key in keys])
    if not ordered:
        return
    insert = _upsert(connection)(table)
    sums = {column: column + insert.excluded[column.name] for column in table.columns if not column.primary_key}
    connection.execute(insert.on_conflict_do_update(index_elements=keys, set_=sums), ordered)


def _upsert(connection: Connection) -> Any:
    return postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
