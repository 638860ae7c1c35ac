"""Finds the passages of a page that contain a text, in any case and with any white space between its words.

The search takes time proportional to the page, also for hostile pages: no regular expression is built from the text.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, islice
from typing import Final, TypeAlias

Span: TypeAlias = tuple[int, int]

MAX_PATTERN_CHARS: Final = 500
_CONTEXT_CHARS: Final = 300
"""Characters of a passage before and after the text, at most."""
_MAX_FOUND: Final = 20
_MORE: Final = "[…]"
_TOKEN: Final = re.compile(r"\S+")


def find_passages(text: str, pattern: str) -> str:
    """Returns the first passages of the text that contain the pattern; "" if there are none.

    Args:
        text: The text of a page.
        pattern: The text to find, not empty.
    """
    passages: list[Span] = []
    for first, last in islice(_places(text, pattern), _MAX_FOUND):
        start, end = _passage_start(text, first), _passage_end(text, last)
        if passages and start <= passages[-1][1]:
            passages[-1] = passages[-1][0], end
        else:
            passages.append((start, end))
    if not passages:
        return ""
    parts = [text[start:end].strip() for start, end in passages]
    before = [_MORE] if passages[0][0] > 0 else []
    after = [_MORE] if passages[-1][1] < len(text) else []
    return " ".join([*before, f"\n{_MORE}\n".join(parts), *after])


def _places(text: str, pattern: str) -> Iterator[Span]:
    """Yields where the pattern is, without overlaps, from the beginning of its first token to the end of its last."""
    spans = [match.span() for match in _TOKEN.finditer(text)]
    tokens = [text[start:end].casefold() for start, end in spans]
    plain, needle = " ".join(tokens), " ".join(pattern.casefold().split())
    starts = [*accumulate((len(token) + 1 for token in tokens), initial=0)]
    at = plain.find(needle)
    while at >= 0:
        first, last = (bisect_right(starts, place) - 1 for place in (at, at + len(needle) - 1))
        yield spans[first][0], spans[last][1]
        at = plain.find(needle, at + len(needle))


def _passage_start(text: str, at: int) -> int:
    """Returns where the passage around this place begins, after a white space."""
    first = max(0, at - _CONTEXT_CHARS)
    if first == 0:
        return 0
    space = re.search(r"\s", text[first:at])
    return first + space.end() if space else first


def _passage_end(text: str, at: int) -> int:
    """Returns where the passage around this place ends, before a white space."""
    last = min(len(text), at + _CONTEXT_CHARS)
    if last == len(text):
        return last
    space = re.search(r"\s\S*$", text[at:last])
    return at + space.start() if space else last
