"""Measures CPU time for tests with cost limits: without garbage collection, the minimum of several runs.

    assert cost.least_s(lambda: parse(text), below_s=2) < 2
    assert cost.growth(lambda n: partial(parse, "x" * n), 10_000, 100_000, most=4) < 4

A single measurement depends on the machine: a full collection visits the objects of all earlier tests, and other
programs evict the caches. So a limit counts as exceeded only if every run exceeds it.
"""

import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

TIMES: Final = (1, 3, 5)
"""Numbers of runs per size; the next number is used if the growth seems too high."""


@contextmanager
def measured() -> Iterator[list[float]]:
    """Adds the CPU seconds that the block takes to the list, in all threads of the process."""
    taken: list[float] = []
    enabled = gc.isenabled()
    gc.disable()
    try:
        began_s = time.process_time()
        yield taken
        taken.append(time.process_time() - began_s)
    finally:
        (gc.enable if enabled else gc.disable)()


def least_s(work: Callable[[], object], below_s: float = 0.0, times: int = 3) -> float:
    """Returns the least CPU seconds of `times` runs; no more runs are made once one takes less than `below_s`."""
    least = float("inf")
    for _ in range(times):
        with measured() as taken:
            work()
        least = min(least, *taken)
        if least < below_s:
            break
    return least


def growth(
    made: Callable[[int], Callable[[], object]], small: int, large: int, most: float, floor_s: float = 0.002
) -> float:
    """Returns how much more a unit of the large work costs than one of the small work: about 1 where cost is linear.

    Args:
        made: Returns the work of this size, ready to be measured.
        small, large: The two sizes.
        most: What the caller allows; beyond it, the sizes are measured again.
        floor_s: The least CPU seconds that count for the small work, as a clock is coarse.
    """
    found = float("inf")
    for times in TIMES:
        one = max(floor_s, least_s(made(small), times=times))
        found = min(found, least_s(made(large), times=times) / one / (large / small))
        if found <= most:
            break
    return found


async def doubled(
    work: Callable[[bytes], Awaitable[object]], made: Callable[[int], bytes], n: int, most: float
) -> float:
    """Returns how many times the cost of `n` twice as much has; beyond `most` it is measured again."""

    async def least(body: bytes, times: int) -> float:
        found = float("inf")
        for _ in range(times):
            with measured() as taken:
                await work(body)
            found = min(found, *taken)
        return found

    found = float("inf")
    for times in TIMES:
        found = min(found, await least(made(2 * n), times) / await least(made(n), times))
        if found <= most:
            break
    return found
