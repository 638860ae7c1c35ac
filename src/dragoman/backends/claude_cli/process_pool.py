"""Starts processes before they are needed: the start takes 0.5 s, which a request would have to wait for.

Each serves one request. The processes that wait are of the kinds that were requested last, because the requests of one
agent are alike.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import psutil

from dragoman.backends.claude_cli.command import ModelSpec
from dragoman.backends.claude_cli.process import Process
from dragoman.core.errors import BackendUnavailableError

log = logging.getLogger("dragoman.backends.claude_cli")

_MB: Final = 1024 * 1024
_REPLACED_S: Final = 60.0
"""Time during which a kind that was replaced by another does not replace it."""


class ProcessPool:
    """All processes of one backend."""

    def __init__(
        self,
        start: Callable[[ModelSpec], Awaitable[Process]],
        warm_processes: int,
        idle_timeout_s: float,
        memory_limit_mb: int,
    ) -> None:
        self._start, self._warm_processes = start, warm_processes
        self._idle_timeout_s, self._memory_limit_mb = idle_timeout_s, memory_limit_mb
        self._waiting: dict[Process, tuple[ModelSpec, asyncio.TimerHandle]] = {}
        self._all: set[Process] = set()
        self._warming: set[asyncio.Task[None]] = set()
        self._one_by_one = asyncio.Lock()
        self._closed = False
        self._evicted_s: dict[ModelSpec, float] = {}
        """When a waiting process of each kind was terminated to make room for another kind."""
        self.cold = 0
        """Number of requests that had to wait for a process to start."""

    @property
    def waiting(self) -> int:
        """Number of processes that wait for a request."""
        return len(self._waiting)

    @property
    def processes(self) -> int:
        """Number of all processes, including those that serve a request or are exiting."""
        return len(self._all)

    async def acquire(self, spec: ModelSpec) -> tuple[Process, bool]:
        """Returns a process of this kind, and whether it was already running; pass it to `stop` after the request.

        Raises: BackendUnavailableError: it cannot be started.
        """
        for process, (kind, timer) in list(self._waiting.items()):
            if kind == spec:
                del self._waiting[process]
                timer.cancel()
                if process.is_running:
                    return process, True
                self.stop(process)
        self.cold += 1
        return await self._started(spec), False

    async def _started(self, spec: ModelSpec) -> Process:
        process = await self._start(spec)
        self._all.add(process)
        return process

    def stop(self, process: Process) -> None:
        """Terminates a process that is no longer needed."""
        if waiting := self._waiting.pop(process, None):
            waiting[1].cancel()
        process.stop().add_done_callback(lambda _: self._all.discard(process))

    def warm(self, spec: ModelSpec) -> None:
        """Starts a process of this kind in the background, for the next request."""
        if self._warm_processes and not self._closed:
            task = asyncio.ensure_future(self._warm(spec))
            self._warming.add(task)
            task.add_done_callback(self._warming.discard)

    async def _warm(self, spec: ModelSpec) -> None:
        async with self._one_by_one:
            if sum(kind == spec for kind, _ in self._waiting.values()) >= self._warm_processes or not self._has_room():
                return
            if len(self._waiting) >= self._warm_processes:
                if self._was_evicted_recently(
                    spec
                ):  # kinds in alternation would terminate each other's processes, and none would be ready in time
                    return
                oldest, (kind, _) = next(iter(self._waiting.items()))
                self._evicted_s[kind] = asyncio.get_running_loop().time()
                self.stop(oldest)
            with contextlib.suppress(BackendUnavailableError):
                process = await self._started(spec)
                timer = asyncio.get_running_loop().call_later(self._idle_timeout_s, self.stop, process)
                self._waiting[process] = spec, timer
                process.exited.add_done_callback(lambda _: self._on_lost(process))

    def _was_evicted_recently(self, kind: ModelSpec) -> bool:
        since_s = asyncio.get_running_loop().time() - _REPLACED_S
        self._evicted_s = {each: at_s for each, at_s in self._evicted_s.items() if at_s > since_s}
        return kind in self._evicted_s

    def _on_lost(self, process: Process) -> None:
        """Removes a waiting process that has exited."""
        if process in self._waiting:
            self.stop(process)

    def _has_room(self) -> bool:
        """Whether one more process of the average size fits into the memory limit."""
        if not self._memory_limit_mb or not self._all:
            return True
        took = memory_bytes(self._all)
        return took * (1 + 1 / len(self._all)) <= self._memory_limit_mb * _MB

    async def close(self) -> None:
        """Terminates all processes."""
        self._closed = True
        await asyncio.gather(*self._warming, return_exceptions=True)
        for process in list(self._all):
            self.stop(process)
        await asyncio.gather(*(process.stop() for process in list(self._all)))


def memory_bytes(processes: set[Process]) -> int:
    """Returns the resident memory of the processes, in bytes."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            total += psutil.Process(process.pid).memory_info().rss
    return total
