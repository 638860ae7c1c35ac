"""Selects one of several second responses: the guard validates each, and the calls that most of them make are used.

    sample 1   get_weather({"city": "Rome"})     \\
    sample 2   get_weather({"city": "Paris"})     >  get_weather({"city": "Rome"}): 2 of 3
    sample 3   get_weather({"city": "Rome"})     /

Invalid samples have no vote. Of calls with equally many votes, those of the earliest sample are used. A sample without
calls counts only where no valid one has any.
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
    """Valid samples that made the same calls, or that are all text; 0: none is valid."""
    valid: int
    """Valid samples."""
    failed: int
    """Samples that failed, or were not complete in time."""
    made: int
    """Number of samples, with those that failed."""
    is_text: bool
    """Whether the sample that is used makes no calls."""

    def is_certain(self, most: int) -> bool:
        """Returns whether more samples, up to this number, cannot change the result."""
        return self.votes > most // 2 and not self.is_text

    def notice(self, tokens: str) -> Notice:
        """Returns the warning about the vote.

        Args:
            tokens: What the samples cost.
        """
        share = f"{self.votes} of {self.made}"
        tokens = f"{self.failed} failed; {tokens}" if self.failed else tokens
        if self.votes > 1:
            did = "are text, and none made a valid call" if self.is_text else "made the calls that are used"
            return Notice("samples_compared", f"{share} samples {did}; {tokens}", detail=share)
        which = "no two made the same calls, the first with a valid one is used"
        if self.valid < 2:
            which = "one was valid, and is used" if self.valid else "none was valid"
        return Notice("samples_disagreed", f"of {self.made} samples {which}; {tokens}", detail=share)


def elect(keys: Sequence[Hashable | None], made: int) -> Election:
    """Returns which sample is used.

    Args:
        keys: What each complete sample is compared by, in their order; None for an invalid one, empty for text. At
            least one.
        made: Number of samples, with those that failed.
    """
    failed, valid = made - len(keys), [key for key in keys if key is not None]
    if not valid:
        return Election(0, 0, 0, failed, made, is_text=False)
    calls = [key for key in valid if key]
    key, votes = Counter(calls or valid).most_common(1)[0]  # of equal counts the first one, in the order of the keys
    return Election(keys.index(key), votes, len(valid), failed, made, is_text=not calls)
