"""Reads the log of the child process, and waits until it states on which hardware the model was loaded."""

import asyncio
import contextlib
from typing import Final

from dragoman.backends.embedded.engine import hardware
from dragoman.backends.embedded.engine.hardware import Hardware
from dragoman.backends.embedded.engine.load_log import EngineLog
from dragoman.backends.embedded.start_worker import EngineSettings

DELAY_S: Final = 2.0
"""Time in which the log of a load arrives after the model is ready."""


class WorkerLog:
    """The log of one child process."""

    def __init__(self) -> None:
        self.engine = EngineLog()
        self._has_load = asyncio.Event()

    async def read(self, stream: asyncio.StreamReader | None) -> None:
        """Reads lines until the process ends."""
        assert stream is not None
        while line := await stream.readline():
            self.engine.feed(line.decode("utf-8", "replace"))
            if self.engine.facts.is_complete:
                self._has_load.set()

    async def hardware(self, settings: EngineSettings) -> Hardware:
        """Returns what the model runs on, after it is ready."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DELAY_S):
                await self._has_load.wait()
        gpu = await asyncio.to_thread(hardware.find_gpu)
        return hardware.describe(self.engine.facts, gpu, settings.program, settings.gpu_layers)
