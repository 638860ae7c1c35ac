"""Reloads of a gateway with several processes: all workers get the new configuration, or none does.

Frames to a worker:

    ["prepare", number, settings]  build everything from these settings     ["abort", number]  close it again
    ["commit", number]  put it in force                                     ["count_reload", result]
    ["reloaded", id, report]  the result of the reload that a client of this worker has requested

Frames from it: ["prepared", number, error or None], ["reload", id, cause].
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from dragoman.cli._workers.plan import Plan
from dragoman.config import Config
from dragoman.core.errors import BackendUnavailableError, DragomanError
from dragoman.server.reload.control import ConfigSource, ReloadControl
from dragoman.server.reload.report import ReloadReport
from dragoman.server.reload.triggers import Triggers

log = logging.getLogger("dragoman.serve")

PREPARE_S: Final = 60.0
"""Time for the workers to build everything from new settings."""


class Worker(Protocol):
    """A worker, as its supervisor sees it."""

    name: str
    plan: Plan
    """The settings of its next process."""
    config: Config
    """The settings of its current process."""

    @property
    def is_up(self) -> bool:
        """Whether a process serves, and is not to end."""

    def send(self, *frame: object) -> None:
        """Sends a frame to the process."""


class WorkersReload:
    """Reloads the configuration of all workers. It belongs to the supervisor."""

    def __init__(self, workers: Sequence[Worker], source: ConfigSource, config: Config, stop: Callable[[int], None]):
        """Args:
        workers: the workers, also those that are added later.
        source: the settings.
        config: the settings at the start.
        stop: stops the gateway because of a signal.
        """
        self._workers, self._config = workers, config
        self._numbers = count(1)
        self._prepared: dict[tuple[str, int], asyncio.Future[None]] = {}
        """By the name of a worker and the number of a reload: done once the worker has prepared it."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._control = ReloadControl(source, config, self._apply, self._count)
        self._triggers = Triggers(self._control, config.server.reload, stop)
        self.on_sighup, self.run = self._triggers.on_sighup, self._triggers.run

    def on_frame(self, worker: Worker, frame: Sequence[Any]) -> None:
        """Handles what a worker sent about a reload."""
        match frame:
            case ["prepared", number, error]:
                self._on_prepared(worker, number, error)
            case ["reload", id, cause]:
                self._start(self._answer(worker, id, cause))
            case ["ready", *_] if worker.config != self._config:  # it started before the last reload
                self._start(self._update(worker))

    def on_exit(self, worker: Worker) -> None:
        """The process of a worker has ended."""
        for name, number in list(self._prepared):
            if name == worker.name:
                self._on_prepared(worker, number, BackendUnavailableError(f"{name} ended while it read the settings"))

    async def _apply(self, config: Config) -> None:
        """Puts settings in force in all workers.

        Raises:
            DragomanError: one of them could not prepare them; nothing has changed then.
        """
        up = [worker for worker in self._workers if worker.is_up]
        number = await self._prepare(up, config)
        self._config = config
        for worker in self._workers:
            worker.plan = replace(worker.plan, config=config)
        self._commit(up, number, config)

    async def _update(self, worker: Worker) -> None:
        """Puts the settings in force in a worker that started with earlier ones."""
        config = self._config
        try:
            number = await self._prepare([worker], config)
        except DragomanError as error:
            log.warning("%s still has the previous configuration: %s", worker.name, error)
        else:
            self._commit([worker], number, config)

    async def _prepare(self, workers: Sequence[Worker], config: Config) -> int:
        number, data = next(self._numbers), msgspec.json.encode(config)
        loop = asyncio.get_running_loop()
        waiting = {(worker.name, number): loop.create_future() for worker in workers}
        self._prepared |= waiting
        try:
            for worker in workers:
                worker.send("prepare", number, data)
            async with asyncio.timeout(PREPARE_S):
                await asyncio.gather(*waiting.values())
        except (DragomanError, TimeoutError) as error:
            for worker in workers:
                worker.send("abort", number)
            if isinstance(error, TimeoutError):
                raise BackendUnavailableError(f"a worker has not read the settings within {PREPARE_S:g} s") from None
            raise
        finally:
            for key in waiting:
                del self._prepared[key]
        return number

    def _commit(self, workers: Sequence[Worker], number: int, config: Config) -> None:
        for worker in workers:
            worker.config = config
            worker.send("commit", number)

    def _on_prepared(self, worker: Worker, number: int, error: DragomanError | None) -> None:
        waiting = self._prepared.get((worker.name, number))
        if waiting is None or waiting.done():
            return
        if error is None:
            waiting.set_result(None)
        else:
            waiting.set_exception(error)
            waiting.exception()  # if several fail, the first one is reported

    async def _answer(self, worker: Worker, id: int, cause: str) -> None:
        report = await self._control.reload(cause)
        worker.send("reloaded", id, msgspec.json.encode(report))

    def _count(self, report: ReloadReport) -> None:
        """Counts a reload, in one of the workers: their metrics are added."""
        if up := [worker for worker in self._workers if worker.is_up]:
            up[0].send("count_reload", msgspec.json.encode(report))

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
