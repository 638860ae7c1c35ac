"""Searches texts for values in other groups of characters: `DE12 3456` is the same as `DE-123456`.

The texts are joined once without single separators; a search is then plain. What is searched in all has a limit.
"""

import re
from collections.abc import Iterable
from typing import Final

MAX_SEARCHED_CHARS: Final = 20_000_000
"""Characters that are searched for the values of one response; from then on each value counts as found."""
SEARCH_COST: Final = 500
"""Characters that count for starting a search."""
_LONG_GAP: Final = re.compile(r"[\W_]{2,}")
_RUN: Final = re.compile(r"[a-z0-9]+|[^\W_a-z0-9]+")
"""A word; in text without spaces between words, such as Chinese, a code is a word of its own."""


class SearchBudget:
    """Counts the characters that were searched for the values of one response."""

    def __init__(self) -> None:
        self.searched_chars = 0

    def is_left(self) -> bool:
        """Returns whether more may be searched."""
        return self.searched_chars < MAX_SEARCHED_CHARS

    def find(self, text: str, value: str, begin: int = 0) -> int:
        """Returns where the text contains the value, and counts what was searched; -1: nowhere.

        Args:
            text: The text.
            value: What is searched.
            begin: Position from which on it is searched.
        """
        found = text.find(value, begin)
        self.searched_chars += SEARCH_COST + (found + len(value) if found >= 0 else len(text)) - begin
        return found


class CompactText:
    """Texts without single separators, in which words begin and end at known places."""

    def __init__(self, texts: Iterable[str], budget: SearchBudget) -> None:
        """
        Args:
            texts: Texts, in lower case.
            budget: What may be searched.
        """
        self._budget = budget
        self._is_edge = bytearray()
        segments: list[str] = []
        for segment in (segment for text in texts for segment in _LONG_GAP.split(text)):
            runs = _RUN.findall(segment)
            segments.append("".join(runs))
            for run in runs:
                self._is_edge += b"\1" + bytes(len(run) - 1)
            self._is_edge.append(True)
        self._text = "\n".join(segments)

    def contains(self, compact: str, *, whole_words: bool) -> bool:
        """Returns whether the value occurs, or the budget is used up.

        Args:
            compact: The value in lower case, without separators.
            whole_words: Whether it must begin and end with a word.
        """
        begin = 0
        while self._budget.is_left():
            found = self._budget.find(self._text, compact, begin)
            if found < 0:
                return False
            if not whole_words or (self._is_edge[found] and self._is_edge[found + len(compact)]):
                return True
            begin = found + 1
        return True
