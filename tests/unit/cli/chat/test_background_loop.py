"""The event loop in a thread."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import closing

import pytest

from dragoman.cli.chat.background_loop import BackgroundLoop
from dragoman.core.errors import BackendUnavailableError


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    with BackgroundLoop() as running:
        yield running


def interrupt() -> None:
    raise KeyboardInterrupt


async def numbers(ended: threading.Event, stop_at: int = 1_000_000) -> AsyncGenerator[int, None]:
    try:
        for number in range(stop_at):
            yield number
            await asyncio.sleep(0)
    finally:
        ended.set()


def test_coroutine_runs_in_the_other_thread(loop: BackgroundLoop) -> None:
    async def thread_name() -> str:
        return threading.current_thread().name

    assert loop.run(thread_name()) == "chat"


def test_exceptions_are_raised_here(loop: BackgroundLoop) -> None:
    async def fails() -> None:
        raise BackendUnavailableError("ended")

    async def fails_later() -> AsyncGenerator[int, None]:
        yield 1
        raise BackendUnavailableError("ended")

    with pytest.raises(BackendUnavailableError):
        loop.run(fails())
    with pytest.raises(BackendUnavailableError):
        list(loop.iterate(fails_later()))


def test_items_are_yielded_in_order(loop: BackgroundLoop) -> None:
    ended = threading.Event()
    assert list(loop.iterate(numbers(ended, 50))) == list(range(50))
    assert ended.is_set()


def test_closing_the_iterator_closes_the_generator(loop: BackgroundLoop) -> None:
    ended = threading.Event()
    with closing(loop.iterate(numbers(ended))) as items:
        assert next(items) == 0
    assert ended.wait(10)


def test_interrupt_while_waiting_cancels(loop: BackgroundLoop) -> None:
    ended = threading.Event()

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def never_yields() -> AsyncGenerator[int, None]:
        await waits()
        yield 1

    with pytest.raises(KeyboardInterrupt):
        loop.run(waits(), interrupt)
    assert ended.wait(10)
    ended.clear()
    with pytest.raises(KeyboardInterrupt):
        list(loop.iterate(never_yields(), interrupt))
    assert ended.wait(10)
