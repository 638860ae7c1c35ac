"""Paths of the list of exchanges: the recorded ones, and a stream of those that run and end."""

import asyncio
import math
from collections.abc import AsyncGenerator
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dragoman.console.api import TrafficPage, TrafficRow
from dragoman.console.responses import event_stream, json_response
from dragoman.console.services import ConsoleServices
from dragoman.console.traffic.changes import RowChanges
from dragoman.console.traffic.history import read_page
from dragoman.console.traffic.rows import row_of_log, row_of_record
from dragoman.core.errors import RequestError, quote

TICK_S: Final = 0.1
"""Time between two events of the stream."""
DEFAULT_ROWS: Final = 200
MAX_ROWS: Final = 1_000


def routes(services: ConsoleServices) -> list[BaseRoute]:
    """Returns the routes.

    Args:
        services: the services of the console.
    """
    return [
        Route("/traffic", partial(_list, services)),
        Route("/traffic/stream", partial(_stream, services)),
    ]


async def _list(services: ConsoleServices, request: Request) -> Response:
    """Answers with ended exchanges, the newest first."""
    limit = int(_number(request, "limit", DEFAULT_ROWS, 1, MAX_ROWS))
    before_s = _number(request, "before", math.inf, 0, 1e11) if "before" in request.query_params else None
    captured = await asyncio.to_thread(services.captures.ids)
    rows: dict[str, TrafficRow] = {}
    if before_s is None:
        for record in reversed(services.feed.recent):
            row = row_of_record(record, f"req_{record.id}" in captured)
            rows[row.id] = row
    entries = await asyncio.to_thread(read_page, services.config, before_s, limit + 1)
    for entry in entries:
        row = row_of_log(entry, f"req_{entry.values['id']}" in captured)
        rows.setdefault(row.id, row)
    ordered = sorted(rows.values(), key=lambda row: row.began_s + (row.total_ms or 0) / 1000, reverse=True)
    return json_response(TrafficPage(rows=ordered[:limit], has_more=len(ordered) > limit))


async def _stream(services: ConsoleServices, request: Request) -> Response:
    """Answers with the rows of running exchanges, as they change, and of those that end."""
    return event_stream(services, _changes(services))


async def _changes(services: ConsoleServices) -> AsyncGenerator[tuple[str, object], None]:
    """Yields the rows that have changed; at first those of the running exchanges, whether there are any or not."""
    changes, is_first = RowChanges(services.feed), True
    with services.feed.watch() as watcher, services.other_rows() as others:
        while True:
            rows = [*changes.take(watcher), *others]
            others.clear()
            if rows or is_first:
                yield "rows", rows
            is_first = False
            await asyncio.sleep(TICK_S)


def _number(request: Request, name: str, default: float, low: float, high: float) -> float:
    """Returns a number of the query.

    Raises:
        RequestError: it is not a number in its range.
    """
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise RequestError(f"expected a number from {low:g} to {high:g}, got {quote(text)} - at {name}")
    return value
