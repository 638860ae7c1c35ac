"""Which of several groups fails significantly more often than the others.

Each group is compared with all other groups together, by Fisher's exact test (one-sided). With several groups, one of
them differs by chance more easily, so each probability is multiplied by their number (Bonferroni's correction).
"""

import math
from collections.abc import Hashable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

MAX_PROBABILITY: Final = 0.01
"""A difference is significant if chance alone produces it less often than this."""
MIN_RATIO: Final = 1.5
"""A group must fail this many times as often as the others: among a million calls, any difference is significant."""

Name = TypeVar("Name", bound=Hashable)


class Counts(NamedTuple):
    """How many calls were made, and how many of them failed."""

    calls: int
    failed: int

    @property
    def share(self) -> float:
        """The failed share of the calls; 0 if there are none."""
        return self.failed / self.calls if self.calls else 0.0


class Outlier(NamedTuple, Generic[Name]):
    """A group that fails significantly more often than the others."""

    name: Name
    counts: Counts
    others: Counts
    probability: float
    """Probability that a group differs so much by chance."""


def find_worst(groups: Mapping[Name, Counts]) -> Outlier[Name] | None:
    """Returns the group with the highest failed share, among those that differ significantly from the others.

    Args:
        groups: the counts by the name of the group.

    Returns:
        None if no group differs significantly, as with a single one.
    """
    groups = {name: counts for name, counts in groups.items() if counts.calls}
    calls = sum(counts.calls for counts in groups.values())
    failed = sum(counts.failed for counts in groups.values())
    worst: Outlier[Name] | None = None
    for name, counts in groups.items():
        others = Counts(calls - counts.calls, failed - counts.failed)
        if not others.calls or counts.share < MIN_RATIO * others.share or (worst and worst.counts.share > counts.share):
            continue
        probability = min(fisher_probability(counts, others) * len(groups), 1.0)
        if probability < MAX_PROBABILITY:
            worst = Outlier(name, counts, others, probability)
    return worst


def fisher_probability(counts: Counts, others: Counts) -> float:
    """Returns the probability that at least `counts.failed` of all failures are among `counts.calls`, by chance.

    Args:
        counts: the counts of one group.
        others: the counts of all other groups together.
    """
    calls, failed = counts.calls + others.calls, counts.failed + others.failed
    total = _log_choose(calls, failed)
    probability = 0.0
    for each in range(counts.failed, min(counts.calls, failed) + 1):
        logarithm = _log_choose(counts.calls, each) + _log_choose(others.calls, failed - each) - total
        term = math.exp(logarithm)
        probability += term
        if term < probability * 1e-12 and each > failed * counts.calls / calls:
            break  # the terms after the expected number only become smaller
    return min(probability, 1.0)


def wilson_lower(counts: Counts) -> float:
    """Returns the lower bound of the failed share, at a confidence of 95 % (Wilson's interval)."""
    if not counts.calls:
        return 0.0
    z, n, share = 1.96, counts.calls, counts.share
    spread = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max((share + z * z / (2 * n) - spread) / (1 + z * z / n), 0.0)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
