"""CPU time of a piece of work next to that of a reference, the two in turn so that noise hits both."""

import gc
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple


class Timing(NamedTuple):
    """CPU time of one call of the work, in nanoseconds."""

    median: float
    best: float
    ratio: float
    """To the reference: the median over the rounds."""


def compare(
    work: Callable[[], object], reference: Callable[[], object], rounds: int, *, collect: bool = False, calls: int = 1
) -> Timing:
    """Measure both `rounds` times, each time `calls` calls. `collect`: with garbage collection on, as in production."""
    mine, ratios = [], []
    enabled = gc.isenabled()
    work(), reference()
    try:
        for _ in range(rounds):
            gc.collect()
            (gc.enable if collect else gc.disable)()
            mine.append(_cpu_ns(work, calls))
            gc.collect()
            ratios.append(mine[-1] / _cpu_ns(reference, calls))
    finally:
        (gc.enable if enabled else gc.disable)()
    return Timing(statistics.median(mine), min(mine), statistics.median(ratios))


def _cpu_ns(work: Callable[[], object], calls: int) -> float:
    before = time.process_time_ns()
    for _ in range(calls):
        work()
    # A clock that stood still would make ratios fail: one tick is the least there is.
    return max(1, time.process_time_ns() - before) / calls
