"""An event loop in a thread; the main thread reads the user's keys, and Ctrl-C interrupts what it waits for."""

import asyncio
import concurrent.futures
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import aclosing
from types import TracebackType
from typing import Any, Final, Self, TypeVar

T = TypeVar("T")

_TICK_S: Final = 0.1
"""Time after which `on_tick` is called while nothing arrives."""
_CLOSE_S: Final = 10.0
"""Time for all tasks to end."""
_CANCEL_S: Final = 1.0
"""Time that the user waits for a cancelled task; it may end later, as an engine that reads a prompt does."""


def _no_tick() -> None:
    pass


class BackgroundLoop:
    """Runs coroutines for a thread that blocks."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chat", daemon=True)

    def __enter__(self) -> Self:
        """Starts the thread."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Cancels all tasks and ends the thread."""
        future = asyncio.run_coroutine_threadsafe(_cancel_tasks(), self._loop)
        concurrent.futures.wait([future], _CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_S)
        if not self._thread.is_alive():
            self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, T], on_tick: Callable[[], None] = _no_tick) -> T:
        """Runs the coroutine and returns its result; `on_tick` is called from time to time.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed; the coroutine was cancelled.
        """
        finished = threading.Event()

        async def finishing() -> T:
            try:
                return await coroutine
            finally:
                finished.set()

        future = asyncio.run_coroutine_threadsafe(finishing(), self._loop)
        try:
            while not finished.wait(_TICK_S):
                on_tick()
        except BaseException:
            future.cancel()
            finished.wait(_CANCEL_S)
            raise
        return future.result()

    def iterate(
        self, items: AsyncGenerator[T, None], on_tick: Callable[[], None] = _no_tick
    ) -> Generator[T, None, None]:
        """Yields the items as they arrive; close the iterator to close the generator.

        Args:
            items: The generator, which runs in one task.
            on_tick: Called from time to time while nothing arrives.
        """
        received: queue.SimpleQueue[tuple[T] | None] = queue.SimpleQueue()

        async def pump() -> None:
            try:
                async with aclosing(items):
                    async for item in items:
                        received.put((item,))
            finally:
                received.put(None)

        future = asyncio.run_coroutine_threadsafe(pump(), self._loop)
        is_complete = False
        try:
            while (item := _next(received, on_tick)) is not None:
                yield item[0]
            is_complete = True
        finally:
            if not is_complete:
                future.cancel()
                _drain(received)
        future.result()


def _next(received: "queue.SimpleQueue[tuple[T] | None]", on_tick: Callable[[], None]) -> tuple[T] | None:
    while True:
        try:
            return received.get(timeout=_TICK_S)
        except queue.Empty:
            on_tick()


def _drain(received: "queue.SimpleQueue[tuple[T] | None]") -> None:
    """Waits until the generator has ended."""
    try:
        while received.get(timeout=_CANCEL_S) is not None:
            pass
    except queue.Empty:
        pass


async def _cancel_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
