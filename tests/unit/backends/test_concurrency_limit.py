"""Concurrency slots of a server, and the queue for them."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from dragoman.backends.concurrency_limit import ConcurrencyLimiter
from dragoman.core.errors import QueueFullError
from support.clock import Clock

pytestmark = pytest.mark.asyncio


async def run_pending_tasks(times: int = 3) -> None:
    """Lets all tasks run that are ready."""
    for _ in range(times):
        await asyncio.sleep(0)


class SlotHolder:
    """Acquires a slot, and releases it when `go` is set."""

    def __init__(self, places: ConcurrencyLimiter) -> None:
        self.inside, self.go = False, asyncio.Event()
        self.task = asyncio.ensure_future(self._run(places))

    async def _run(self, places: ConcurrencyLimiter) -> None:
        async with places.acquire():
            self.inside = True
            await self.go.wait()


async def test_limiter_is_fifo() -> None:
    places = ConcurrencyLimiter("far", 1, 2)
    first, second, third = (SlotHolder(places) for _ in range(3))
    await run_pending_tasks()
    assert (places.active, places.waiting) == (1, 2)
    first.go.set()
    await run_pending_tasks()
    assert (second.inside, third.inside) == (True, False)
    second.go.set()
    third.go.set()
    await asyncio.gather(second.task, third.task)
    assert (places.active, places.waiting) == (0, 0)


async def test_full_queue_is_rejected_with_retry_after() -> None:
    clock = Clock()
    places = ConcurrencyLimiter("far", 2, 1, clock)
    for took_s in (10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10):
        async with places.acquire():
            clock.s += took_s
    async with AsyncExitStack() as inside:
        for _ in range(2):
            await inside.enter_async_context(places.acquire())
        waiting = SlotHolder(places)
        await run_pending_tasks()
        with pytest.raises(
            QueueFullError, match="all 2 concurrency slots of far are in use and its queue of 1 is full"
        ) as refused:
            async with places.acquire():
                pass
        assert refused.value.retry_after_s == pytest.approx(10, abs=0.2), "two responses of 10 s, two slots"
    waiting.go.set()
    await waiting.task


async def test_retry_after_of_full_queue_is_bounded() -> None:
    for took_s, told_s in ((0.0, 1), (10_000.0, 60)):
        clock = Clock()
        places = ConcurrencyLimiter("far", 1, 0, clock)
        for _ in range(9):
            async with places.acquire():
                clock.s += took_s
        async with places.acquire():
            with pytest.raises(
                QueueFullError, match="the one concurrency slot of far is in use and its queue of 0 is full"
            ) as refused:
                async with places.acquire():
                    pass
        assert refused.value.retry_after_s == told_s


async def test_cancelled_request_leaves_queue() -> None:
    places = ConcurrencyLimiter("far", 1, 1)
    first, second = SlotHolder(places), SlotHolder(places)
    await run_pending_tasks()
    second.task.cancel()
    await asyncio.wait({second.task})
    assert places.waiting == 0
    third = SlotHolder(places)
    await run_pending_tasks()
    assert places.waiting == 1
    first.go.set()
    await run_pending_tasks()
    assert third.inside
    third.go.set()
    await third.task


async def test_limit_of_zero_is_unlimited() -> None:
    places = ConcurrencyLimiter("far", 0, 0)
    async with AsyncExitStack() as inside:
        for _ in range(100):
            await inside.enter_async_context(places.acquire())
        assert (places.active, places.waiting) == (100, 0)
