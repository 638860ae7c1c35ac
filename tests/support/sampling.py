"""The part of exhaustive checks that a run makes: everything in `make test-all`, otherwise a fixed sample.

The Hypothesis profile decides: "ci" checks everything but only every tenth position of a text, which others vary; those
with more examples (`make fuzz`) check every position.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

T = TypeVar("T")
SHORT_CHARS = 12
"""Up to this length, every position of a text is checked in every run."""
POSITIONS = 4
"""The number of checked positions in a longer text."""
STEP = 10
"""The distance of the checked positions in an exhaustive run."""

EXHAUSTIVE = 60
"""Examples of a property from which everything is checked."""
EVERY_POSITION = 1000
"""Examples of a property from which every position of a text is checked."""


def exhaustive() -> bool:
    """Whether this run checks everything."""
    return settings.default.max_examples >= EXHAUSTIVE


def positions(text: str, end: int) -> Sequence[int]:
    """Returns the positions below `end` at which a text is cut in this run, in order."""
    if settings.default.max_examples >= EVERY_POSITION or end <= SHORT_CHARS:
        return range(end)
    if exhaustive():
        return sorted({0, end - 1, *range(_random(text).randrange(STEP), end, STEP)})
    return sorted({0, end - 1, *_random(text).sample(range(end), POSITIONS)})


def sample(items: Sequence[T], count: int, seed: str) -> Sequence[T]:
    """Returns all items, or `count` of them that the seed chooses, in order."""
    if exhaustive() or len(items) <= count:
        return items
    return [items[i] for i in sorted(_random(seed).sample(range(len(items)), count))]


def _random(seed: str) -> random.Random:
    return random.Random(seed.encode(errors="surrogatepass"))
