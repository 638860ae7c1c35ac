"""Writes records to the tables, many in one transaction.

SQLAlchemy writes the statements; their values go to the driver as tuples, without the objects that SQLAlchemy would
create for each row, which take longer than everything else here.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache, partial
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from sqlalchemy import Connection, Dialect, Insert, Table
from sqlalchemy.dialects import postgresql, sqlite

from dragoman.records import schema
from dragoman.records.record import CallKind, ExchangeRecord, Series, bucket, coarse_series

_SUMS: Final = (
    "attempts",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "reasoning_tokens",
    "total_ms",
    "cost_usd",
)
"""Columns of `exchanges` that `day_totals` adds up, in its order."""
_encode_key = msgspec.msgpack.Encoder().encode
_ID_BYTES: Final = 6
"""Size of the digests: two of 10,000 series have the same one with a probability of 1 in 5 million."""
_KNOWN_LABELS: Final = 4096
_INTEGER_LIMIT: Final = 2**31 - 1
_SMALL_LIMIT: Final = 2**15 - 1

Row: TypeAlias = tuple[Any, ...]
T = TypeVar("T")


class Batch:
    """Rows of several records."""

    def __init__(self) -> None:
        self.exchanges: list[Row] = []
        self.calls: list[Row] = []
        self._series: dict[int, Row] = {}
        self._kinds: dict[int, Row] = {}
        self._totals: dict[tuple[int, int], list[float]] = {}
        self._day_calls: dict[tuple[int, int, int], int] = {}
        self._times: dict[tuple[int, int, int], list[int]] = {}

    def add(self, record: ExchangeRecord, number: int) -> None:
        """Adds a record.

        Args:
            record: The record.
            number: Its `exchanges.number`, which no other record has.
        """
        day = number // schema.NUMBERS_PER_DAY
        row, coarse = _series_rows(record.series)
        series_id, coarse_id = row[0], coarse[0]
        self._series[series_id] = row
        self._series[coarse_id] = coarse
        exchange = _exchange_row(record, number, series_id)
        self.exchanges.append(exchange)
        if record.calls:
            self._add_calls(record.calls, number, day, series_id, coarse_id)
        totals = self._totals.get((day, series_id))
        if totals is None:
            totals = self._totals[day, series_id] = [0] * (1 + len(_SUMS))
        totals[0] += 1
        for place, column in enumerate(_SUM_PLACES, 1):
            totals[place] += exchange[column] or 0
        if not record.series.error:
            self._add_time(day, coarse_id, exchange[_TOTAL_MS], 1)
            if exchange[_FIRST_MS] is not None:
                self._add_time(day, coarse_id, exchange[_FIRST_MS], 0)

    def write(self, connection: Connection) -> None:
        """Writes all rows, in the transaction of the connection."""
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock_shared({schema.LABELS_LOCK})")
        # Before the rows that refer to them, and always: another process may have deleted them as unused.
        _execute(connection, schema.series, _insert_missing, sorted(self._series.values()))
        _execute(connection, schema.call_kinds, _insert_missing, sorted(self._kinds.values()))
        _execute(connection, schema.exchanges, _insert, self.exchanges)
        _execute(connection, schema.calls, _insert, self.calls)
        # Transactions that lock rows in the same order cannot deadlock.
        _execute(connection, schema.day_totals, _add_up, sorted((*key, *sums) for key, sums in self._totals.items()))
        _execute(connection, schema.day_calls, _add_up, sorted((*key, n) for key, n in self._day_calls.items()))
        _execute(connection, schema.day_times, _add_up, sorted((*key, *counts) for key, counts in self._times.items()))

    def _add_calls(
        self, calls: Iterable[tuple[CallKind, int]], number: int, day: int, series_id: int, coarse_id: int
    ) -> None:
        counts: Counter[int] = Counter()  # kinds are unique in the table
        for kind, count in calls:
            row = _kind_row(kind)
            self._kinds[row[0]] = row
            counts[row[0]] += count
        for kind_id, count in counts.items():
            self.calls.append((number, kind_id, series_id, count))
            key = (day, coarse_id, kind_id)
            self._day_calls[key] = self._day_calls.get(key, 0) + count

    def _add_time(self, day: int, coarse_id: int, ms: int, place: int) -> None:
        key = (day, coarse_id, bucket(ms))
        counts = self._times.get(key)
        if counts is None:
            counts = self._times[key] = [0, 0]
        counts[place] += 1


def _exchange_row(record: ExchangeRecord, number: int, series_id: int) -> Row:
    cost_usd = record.cost_usd
    return (
        number,
        record.id,
        series_id,
        record.session and _text(record.session),
        min(record.attempts, _SMALL_LIMIT),
        _json(record.failed_attempts) if record.failed_attempts else None,
        _count(record.input_tokens),
        _count(record.cached_tokens),
        _count(record.output_tokens),
        _count(record.reasoning_tokens),
        record.tools_offered,
        record.error_message and _text(record.error_message),
        _json(record.warnings) if record.warnings else None,
        _count(record.first_ms),
        _count(record.total_ms),
        _count(record.queue_ms),
        _count(record.prompt_ms),
        cost_usd if cost_usd is not None and math.isfinite(cost_usd) else None,
        record.captured,
    )


_COLUMNS: Final = [column.name for column in schema.exchanges.columns]
"""The order of `_exchange_row`."""
_SUM_PLACES: Final = [_COLUMNS.index(name) for name in _SUMS]
_FIRST_MS, _TOTAL_MS = _COLUMNS.index("first_ms"), _COLUMNS.index("total_ms")


@lru_cache(_KNOWN_LABELS)
def _series_rows(series: Series) -> tuple[Row, Row]:
    """Returns the rows of the series and of its coarse series."""
    return _label_row(series), _label_row(coarse_series(series))


@lru_cache(_KNOWN_LABELS)
def _kind_row(kind: CallKind) -> Row:
    return _label_row(kind)


def _label_row(labels: Series | CallKind) -> Row:
    """Returns the row with these labels, after its key."""
    values = tuple(map(_text, msgspec.structs.astuple(labels)))
    digest = hashlib.blake2b(_encode_key(values), digest_size=_ID_BYTES).digest()
    return (int.from_bytes(digest), *values)


def _text(value: T) -> T | str:
    """Returns a text without NUL and lone surrogates, which databases refuse; other values are returned unchanged."""
    if not isinstance(value, str) or (value.isascii() and "\0" not in value):
        return value
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def _count(value: int | None) -> int | None:
    """Returns a number within the range of its column: numbers of tokens come from upstream servers."""
    return value if value is None or 0 <= value <= _INTEGER_LIMIT else max(0, min(value, _INTEGER_LIMIT))


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _execute(connection: Connection, table: Table, statement: Any, rows: Sequence[Row]) -> None:
    if rows:
        connection.exec_driver_sql(_sql(connection.dialect.name, table, statement), list(rows))


@cache
def _sql(dialect_name: str, table: Table, statement: Any) -> str:
    """Returns the text of a statement, with a place for each column of the table."""
    # Of psycopg's two styles, only `format` takes tuples.
    new: Any = partial(postgresql.dialect, paramstyle="format") if dialect_name == "postgresql" else sqlite.dialect
    dialect: Dialect = new()
    return str(statement(dialect_name, table).compile(dialect=dialect))


def _insert(dialect_name: str, table: Table) -> Insert:
    return table.insert()


def _insert_missing(dialect_name: str, table: Table) -> Insert:
    insert: Insert = _upsert(dialect_name, table).on_conflict_do_nothing()
    return insert


def _add_up(dialect_name: str, table: Table) -> Insert:
    """Inserts rows, or adds their values to the existing ones."""
    new = _upsert(dialect_name, table)
    sums = {column: column + new.excluded[column.name] for column in table.columns if not column.primary_key}
    keys = [column.name for column in table.primary_key]
    insert: Insert = new.on_conflict_do_update(index_elements=keys, set_=sums)
    return insert


def _upsert(dialect_name: str, table: Table) -> Any:
    return postgresql.insert(table) if dialect_name == "postgresql" else sqlite.insert(table)
