"""Divides a period into whole days, for which there are sums, and the rest, for which single exchanges are read."""

from typing import NamedTuple

import msgspec
from sqlalchemy import Connection, func, select

from dragoman.records import schema


class Period(msgspec.Struct, frozen=True):
    """A period of time, in seconds since 1970; the end is not part of it."""

    begin_s: float
    end_s: float


class PeriodPart(NamedTuple):
    """A part of a period; the end is not part of it."""

    is_days: bool
    """Whether begin and end are days since 1970, and not numbers of exchanges."""
    begin: int
    end: int


class PeriodParts(NamedTuple):
    """The parts of a period."""

    mixed: list[PeriodPart]
    """With the sums of whole days."""
    single: list[PeriodPart]
    """The period as single exchanges only."""
    missing_until_s: float | None
    """Of exchanges before this time, only the sums by day are stored; None: all single exchanges are."""


def find_parts(connection: Connection, period: Period) -> PeriodParts:
    """Returns the parts of a period.

    A day whose other exchanges are no longer stored, or do not exist yet, counts as a whole day.
    """
    numbers = schema.exchanges.c.number
    oldest, newest = connection.execute(select(func.min(numbers), func.max(numbers))).one()
    begin, end = schema.first_number(period.begin_s), schema.first_number(period.end_s)
    undivided = PeriodPart(False, begin, max(begin, end))
    first_day = connection.execute(select(func.min(schema.day_totals.c.day))).scalar()
    if oldest is None:
        days = PeriodPart(True, begin // schema.NUMBERS_PER_DAY, -(-end // schema.NUMBERS_PER_DAY))
        return PeriodParts([days], [undivided], period.end_s if first_day is not None else None)
    has_sums_only = first_day < oldest // schema.NUMBERS_PER_DAY and begin < oldest
    begin_day = begin // schema.NUMBERS_PER_DAY if begin <= oldest else -(-begin // schema.NUMBERS_PER_DAY)
    end_day = -(-end // schema.NUMBERS_PER_DAY) if end > newest else end // schema.NUMBERS_PER_DAY
    missing_until_s = oldest / schema.NUMBERS_PER_S if has_sums_only else None
    if begin_day >= end_day:
        return PeriodParts([undivided], [undivided], missing_until_s)
    edges = [
        PeriodPart(False, begin, begin_day * schema.NUMBERS_PER_DAY),
        PeriodPart(True, begin_day, end_day),
        PeriodPart(False, end_day * schema.NUMBERS_PER_DAY, end),
    ]
    return PeriodParts([span for span in edges if span.begin < span.end], [undivided], missing_until_s)
