"""Deletes old records, a few at a time, so that other processes can write meanwhile.

Single exchanges are deleted by age and by size, the sums by day only by age.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, Table, delete, func, select, union

from dragoman.records import schema

if TYPE_CHECKING:
    from sqlalchemy import Engine

STEP: Final = 2000
"""Exchanges that one transaction deletes: some ten milliseconds."""
_PAGES: Final = 256
"""Pages of SQLite's file that one step of the vacuum frees."""
_KEPT_PAGES: Final = 64
_EXCHANGE_BYTES: Final = 230
"""Size of an exchange in PostgreSQL, with its index, estimated; its files do not shrink when rows are deleted."""
_CALL_BYTES: Final = 110
_BY_DAY: Final = (schema.day_totals, schema.day_calls, schema.day_times)


class Retention:
    """Deletes what is too old or too much; each call of `step` is one short transaction."""

    def __init__(self, engine: "Engine", keep_days: int, max_bytes: int, now_s: Callable[[], float]) -> None:
        """
        Args:
            engine: an engine that may write.
            keep_days: age in days at which everything is deleted.
            max_bytes: size above which the oldest exchanges are deleted.
            now_s: returns the seconds since 1970.
        """
        self._engine, self._keep_days, self._max_bytes, self._now_s = engine, keep_days, max_bytes, now_s
        self._has_deleted_days = False

    def step(self) -> bool:
        """Deletes a part of what is to be deleted, and returns whether there may be more."""
        oldest_day = int(self._now_s() // schema.DAY_S) - self._keep_days
        with self._engine.begin() as connection:
            limit = _step_limit(connection, oldest_day * schema.NUMBERS_PER_DAY)
            if limit is None and _size_bytes(connection) > self._max_bytes:
                limit = _step_limit(connection, None)
            if limit is not None:
                for table in (schema.exchanges, schema.calls):
                    connection.execute(delete(table).where(table.c.number < limit))
                return True
            for table in _BY_DAY:
                deleted = connection.execute(delete(table).where(table.c.day < oldest_day)).rowcount
                self._has_deleted_days = self._has_deleted_days or deleted > 0
            if self._has_deleted_days:
                self._has_deleted_days = False
                _delete_unused_labels(connection)
        return self._free_pages()

    def _free_pages(self) -> bool:
        """Returns a part of the unused pages of SQLite's file to the file system, and whether there are more."""
        if self._engine.dialect.name != "sqlite":
            return False
        with self._engine.begin() as connection:
            # Some unused pages are kept for new records.
            if _pragma(connection, "freelist_count") <= max(_KEPT_PAGES, _pragma(connection, "page_count") // 50):
                return False
            # Each step of the statement frees one page, and returns a row without columns, which SQLAlchemy rejects.
            cursor = connection.connection.cursor()
            cursor.execute(f"PRAGMA incremental_vacuum({_PAGES})")
            cursor.fetchall()
            cursor.close()
            return True


def _step_limit(connection: Connection, end: int | None) -> int | None:
    """Returns the number below which the next exchanges are deleted; None: there are none.

    Args:
        connection: the connection.
        end: the number of the first exchange to keep; None: as many as fit into one step are deleted.
    """
    number = schema.exchanges.c.number
    oldest = select(number).order_by(number).limit(STEP).subquery()
    first, last = connection.execute(select(func.min(oldest.c.number), func.max(oldest.c.number))).one()
    if first is None or (end is not None and first >= end):
        return None
    return int(last) + 1 if end is None else min(int(last) + 1, end)


def _size_bytes(connection: Connection) -> int:
    if connection.dialect.name == "sqlite":
        used = _pragma(connection, "page_count") - _pragma(connection, "freelist_count")
        return used * _pragma(connection, "page_size")
    return _count(connection, schema.exchanges) * _EXCHANGE_BYTES + _count(connection, schema.calls) * _CALL_BYTES


def _count(connection: Connection, table: Table) -> int:
    return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def _pragma(connection: Connection, name: str) -> int:
    return int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())


def _delete_unused_labels(connection: Connection) -> None:
    """Deletes series and kinds of calls that no sum of a day has; those of exchanges are among the sums."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({schema.LABELS_LOCK})")
    used_series = union(*(select(table.c.series_id) for table in _BY_DAY))
    connection.execute(delete(schema.series).where(schema.series.c.id.not_in(used_series)))
    connection.execute(
        delete(schema.call_kinds).where(schema.call_kinds.c.id.not_in(select(schema.day_calls.c.kind_id)))
    )
