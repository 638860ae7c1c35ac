"""Reloads the configuration of one of several gateway processes, as the supervisor orders (`reload`)."""

import asyncio
import logging
from collections.abc import Sequence
from itertools import count
from typing import Any, Protocol

import msgspec

from dragoman.config import Config
from dragoman.core.errors import BackendUnavailableError, DragomanError
from dragoman.server.app import App
from dragoman.server.reload.live import LiveConfiguration, Rebuild
from dragoman.server.reload.report import ReloadReport

log = logging.getLogger("dragoman.serve")


class Sender(Protocol):
    """Sends frames to the supervisor."""

    def send(self, *frame: object) -> None:
        """Sends a frame."""


class WorkerReload:
    """Reloads the configuration of this process."""

    def __init__(self, app: App, config: Config, rebuild: Rebuild, supervisor: Sender) -> None:
        """Args:
        app: the application.
        config: the settings at the start.
        rebuild: builds another gateway.
        supervisor: receives frames.
        """
        self._app, self._supervisor = app, supervisor
        self._live = LiveConfiguration(app, config, rebuild)
        self._prepared = 0
        """The number of the reload that is prepared, or being prepared."""
        self._preparing: asyncio.Task[None] | None = None
        self._ids = count(1)
        self._requested: dict[int, asyncio.Future[ReloadReport]] = {}
        if config.server.reload != "off":
            app.reload = self._request

    def on_frame(self, frame: Sequence[Any]) -> bool:
        """Handles a frame of the supervisor; returns whether it is about a reload."""
        match frame:
            case ["prepare", number, data]:
                self._prepared = number
                self._preparing = asyncio.ensure_future(self._prepare(number, data, self._preparing))
            case ["commit", number]:
                if number == self._prepared:
                    self._live.commit()
                self._supervisor.send("committed", number, None)
            case ["abort", number]:
                if number == self._prepared:
                    self._preparing = asyncio.ensure_future(self._abort(self._preparing))
            case ["reloaded", id, data]:
                if (waiting := self._requested.pop(id, None)) is not None and not waiting.done():
                    waiting.set_result(msgspec.json.decode(data, type=ReloadReport))
            case ["count_reload", data]:
                self._app.count_reload(msgspec.json.decode(data, type=ReloadReport))
            case _:
                return False
        return True

    def on_sighup(self) -> None:
        """Does nothing: service managers may send the signal to all processes, and the supervisor reloads."""

    async def run(self) -> None:
        """Does nothing: the supervisor triggers reloads."""

    async def close(self) -> None:
        """Closes the gateway, also what earlier configurations use.

        Raises:
            ExceptionGroup: something could not be closed.
        """
        await _cancel(self._preparing)
        await self._live.close()

    async def _request(self, cause: str) -> ReloadReport:
        """Asks the supervisor to reload the configuration of all workers."""
        id = next(self._ids)
        waiting: asyncio.Future[ReloadReport] = asyncio.get_running_loop().create_future()
        self._requested[id] = waiting
        try:
            self._supervisor.send("reload", id, cause)
            return await waiting
        finally:
            self._requested.pop(id, None)

    async def _prepare(self, number: int, data: bytes, earlier: "asyncio.Task[None] | None") -> None:
        await _cancel(earlier)
        error: DragomanError | None = None
        try:
            await self._live.prepare(msgspec.json.decode(data, type=Config))
        except DragomanError as found:
            error = found
        except Exception:
            log.exception("bug: the configuration was not reloaded")
            error = BackendUnavailableError("internal error; the log has more")
        self._supervisor.send("prepared", number, error)

    async def _abort(self, preparing: "asyncio.Task[None] | None") -> None:
        await _cancel(preparing)
        await self._live.abort()


async def _cancel(task: "asyncio.Task[None] | None") -> None:
    """Cancels a task, and waits for its end."""
    if task is not None and not task.done():
        task.cancel()
        await asyncio.wait({task})
