"""Reads the attempts at upstreams that failed, the newest first."""

import json

import msgspec
from sqlalchemy import Connection, select

from dragoman.records import schema


class FailedAttempt(msgspec.Struct, frozen=True):
    """A request to an upstream that failed."""

    ended_s: float
    """When its exchange ended, in seconds since 1970."""
    id: str
    """The `x-request-id` of the exchange."""
    upstream: str
    model: str
    """The model as the upstream names it if it was asked last, else as the client does."""
    reason: str
    is_answered: bool
    """Whether the client got a response all the same."""


def read_failed_attempts(connection: Connection, since_s: float, limit: int) -> list[FailedAttempt]:
    """Returns the failed attempts of exchanges that ended at this time or later.

    Args:
        connection: the connection.
        since_s: seconds since 1970.
        limit: the maximum number of exchanges.
    """
    exchanges, series = schema.exchanges.c, schema.series.c
    query = select(
        exchanges.number,
        exchanges.id,
        exchanges.failed_attempts,
        series.upstream,
        series.model,
        series.upstream_model,
        series.error,
    )
    query = query.join_from(schema.exchanges, schema.series, exchanges.series_id == series.id)
    query = query.where(exchanges.number >= schema.first_number(since_s), exchanges.failed_attempts.is_not(None))
    found = []
    for row in connection.execute(query.order_by(exchanges.number.desc()).limit(limit)):
        ended_s = round(row.number / schema.NUMBERS_PER_S, 3)
        for upstream, reason in reversed(json.loads(row.failed_attempts)):
            model = row.upstream_model if upstream == row.upstream else row.model
            found.append(FailedAttempt(ended_s, f"req_{row.id}", upstream, model, reason, not row.error))
    return found
