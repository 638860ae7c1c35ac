r"""Joins characters that an upstream server split: half a surrogate pair at the end of one chunk, the rest in the next.

    data: {"content": "\ud83d"}        data: {"content": "\ude00"}        →   "😀"

Servers in JavaScript that slice strings send such chunks. UTF-8 cannot encode halves. Each half is therefore first
replaced by one of 2,048 characters of the last private-use plane, which do not occur in other text. Once the next chunk
of the same text arrives, the two halves are joined, or a single half becomes U+FFFD.
"""

import re
from collections.abc import Hashable
from typing import Final

from dragoman.text.json_cursor import ESCAPE

_FIRST: Final = 0xD800
_FIRST_MARK: Final = 0x10F800
_LOW: Final = 0x400
"""Offset of the low surrogates, which are second in a pair."""
_MARKS: Final = re.compile("([\U0010f800-\U0010fbff])([\U0010fc00-\U0010ffff])|[\U0010f800-\U0010ffff]")
REPLACEMENT_CHAR: Final = "\ufffd"


def may_have_surrogates(data: bytes) -> bool:
    """Returns whether the JSON may contain half a surrogate pair. Fast; may return True wrongly."""
    return data.find(b"\\ud") >= 0 or data.find(b"\\uD") >= 0  # `in` takes longer


class SurrogateJoiner:
    """Joins the surrogate halves of one response."""

    __slots__ = ("_waiting", "has_marks", "has_unpaired")

    def __init__(self) -> None:
        self.has_marks = False
        """A half was found: every later text must be passed to `join`."""
        self.has_unpaired = False
        """A half without its counterpart was replaced by U+FFFD."""
        self._waiting: dict[Hashable, str] = {}

    def mark(self, data: bytes) -> bytes:
        """Returns the JSON with marks for halves at the start or end of a string, and U+FFFD for all others."""
        return ESCAPE.sub(lambda match: self._mark_half(match, data) if match["lone"] else match[0], data)

    def _mark_half(self, match: re.Match[bytes], data: bytes) -> bytes:
        code = int(match["lone"][2:], 16) - _FIRST
        begins = (
            data[match.start() - 1 : match.start()] == b'"' and data[match.start() - 2 : match.start() - 1] != b"\\"
        )
        if begins if code >= _LOW else data[match.end() : match.end() + 1] == b'"':
            self.has_marks = True
            return chr(_FIRST_MARK + code).encode()
        self.has_unpaired = True
        return rb"\ufffd"

    def join(self, place: Hashable, text: str) -> str:
        """Returns the text without marks. A half at its end is held back for the next text of the same `place`."""
        if not text:
            return text
        text = self._waiting.pop(place, "") + text
        if "\U0010f800" <= text[-1] < "\U0010fc00":
            self._waiting[place], text = text[-1], text[:-1]
        return self.replace_marks(text)

    def replace_marks(self, text: str) -> str:
        """Returns the text without marks, if nothing follows it."""
        return _MARKS.sub(self._joined_char, text)

    def _joined_char(self, match: re.Match[str]) -> str:
        if not match[1]:
            self.has_unpaired = True
            return REPLACEMENT_CHAR
        high, low = ord(match[1]) - _FIRST_MARK, ord(match[2]) - _FIRST_MARK - _LOW
        return chr(0x10000 + (high << 10) + low)

    def flush(self, place: Hashable) -> str:
        """Returns U+FFFD if a half of this `place` is held back, because nothing follows it; else ""."""
        self.has_unpaired = self.has_unpaired or place in self._waiting
        return REPLACEMENT_CHAR if self._waiting.pop(place, "") else ""
