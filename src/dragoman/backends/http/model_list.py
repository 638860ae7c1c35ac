"""The list of a server's models, kept up to date: models are loaded, downloaded and removed while the server runs.

    no list yet: fetched every `RETRY_INTERVAL_S`; afterwards: every `REFRESH_INTERVAL_S`
    a client requests an unknown model: fetched at once, but at most every `RETRY_INTERVAL_S`

If the list cannot be fetched, the previous one stays.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Final, NamedTuple

from dragoman.backends.http.connection import UpstreamConnection
from dragoman.core.errors import DragomanError
from dragoman.text import json_cursor
from dragoman.text.json_cursor import Cursor, Fields
from dragoman.wire.upstream_errors import error_from_response

log = logging.getLogger("dragoman.backends.http")

RETRY_INTERVAL_S: Final = 3.0
REFRESH_INTERVAL_S: Final = 60.0


_MAX_CREATED_S: Final = 253_402_300_800
"""The year 10000: some servers send milliseconds, which are not valid dates in seconds."""


class ModelDetails(NamedTuple):
    """What a server reports of a model; empty or 0: not reported."""

    display_name: str = ""
    created: int = 0
    """Seconds since 1970."""


class ModelList:
    """The model list of one server."""

    def __init__(self, name: str, connection: UpstreamConnection, now_s: Callable[[], float] = time.monotonic) -> None:
        self.ids: tuple[str, ...] = ()
        """Model ids, in the server's order."""
        self.details: dict[str, ModelDetails] = {}
        """What else the server reports of each model."""
        self._name, self._connection, self._now_s = name, connection, now_s
        self._fetched_at_s = -RETRY_INTERVAL_S
        self._fetching: asyncio.Future[None] | None = None
        self._refreshing: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Fetches the list and starts the periodic refresh."""
        await self._fetch(quiet=False)
        self._refreshing = asyncio.ensure_future(self._refresh_loop())

    async def close(self) -> None:
        """Stops the refresh."""
        running = {task for task in (self._refreshing, self._fetching) if task is not None}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def refresh(self) -> None:
        """Fetches the list unless that was done just now; concurrent callers share one request."""
        if self._fetching is None or self._fetching.done():
            if self._now_s() - self._fetched_at_s < RETRY_INTERVAL_S:
                return
            self._fetching = asyncio.ensure_future(self._fetch())
        await asyncio.shield(self._fetching)

    async def _refresh_loop(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_INTERVAL_S if self.ids else RETRY_INTERVAL_S)
            await self._fetch()

    async def _fetch(self, *, quiet: bool = True) -> None:
        self._fetched_at_s = self._now_s()
        try:
            response = await self._connection.request("/v1/models")
            if response.status >= 300:
                raise error_from_response(response.status, response.body)
            rows = [item.fields() for item in json_cursor.parse(response.body).fields().items("data")]
            details = {fields.require("id").string(): _details(fields) for fields in rows}
        except DragomanError as e:
            if not quiet:
                log.warning(
                    "%s: cannot list models (%s); start it, or set upstreams.%s.models", self._name, e, self._name
                )
            return
        if quiet and details and not self.ids:
            log.info("%s is up, with %s", self._name, "1 model" if len(details) == 1 else f"{len(details)} models")
        self.ids, self.details = tuple(details), details


def _details(fields: Fields) -> ModelDetails:
    """Reads the details leniently: a field of a wrong type must not drop the model."""
    names = (_string(fields.get(name)) for name in ("display_name", "name"))
    created, created_at = fields.get("created"), _string(fields.get("created_at"))
    seconds = float(created.raw) if created is not None and created.kind in ("integer", "number") else 0.0
    if not seconds and created_at:
        with suppress(ValueError, OverflowError, OSError):
            seconds = datetime.fromisoformat(created_at).timestamp()
    return ModelDetails(next(filter(None, names), ""), int(seconds) if 0 < seconds < _MAX_CREATED_S else 0)


def _string(value: Cursor | None) -> str:
    return value.string() if value is not None and value.kind == "string" else ""
