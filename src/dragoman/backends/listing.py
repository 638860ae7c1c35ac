"""The models that a server lists, kept up to date: models are loaded, pulled and removed while it runs.

    not there yet: asked every `AGAIN_S`     there: every `ANEW_S`     a model is asked for that it has not: at once,
    but not oftener than every `AGAIN_S`

A list that cannot be had leaves the one before.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from dragoman.backends.connection import Connection
from dragoman.core import shape
from dragoman.core.errors import DragomanError
from dragoman.core.upstream_errors import answered_error

log = logging.getLogger("dragoman.backends.http")

AGAIN_S: Final = 3.0
ANEW_S: Final = 60.0


class Listing:
    """Of one server."""

    def __init__(self, name: str, connection: Connection, now_s: Callable[[], float] = time.monotonic) -> None:
        self.ids: tuple[str, ...] = ()
        """In the server's own order."""
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
            found = [item.fields().need("id").string() for item in shape.at(said.body).fields().items("data")]
        except DragomanError as e:
            if not quiet:
                log.warning("%s tells no models (%s); start it, or name them in its settings", self._name, e)
            return
        if quiet and found and not self.ids:
            log.info("%s is there, with %d models", self._name, len(found))
        self.ids = tuple(found)
