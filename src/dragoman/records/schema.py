"""Tables and views of the records. `migrations` creates them; this module describes their newest form.

    exchanges   one row for each exchange, in the order of `number`, the time at which it ended
    calls       the tool calls of an exchange, by kind
    series      the labels of exchanges: model, upstream, agent, ...; one row for each combination
    call_kinds  tool, outcome and repairs of calls; one row for each combination
    day_totals, day_calls, day_times
                sums of the exchanges of each day (UTC): kept longer than the exchanges if those reach
                `records.max_bytes`, and much faster to add up; day_totals by series, the others by
                `record.coarse_series`; day_times without exchanges that ended in an error
    exchange_view, call_view
                exchanges and calls with all labels as columns, for people and other programs

A row is small because a label is stored once: 10^6 exchanges take 0.14 GB. The key of a label row is a digest of its
content, so processes that write at the same time need not agree on numbers.
"""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
)

VERSION: Final = "001"
"""The newest revision in `migrations`; revisions are numbered."""

NUMBERS_PER_S: Final = 1_024_000_000
"""`exchanges.number` in a second: microseconds, times 1024 to tell exchanges of several processes apart."""

DAY_S: Final = 86_400
NUMBERS_PER_DAY: Final = NUMBERS_PER_S * DAY_S
HOUR_S: Final = 3_600

LABELS_LOCK: Final = 0x647261676F6D616F
"""Lock of PostgreSQL: transactions that use labels share it; one that deletes unused labels excludes them."""

_KEY: Final = BigInteger().with_variant(Integer, "sqlite")
"""SQLite stores only a column of the type INTEGER as the number of the row."""

metadata = MetaData()

series = Table(
    "series",
    metadata,
    Column("id", _KEY, primary_key=True, autoincrement=False),
    Column("version", Text, nullable=False),
    Column("dialect", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("agent", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("alias", Text, nullable=False),
    Column("upstream", Text, nullable=False),
    Column("upstream_model", Text, nullable=False),
    Column("tool_mode", Text, nullable=False),
    Column("format", Text, nullable=False),
    Column("stream", Boolean, nullable=False),
    Column("passthrough", Boolean, nullable=False),
    Column("finish", Text, nullable=False),
    Column("status", SmallInteger, nullable=False),
    Column("error", Text, nullable=False),
)

call_kinds = Table(
    "call_kinds",
    metadata,
    Column("id", _KEY, primary_key=True, autoincrement=False),
    Column("tool", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("repairs", Text, nullable=False),
)

exchanges = Table(
    "exchanges",
    metadata,
    Column("number", _KEY, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False),
    Column("series_id", BigInteger, nullable=False),
    Column("session", Text),
    Column("attempts", SmallInteger, nullable=False),
    Column("failed_attempts", Text),  # JSON: [[upstream, reason], ...]
    Column("input_tokens", Integer),
    Column("cached_tokens", Integer),
    Column("output_tokens", Integer),
    Column("reasoning_tokens", Integer),
    Column("tools_offered", Integer, nullable=False),
    Column("error_message", Text),
    Column("warnings", Text),  # JSON: [label, ...]
    Column("first_ms", Integer),
    Column("total_ms", Integer, nullable=False),
    Column("queue_ms", Integer),
    Column("prompt_ms", Integer),
    Column("cost_usd", Double),
    Column("captured", Text),
)

calls = Table(
    "calls",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("kind_id", BigInteger, primary_key=True, autoincrement=False),
    Column("series_id", BigInteger, nullable=False),
    Column("count", Integer, nullable=False),
    sqlite_with_rowid=False,
)

day_totals = Table(
    "day_totals",
    metadata,
    Column("day", Integer, primary_key=True, autoincrement=False),  # days since 1970-01-01, UTC
    Column("series_id", BigInteger, primary_key=True, autoincrement=False),
    Column("exchanges", Integer, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("total_ms", BigInteger, nullable=False),
    Column("cost_usd", Double, nullable=False),
    sqlite_with_rowid=False,
)

day_calls = Table(
    "day_calls",
    metadata,
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("series_id", BigInteger, primary_key=True, autoincrement=False),
    Column("kind_id", BigInteger, primary_key=True, autoincrement=False),
    Column("count", Integer, nullable=False),
    sqlite_with_rowid=False,
)

day_times = Table(
    "day_times",
    metadata,
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("series_id", BigInteger, primary_key=True, autoincrement=False),
    Column("bucket", SmallInteger, primary_key=True, autoincrement=False),  # of `record.bucket`
    Column("first", Integer, nullable=False),  # exchanges whose first_ms is in the bucket
    Column("total", Integer, nullable=False),  # exchanges whose total_ms is in the bucket
    sqlite_with_rowid=False,
)

_views = MetaData()
"""Not part of `metadata`, which creates tables."""

exchange_view = Table(
    "exchange_view",
    _views,
    Column("time", Double),  # when the exchange ended, in seconds since 1970
    *(Column(column.name, column.type) for column in exchanges.columns if column.name != "series_id"),
    *(Column(column.name, column.type) for column in series.columns if column.name != "id"),
)

call_view = Table(
    "call_view",
    _views,
    Column("time", Double),
    Column("number", BigInteger),
    *(Column(column.name, column.type) for column in call_kinds.columns if column.name != "id"),
    Column("count", Integer),
    *(Column(column.name, column.type) for column in series.columns if column.name != "id"),
)


def first_number(time_s: float) -> int:
    """Returns the lowest `exchanges.number` of exchanges that ended at this time, in seconds since 1970, or later."""
    return int(time_s * 1_000_000) * 1024
