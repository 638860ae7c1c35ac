"""Paths of the reports, and of the API keys."""

import time
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dragoman.console.reports.keys import read_keys_view
from dragoman.console.reports.over_time import ReportQuestion, ReportReader
from dragoman.console.responses import json_response
from dragoman.console.services import ConsoleServices
from dragoman.core.errors import RequestError, nearest, quote
from dragoman.records.reports.grouping import DIMENSIONS, TIMES

MAX_DAYS: Final = 366
_DEFAULT_DAYS: Final = "7"
_BY: Final = tuple(name for name in DIMENSIONS if name not in TIMES)
_FILTERS: Final = ("model", "upstream", "agent", "role", "key", "version")
_MAX_PATTERN_CHARS: Final = 100


def routes(services: ConsoleServices) -> list[BaseRoute]:
    """Returns the routes.

    Args:
        services: the services of the console.
    """
    reader = ReportReader(services.config)
    return [
        Route("/reports", partial(_report, reader)),
        Route("/keys", partial(_keys, services)),
    ]


async def _report(reader: ReportReader, request: Request) -> Response:
    """Answers with a report over time: `?by=model&days=7`, and patterns such as `&agent=claude*`."""
    query = request.query_params
    by = query.get("by", "model")
    if by not in _BY:
        raise RequestError(f"expected one of {', '.join(_BY)}, got {quote(by)}{nearest(by, _BY)} - at by")
    text = query.get("days", _DEFAULT_DAYS)
    if not (text.isascii() and text.isdecimal() and len(text) < 5 and 1 <= int(text) <= MAX_DAYS):
        raise RequestError(f"expected a number of days from 1 to {MAX_DAYS}, got {quote(text)} - at days")
    only = []
    for name in _FILTERS:
        pattern = query.get(name, "*")
        if len(pattern) > _MAX_PATTERN_CHARS:
            raise RequestError(f"expected at most {_MAX_PATTERN_CHARS} characters, got {len(pattern)} - at {name}")
        if pattern not in ("", "*"):
            only.append((name, pattern))
    return json_response(await reader.read(ReportQuestion(by=by, days=int(text), only=tuple(only))))


async def _keys(services: ConsoleServices, request: Request) -> Response:
    """Answers with the named keys, their limits and their use."""
    return json_response(await read_keys_view(services.app.snapshot.keys, services.limits, time.time()))
