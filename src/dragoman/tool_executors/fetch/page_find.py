"""Finds the passages of a page that contain a text, in any case and with any white space between its words."""

import re
from itertools import islice
from typing import Final

MAX_PATTERN_CHARS: Final = 500
_CONTEXT_CHARS: Final = 300
"""Characters of a passage before and after the text, at most."""
_MAX_FOUND: Final = 20
_MORE: Final = "[…]"


def find_passages(text: str, pattern: str) -> str:
    """Returns the first passages of the text that contain the pattern; "" if there are none.

    Args:
        text: The text of a page.
        pattern: The text to find, not empty.
    """
    written = re.compile(r"\s++".join(map(re.escape, pattern.split())), re.IGNORECASE)
    passages: list[tuple[int, int]] = []
    for match in islice(written.finditer(text), _MAX_FOUND):
        start, end = _word_start(text, match.start()), _word_end(text, match.end())
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


def _word_start(text: str, at: int) -> int:
    """Returns where the passage around this place begins, after a white space."""
    first = max(0, at - _CONTEXT_CHARS)
    if first == 0:
        return 0
    space = re.search(r"\s", text[first:at])
    return first + space.end() if space else first


def _word_end(text: str, at: int) -> int:
    """Returns where the passage around this place ends, before a white space."""
    last = min(len(text), at + _CONTEXT_CHARS)
    if last == len(text):
        return last
    space = re.search(r"\s\S*$", text[at:last])
    return at + space.start() if space else last
