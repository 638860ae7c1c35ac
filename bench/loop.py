"""The gateway with a sampler in its event loop: `python -m bench.loop FILE CORE serve …`.

A timer of the loop is due each `TICK_S`. The CPU time of the loop's thread between two of its calls is one round of the
loop: all ready callbacks, during which no client gets a response, including `/health`. It does not contain the time of
other programs; but if those delay the gateway, more callbacks are ready in the next round. The CPU time of the process
between the same two calls also contains the gateway's threads that held the interpreter lock. At the end both are
written to FILE as JSON (`LoopTimes`).
CORE is the core that the process is pinned to; empty: it is not pinned.
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from dragoman.cli import main as dragoman
from dragoman.server import run

TICK_S: Final = 0.002


class LoopTimes(msgspec.Struct):
    """Measurements of the sampler; times in seconds."""

    ticks: int = 0
    loop_s: float = 0.0
    """Maximum CPU time of the loop's thread between two ticks."""
    process_s: float = 0.0
    """Maximum CPU time of the process between two ticks."""
    lag_s: float = 0.0
    """Maximum delay of a tick, in wall time."""
    long_rounds: dict[str, int] = {}
    """Number of rounds that took more than so many milliseconds of the loop's CPU time."""
    cpu_s: float = 0.0
    """Total CPU time of the process."""
    wall_s: float = 0.0
    tasks: int = 0
    """Tasks that were started meanwhile and have not ended."""


_BOUNDS_MS: Final = (5, 10, 20, 50, 100)


class Sampler:
    """Samples by a timer in the running loop."""

    def __init__(self, tick_s: float = TICK_S) -> None:
        self.times = LoopTimes(long_rounds={str(ms): 0 for ms in _BOUNDS_MS})
        self._tick_s = tick_s
        self._handle: asyncio.TimerHandle | None = None
        self._loop_s = self._process_s = self._due_s = 0.0

    def start(self) -> None:
        """Starts sampling in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._started = time.monotonic(), time.process_time()
        self._tasks = asyncio.all_tasks()
        self._next()

    def stop(self) -> LoopTimes:
        """Stops; returns the measurements."""
        if self._handle is not None:
            self._tick()
            self._handle.cancel()
        self.times.tasks = len(asyncio.all_tasks() - self._tasks)
        started_s, cpu_s = self._started
        self.times.wall_s, self.times.cpu_s = time.monotonic() - started_s, time.process_time() - cpu_s
        return self.times

    def _next(self) -> None:
        self._loop_s, self._process_s = time.thread_time(), time.process_time()
        self._due_s = time.monotonic() + self._tick_s
        self._handle = self._loop.call_later(self._tick_s, self._tick)

    def _tick(self) -> None:
        times, loop_s = self.times, time.thread_time() - self._loop_s
        times.ticks += 1
        times.loop_s = max(times.loop_s, loop_s)
        times.process_s = max(times.process_s, time.process_time() - self._process_s)
        times.lag_s = max(times.lag_s, time.monotonic() - self._due_s)
        if loop_s > _BOUNDS_MS[0] / 1000:
            for ms in _BOUNDS_MS:
                times.long_rounds[str(ms)] += loop_s > ms / 1000
        self._next()


def main() -> int:
    """Runs the command line with a sampler; returns its exit status."""
    file, core, *arguments = sys.argv[1:]
    if core:
        os.sched_setaffinity(0, {int(core)})
    sampler = Sampler()

    listen = run._listen

    async def listen_and_sample(server: Any, listener: Any, announce: Any) -> None:
        sampler.start()
        try:
            await listen(server, listener, announce)
        finally:
            Path(file).write_bytes(msgspec.json.encode(sampler.stop()))

    run._listen = listen_and_sample
    return dragoman(arguments)


if __name__ == "__main__":
    sys.exit(main())
