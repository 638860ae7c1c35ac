"""Reloads of a gateway with several processes: all workers get the new configuration, or none does.

Frames to a worker:

    ["prepare", number, settings]  build everything from these settings     ["abort", number]  close it again
    ["commit", number]  put it in force                                     ["count_reload", result]
    ["reloaded", id, report]  the result of the reload that a client of this worker has requested

Frames from it: ["prepared", number, error or None], ["committed", number, None], ["reload", id, cause].
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
        self._rounds: dict[int, _Round] = {}
        """The reloads that workers prepare, by their numbers."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._control = ReloadControl(source, config, self._apply, self._count)
        self._triggers = Triggers(self._control, config.server.reload, stop)
        self.on_sighup, self.run = self._triggers.on_sighup, self._triggers.run

    def on_frame(self, worker: Worker, frame: Sequence[Any]) -> None:
        """Handles what a worker sent about a reload."""
        match frame:
            case ["prepared" | "committed", number, error] if number in self._rounds:
                self._rounds[number].on_done(worker, error)
            case ["reload", id, cause]:
                self._start(self._answer(worker, id, cause))
            case ["ready", *_] if worker.config != self._config:  # it started before the last reload
                self._start(self._update(worker))

    def on_exit(self, worker: Worker) -> None:
        """The process of a worker has ended."""
        for each in self._rounds.values():
            each.on_exit(worker)

    async def _apply(self, config: Config) -> None:
        """Puts settings in force in all workers.

        Raises:
            DragomanError: one of them could not prepare them; nothing has changed then.
        """
        number, ready = await self._prepare([worker for worker in self._workers if worker.is_up], config)
        self._config = config
        for worker in self._workers:
            worker.plan = replace(worker.plan, config=config)
        await self._commit(ready, number, config)
        for worker in self._workers:
            if worker.is_up and worker.config != config:  # it started meanwhile
                self._start(self._update(worker))

    async def _update(self, worker: Worker) -> None:
        """Puts the settings in force in a worker that started with earlier ones."""
        config = self._config
        try:
            number, ready = await self._prepare([worker], config)
        except DragomanError as error:
            log.warning("%s still has the previous configuration: %s", worker.name, error)
        else:
            await self._commit(ready, number, config)

    async def _prepare(self, workers: Sequence[Worker], config: Config) -> tuple[int, Sequence[Worker]]:
        """Returns the number of this reload, and the workers that have prepared it.

        Raises:
            DragomanError: one of them could not prepare it.
        """
        number, data = next(self._numbers), msgspec.json.encode(config)
        current = self._rounds[number] = _Round(workers)
        try:
            for worker in workers:
                worker.send("prepare", number, data)
            await current.wait()
        except DragomanError:
            for worker in workers:
                worker.send("abort", number)
            raise
        finally:
            del self._rounds[number]
        return number, current.ready

    async def _commit(self, workers: Sequence[Worker], number: int, config: Config) -> None:
        """Puts in force what these workers have prepared, and waits until each has done it."""
        current = self._rounds[number] = _Round(workers)
        for worker in workers:
            worker.config = config
            worker.send("commit", number)
        try:
            await current.wait()
        except DragomanError as error:  # a worker that does not respond is replaced
            log.warning("a worker may still have the previous configuration: %s", error)
        finally:
            del self._rounds[number]

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


class _Round:
    """One step of a reload, until all workers have done it."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._waiting = list(workers)
        self.ready: list[Worker] = []
        """Workers that have done it, and still run."""
        self._error: DragomanError | None = None
        self._ended = asyncio.Event()
        self._check()

    def on_done(self, worker: Worker, error: DragomanError | None) -> None:
        """A worker has done it, or could not."""
        if worker in self._waiting:
            self._waiting.remove(worker)
            if error is None:
                self.ready.append(worker)
            self._error = self._error or error
            self._check()

    def on_exit(self, worker: Worker) -> None:
        """A worker has ended; its next process starts with the settings that are then in force."""
        for workers in (self._waiting, self.ready):
            if worker in workers:
                workers.remove(worker)
                if not (self._waiting or self.ready):
                    self._error = self._error or BackendUnavailableError(
                        "all workers ended while they read the settings"
                    )
        self._check()

    async def wait(self) -> None:
        """Waits until all workers have done it.

        Raises:
            DragomanError: a worker could not, or took too long.
        """
        try:
            async with asyncio.timeout(PREPARE_S):
                await self._ended.wait()
        except TimeoutError:
            raise BackendUnavailableError(f"a worker has not read the settings within {PREPARE_S:g} s") from None
        if self._error is not None:
            raise self._error

    def _check(self) -> None:
        if not self._waiting or self._error is not None:
            self._ended.set()
