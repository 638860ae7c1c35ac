"""CPU time of an operation relative to that of a reference, measured in turn so that noise affects both."""

import gc
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple


class Timing(NamedTuple):
    """CPU time of one call, in nanoseconds."""

    median: float
    best: float
    ratio: float
    """Divided by the reference's: the median over the rounds."""


def compare(
    work: Callable[[], object], reference: Callable[[], object], rounds: int, *, collect: bool = False, calls: int = 1
) -> Timing:
    """Measures the work and the reference in turn.

    Args:
        work: what is measured.
        reference: what it is compared with.
        rounds: how often both are measured.
        collect: with garbage collection, as in production.
        calls: calls of each in one round.
    """
    times, ratios = [], []
    was_enabled = gc.isenabled()
    work(), reference()
    try:
        for _ in range(rounds):
            gc.collect()
            (gc.enable if collect else gc.disable)()
            times.append(_cpu_ns(work, calls))
            gc.collect()
            ratios.append(times[-1] / _cpu_ns(reference, calls))
    finally:
        (gc.enable if was_enabled else gc.disable)()
    return Timing(statistics.median(times), min(times), statistics.median(ratios))


def _cpu_ns(work: Callable[[], object], calls: int) -> float:
    before = time.process_time_ns()
    for _ in range(calls):
        work()
    # At least 1, so that ratios are finite if the clock did not advance.
    return max(1, time.process_time_ns() - before) / calls
