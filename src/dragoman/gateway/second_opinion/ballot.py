"""Selects one of several second responses: the guard validates each, and the calls that most of them make are used.

    sample 1   get_weather({"city": "Rome"})     \\
    sample 2   get_weather({"city": "Paris"})     >  get_weather({"city": "Rome"}): 2 of 3
    sample 3   get_weather({"city": "Rome"})     /

Invalid samples have no vote. Of calls with equally many votes, those of the earliest sample are used.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from dragoman.core.events import Notice


class Election(NamedTuple):
    """The result of a vote."""

    winner: int
    """Number of the sample that is used, from 0."""
    votes: int
    """Valid samples that made the same calls; 0: none is valid."""
    samples: int
    """Number of samples."""

    def is_certain(self, most: int) -> bool:
        """Returns whether more samples, up to this number, cannot change the result."""
        return self.votes > most // 2

    def notice(self, tokens: str) -> Notice:
        """Returns the warning about the vote.

        Args:
            tokens: What the samples cost.
        """
        share = f"{self.votes} of {self.samples}"
        if self.votes > 1:
            return Notice("samples_compared", f"{share} samples made the calls that are used; {tokens}", detail=share)
        which = "no two valid ones agreed, the first valid one is used" if self.votes else "none was valid"
        return Notice("samples_disagreed", f"of {self.samples} samples {which}; {tokens}", detail=share)


def elect(keys: Sequence[Hashable | None]) -> Election:
    """Returns which sample is used.

    Args:
        keys: What each sample is compared by, in their order; None for an invalid one. At least one.
    """
    counts = Counter(key for key in keys if key is not None)
    if not counts:
        return Election(0, 0, len(keys))
    key, votes = counts.most_common(1)[0]  # of equal counts the first one, in the order of the keys
    return Election(keys.index(key), votes, len(keys))
