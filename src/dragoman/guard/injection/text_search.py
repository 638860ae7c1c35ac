"""Finds a name with given words near it in a text, within a budget of work."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

_PLAIN_WORD: Final = re.compile(r"[A-Za-z0-9_]+")
"""Words of letters that no usual escape changes."""
_MAX_WORDS: Final = 12
"""Words to search for; the longest are the rarest."""
_CHARS_PER_STEP: Final = 512
"""Characters that are searched in one step of work."""


class BudgetExceeded(Exception):
    """The budget of work is spent."""


class WorkBudget:
    """A budget in steps of about half a microsecond: one look at a token, or a search of 512 characters."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int = 1) -> None:
        """Raises:
        BudgetExceeded: The budget is spent.
        """
        self.left -= steps
        if self.left < 0:
            raise BudgetExceeded


def longest_words(texts: Iterable[str]) -> tuple[str, ...]:
    """Returns the longest words of these texts that are the same in any encoding: `C:\\new ü.txt` has new, txt, C."""
    candidates = {word for text in texts for word in _PLAIN_WORD.findall(text)}
    return tuple(sorted(candidates, key=lambda word: (-len(word), word))[:_MAX_WORDS])


def candidate_windows(
    text: str, name: str, required_words: Sequence[str], reach: int, work: WorkBudget
) -> Iterator[str]:
    """Yields parts of the text that have the name, with all of these words within `reach` characters of it.

    A part begins `reach` characters before a name and ends `3 * reach` after it; the next part begins at the first name
    for which that was not enough. The text is only read by `str.find`: from a name to the words, and from a distant
    word to the next name.

    Args:
        text: The text of a document or tool result.
        name: The tool's name.
        required_words: All of them must occur.
        reach: The greatest distance from the name to a word, in characters.
        work: The budget that the search is charged to.

    Raises:
        BudgetExceeded: The budget is spent.
    """
    at = _find(text, name, 0, work)
    while at >= 0:
        begin = max(0, at - reach)
        for word in required_words:
            word_at = _find(text, word, begin, work)
            if word_at < 0:
                return
            if word_at > at + reach:
                at = _find(text, name, word_at - reach, work)
                break
        else:
            yield text[begin : at + len(name) + 3 * reach]
            at = _find(text, name, at + 2 * reach, work)


def _find(text: str, word: str, start: int, work: WorkBudget) -> int:
    at = text.find(word, start)
    work.spend(1 + ((at if at >= 0 else len(text)) - start) // _CHARS_PER_STEP)
    return at
