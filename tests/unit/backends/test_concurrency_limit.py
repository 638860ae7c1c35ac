"""Places at a server, and the queue for them."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from dragoman.backends.concurrency_limit import ConcurrencyLimiter
from dragoman.core.errors import QueueFullError
from support.clock import Clock

pytestmark = pytest.mark.asyncio


async def turns(times: int = 3) -> None:
    """Let all that can go on go on."""
    for _ in range(times):
        await asyncio.sleep(0)


class Asker:
    """Takes a place, and keeps it until it is told to go."""

    def __init__(self, places: ConcurrencyLimiter) -> None:
        self.inside, self.go = False, asyncio.Event()
        self.task = asyncio.ensure_future(self._run(places))

    async def _run(self, places: ConcurrencyLimiter) -> None:
        async with places.acquire():
            self.inside = True
            await self.go.wait()


async def test_they_are_given_in_the_order_in_which_they_were_asked_for() -> None:
    places = ConcurrencyLimiter("far", 1, 2)
    first, second, third = (Asker(places) for _ in range(3))
    await turns()
    assert (places.active, places.waiting) == (1, 2)
    first.go.set()
    await turns()
    assert (second.inside, third.inside) == (True, False)
    second.go.set()
    third.go.set()
    await asyncio.gather(second.task, third.task)
    assert (places.active, places.waiting) == (0, 0)


async def test_a_full_queue_says_when_to_come_again() -> None:
    clock = Clock()
    places = ConcurrencyLimiter("far", 2, 1, clock)
    for took_s in (10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10):
        async with places.acquire():
            clock.s += took_s
    async with AsyncExitStack() as inside:
        for _ in range(2):
            await inside.enter_async_context(places.acquire())
        waiting = Asker(places)
        await turns()
        with pytest.raises(QueueFullError, match="all 2 places at far and the 1 in its queue are taken") as refused:
            async with places.acquire():
                pass
        assert refused.value.retry_after_s == pytest.approx(10, abs=0.2), "two answers of 10 s, two at once"
    waiting.go.set()
    await waiting.task


async def test_the_time_told_is_never_very_short_or_long() -> None:
    for took_s, told_s in ((0.0, 1), (10_000.0, 60)):
        clock = Clock()
        places = ConcurrencyLimiter("far", 1, 0, clock)
        for _ in range(9):
            async with places.acquire():
                clock.s += took_s
        async with places.acquire():
            with pytest.raises(
                QueueFullError, match="the one place at far and the 0 in its queue are taken"
            ) as refused:
                async with places.acquire():
                    pass
        assert refused.value.retry_after_s == told_s


async def test_who_leaves_the_queue_gives_up_the_place_in_it() -> None:
    places = ConcurrencyLimiter("far", 1, 1)
    first, second = Asker(places), Asker(places)
    await turns()
    second.task.cancel()
    await asyncio.wait({second.task})
    assert places.waiting == 0
    third = Asker(places)
    await turns()
    assert places.waiting == 1
    first.go.set()
    await turns()
    assert third.inside
    third.go.set()
    await third.task


async def test_without_a_limit_nobody_waits() -> None:
    places = ConcurrencyLimiter("far", 0, 0)
    async with AsyncExitStack() as inside:
        for _ in range(100):
            await inside.enter_async_context(places.acquire())
        assert (places.active, places.waiting) == (100, 0)
