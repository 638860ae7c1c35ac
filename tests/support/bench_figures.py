"""What the figures of every benchmark have in common, however fast the machine is."""

import math
from collections.abc import Iterable

from bench.figures import Figure


def check(benchmark: str, given: Iterable[Figure]) -> None:
    """Fails unless there are several figures, each with a name of its own and values that can be."""
    figures = list(given)
    assert len({f.name for f in figures}) == len(figures) > 5
    for f in figures:
        assert math.isfinite(f.value), f
        # A delay is the difference of two, and may come out below nothing; nothing may be wrong.
        assert f.value > 0 or f.unit == "ms" or benchmark == "accuracy", f
        assert f.ratio is None or f.ratio > 0, f
        assert f.best is None or f.best <= f.value, f
