"""Concurrency slots that several processes share; each limiter here acts as one process."""

import asyncio
from pathlib import Path

import pytest

from dragoman.backends.concurrency_limit import ConcurrencyLimiter
from dragoman.backends.shared_state import SharedState
from dragoman.core.errors import QueueFullError
from support.scripted_backend import eventually

pytestmark = pytest.mark.asyncio


class Holder:
    """Acquires a slot, and releases it when `go` is set."""

    def __init__(self, limiter: ConcurrencyLimiter) -> None:
        self.inside, self.go = False, asyncio.Event()
        self.task = asyncio.ensure_future(self._run(limiter))

    async def _run(self, limiter: ConcurrencyLimiter) -> None:
        async with limiter.acquire():
            self.inside = True
            await self.go.wait()

    async def leave(self) -> None:
        self.go.set()
        await self.task


async def waits(limiter: ConcurrencyLimiter, waiting: int = 1) -> Holder:
    """Returns a holder that is in the queue."""
    holder = Holder(limiter)
    await eventually(lambda: limiter.waiting == waiting)
    return holder


async def enters(limiter: ConcurrencyLimiter) -> Holder:
    holder = Holder(limiter)
    await eventually(lambda: holder.inside)
    return holder


def limiters(
    folder: Path, max_concurrency: int = 1, max_queue: int = 16, processes: int = 2
) -> list[ConcurrencyLimiter]:
    return [SharedState(folder).limiter("far", max_concurrency, max_queue) for _ in range(processes)]


async def test_slots_are_shared_in_order_of_arrival(tmp_path: Path) -> None:
    one, two = limiters(tmp_path)
    first = await enters(one)
    second = await waits(two, 1)
    third = await waits(one, 1)
    fourth = await waits(two, 2)
    holders = [first, second, third, fourth]
    for place, holder in enumerate(holders):
        await eventually(lambda holder=holder: holder.inside)
        assert [each.inside for each in holders[place + 1 :]] == [False] * (3 - place)
        await holder.leave()
    assert (one.active, one.waiting, two.active, two.waiting) == (0, 0, 0, 0)


async def test_new_request_does_not_pass_one_that_waits_in_another_process(tmp_path: Path) -> None:
    one, two = limiters(tmp_path)
    first = await enters(one)
    second = await waits(two)
    await first.leave()
    third = Holder(one)
    await eventually(lambda: second.inside)
    assert not third.inside
    await second.leave()
    await eventually(lambda: third.inside)
    await third.leave()


async def test_queue_limit_holds_over_all_processes(tmp_path: Path) -> None:
    one, two, three = limiters(tmp_path, max_queue=1, processes=3)
    first, second = await enters(one), await waits(two)
    with pytest.raises(
        QueueFullError, match="the one concurrency slot of far is in use and its queue of 1 is full"
    ) as refused:
        async with three.acquire():
            pass
    assert refused.value.retry_after_s is not None
    exceeding = asyncio.ensure_future(_acquire_in_excess(three))
    await eventually(lambda: three.waiting == 1)
    await first.leave()
    await eventually(lambda: second.inside)
    await second.leave()
    await exceeding


async def _acquire_in_excess(limiter: ConcurrencyLimiter) -> None:
    async with limiter.acquire(may_exceed_queue=True):
        pass


async def test_cancelled_request_leaves_queue(tmp_path: Path) -> None:
    one, two = limiters(tmp_path)
    first, second = await enters(one), await waits(two)
    second.task.cancel()
    await asyncio.wait({second.task})
    assert two.waiting == 0
    await first.leave()
    third = await enters(one)
    await third.leave()


async def test_all_slots_can_be_used_by_one_process_or_by_several(tmp_path: Path) -> None:
    one, two = limiters(tmp_path, max_concurrency=3)
    holders = [await enters(one), await enters(one), await enters(two)]
    waiting = await waits(two)
    await holders[0].leave()
    await eventually(lambda: waiting.inside)
    for holder in (*holders[1:], waiting):
        await holder.leave()


@pytest.mark.parametrize("max_concurrency", [0, 3])
async def test_active_requests_of_all_processes_are_counted(max_concurrency: int, tmp_path: Path) -> None:
    """Also of a server whose requests are not limited."""
    one, two, three = limiters(tmp_path, max_concurrency, processes=3)
    holders = [await enters(one), await enters(two), await enters(two)]
    assert [each.total() for each in (one, two, three)] == [(3, 0)] * 3
    assert (one.active, two.active, three.active) == (1, 2, 0)
    for holder in holders:
        await holder.leave()
    assert [each.total() for each in (one, two, three)] == [(0, 0)] * 3


async def test_waiting_requests_of_all_processes_are_counted(tmp_path: Path) -> None:
    one, two, three = limiters(tmp_path, processes=3)
    first, second = await enters(one), await waits(two)
    assert [each.total() for each in (one, two, three)] == [(1, 1)] * 3
    await first.leave()
    await eventually(lambda: second.inside)
    await second.leave()


async def test_servers_have_slots_of_their_own(tmp_path: Path) -> None:
    shared = SharedState(tmp_path)
    one, other = await enters(shared.limiter("../a", 1, 0)), await enters(shared.limiter("b/c", 1, 0))
    await one.leave()
    await other.leave()
    assert {path.parent for path in tmp_path.iterdir()} == {tmp_path}
