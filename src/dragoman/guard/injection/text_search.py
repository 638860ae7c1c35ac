"""Where a text has a name with certain words around it; and how much may be done to find that out."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z0-9_]+")
"""No usual escape touches these letters."""
_WORDS: Final = 12
"""That are looked for; the longest tell most."""
_CHARS_A_STEP: Final = 512
"""Of a text in which a word is looked for."""


class SpentError(Exception):
    """So much has been done that the rest is left."""


class Work:
    """What may still be done, in steps of about half a microsecond: a look at a token, or at 512 characters."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def do(self, steps: int = 1) -> None:
        """Raises: SpentError: nothing is left of it."""
        self.left -= steps
        if self.left < 0:
            raise SpentError


def plain_words(texts: Iterable[str]) -> tuple[str, ...]:
    """The longest words of these texts, as they stand in any of its spellings: `C:\\new ü.txt` has new, txt, C."""
    words = {word for text in texts for word in _PLAIN.findall(text)}
    return tuple(sorted(words, key=lambda word: (-len(word), word))[:_WORDS])


def windows(text: str, name: str, words: Sequence[str], reach: int, work: Work) -> Iterator[str]:
    """Pieces of the text that have the name, and all of these words within `reach` characters of it.

    Each has `reach` before a name and `3 * reach` behind it; the next begins at the first name for which that was not
    enough. Nothing is read but by `str.find`, from a name to the words and from a word that is far to the next name.

    Raises: SpentError.
    """
    at = _found(text, name, 0, work)
    while at >= 0:
        begin = max(0, at - reach)
        for word in words:
            near = _found(text, word, begin, work)
            if near < 0:
                return
            if near > at + reach:
                at = _found(text, name, near - reach, work)
                break
        else:
            yield text[begin : at + len(name) + 3 * reach]
            at = _found(text, name, at + 2 * reach, work)


def _found(text: str, word: str, start: int, work: Work) -> int:
    found = text.find(word, start)
    work.do(1 + ((found if found >= 0 else len(text)) - start) // _CHARS_A_STEP)
    return found
