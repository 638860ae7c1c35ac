"""Checks for the figures of every benchmark, independent of the speed of the machine."""

import math
from collections.abc import Iterable

from bench.figures import Figure


def check(benchmark: str, given: Iterable[Figure]) -> None:
    """Fails unless there are several figures with unique names and plausible values."""
    figures = list(given)
    assert len({f.name for f in figures}) == len(figures) > 5
    for f in figures:
        assert math.isfinite(f.value), f
        # A delay is a difference of two times and may be negative; the share of errors may be zero.
        assert f.value > 0 or f.unit == "ms" or benchmark == "accuracy", f
        assert f.ratio is None or f.ratio > 0, f
        assert f.best is None or f.best <= f.value, f
