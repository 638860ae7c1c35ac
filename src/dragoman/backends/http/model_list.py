"""The models that a server lists, kept up to date: models are loaded, pulled and removed while it runs.

    not there yet: asked every `AGAIN_S`     there: every `ANEW_S`     a model is asked for that it has not: at once,
    but not oftener than every `AGAIN_S`

A list that cannot be had leaves the one before.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Final, NamedTuple

from dragoman.backends.http.connection import Connection
from dragoman.core.errors import DragomanError
from dragoman.text import json_cursor
from dragoman.text.json_cursor import Cursor, Fields
from dragoman.wire.upstream_errors import answered_error

log = logging.getLogger("dragoman.backends.http.backend")

AGAIN_S: Final = 3.0
ANEW_S: Final = 60.0


_LATEST_S: Final = 253_402_300_800
"""The year 10000: some servers count milliseconds, which are no date of ours."""


class About(NamedTuple):
    """What a server reports of a model; empty or 0: nothing."""

    display_name: str = ""
    created: int = 0
    """Seconds since 1970."""


class Listing:
    """Of one server."""

    def __init__(self, name: str, connection: Connection, now_s: Callable[[], float] = time.monotonic) -> None:
        self.ids: tuple[str, ...] = ()
        """In the server's own order."""
        self.about: dict[str, About] = {}
        """What else the server reports of each."""
        self._name, self._connection, self._now_s = name, connection, now_s
        self._asked_s = -AGAIN_S
        self._asking: asyncio.Future[None] | None = None
        self._keeping: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Ask, and keep asking."""
        await self._ask(quiet=False)
        self._keeping = asyncio.ensure_future(self._keep())

    async def close(self) -> None:
        """Ask no more."""
        running = {task for task in (self._keeping, self._asking) if task is not None}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def refresh(self) -> None:
        """Ask anew, unless that was done just now; all who come while it is asked wait for one answer."""
        if self._asking is None or self._asking.done():
            if self._now_s() - self._asked_s < AGAIN_S:
                return
            self._asking = asyncio.ensure_future(self._ask())
        await asyncio.shield(self._asking)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(ANEW_S if self.ids else AGAIN_S)
            await self._ask()

    async def _ask(self, *, quiet: bool = True) -> None:
        self._asked_s = self._now_s()
        try:
            said = await self._connection.asked("/v1/models")
            if said.status >= 300:
                raise answered_error(said.status, said.body)
            rows = [item.fields() for item in json_cursor.at(said.body).fields().items("data")]
            found = {fields.need("id").string(): _about(fields) for fields in rows}
        except DragomanError as e:
            if not quiet:
                log.warning(
                    "%s: cannot list models (%s); start it, or set servers.%s.models", self._name, e, self._name
                )
            return
        if quiet and found and not self.ids:
            log.info("%s is up, with %s", self._name, "1 model" if len(found) == 1 else f"{len(found)} models")
        self.ids, self.about = tuple(found), found


def _about(fields: Fields) -> About:
    """Read leniently: a wrong type here must not cost the model."""
    names = (_string(fields.peek(name)) for name in ("display_name", "name"))
    created, created_at = fields.peek("created"), _string(fields.peek("created_at"))
    seconds = float(created.raw) if created is not None and created.kind in ("integer", "number") else 0.0
    if not seconds and created_at:
        with suppress(ValueError, OverflowError, OSError):
            seconds = datetime.fromisoformat(created_at).timestamp()
    return About(next(filter(None, names), ""), int(seconds) if 0 < seconds < _LATEST_S else 0)


def _string(found: Cursor | None) -> str:
    return found.string() if found is not None and found.kind == "string" else ""
