r"""Characters that a server cut in two: half a surrogate pair at the end of one piece, the rest in the next.

    data: {"content": "\ud83d"}        data: {"content": "\ude00"}        →   "😀"

Servers in JavaScript that slice strings send such pieces. UTF-8 has no half characters, so each half is first written
as one of 2,048 characters of the last private plane, which no other text holds, and made whole, or U+FFFD, once the
next piece of the same text is there.
"""

import re
from collections.abc import Hashable
from typing import Final

from dragoman.text.json_cursor import ESCAPE

_FIRST: Final = 0xD800
_FIRST_MARK: Final = 0x10F800
_LOW: Final = 0x400
"""The second half of the range: what comes second in a pair."""
_MARKS: Final = re.compile("([\U0010f800-\U0010fbff])([\U0010fc00-\U0010ffff])|[\U0010f800-\U0010ffff]")
BROKEN: Final = "\ufffd"


def has_halves(data: bytes) -> bool:
    """Whether there may be half a pair in this JSON: quick, and sometimes wrongly true."""
    return b"\\ud" in data or b"\\uD" in data


class Halves:
    """Joins the halves of one answer."""

    __slots__ = ("_held", "found", "lost")

    def __init__(self) -> None:
        self.found = False
        """There was a half: from then on every text has to go through `joined`."""
        self.lost = False
        """A half without the other was read as U+FFFD."""
        self._held: dict[Hashable, str] = {}

    def marked(self, data: bytes) -> bytes:
        """The JSON with marks for halves that end or begin a string, and U+FFFD for all others."""
        return ESCAPE.sub(lambda found: self._mark(found, data) if found["lone"] else found[0], data)

    def _mark(self, found: re.Match[bytes], data: bytes) -> bytes:
        code = int(found["lone"][2:], 16) - _FIRST
        begins = (
            data[found.start() - 1 : found.start()] == b'"' and data[found.start() - 2 : found.start() - 1] != b"\\"
        )
        if begins if code >= _LOW else data[found.end() : found.end() + 1] == b'"':
            self.found = True
            return chr(_FIRST_MARK + code).encode()
        self.lost = True
        return rb"\ufffd"

    def joined(self, place: Hashable, text: str) -> str:
        """The text without marks; half a character at its end waits for the next text of the same place."""
        if not text:
            return text
        text = self._held.pop(place, "") + text
        if "\U0010f800" <= text[-1] < "\U0010fc00":
            self._held[place], text = text[-1], text[:-1]
        return self.settled(text)

    def settled(self, text: str) -> str:
        """The text without marks, as nothing follows it."""
        return _MARKS.sub(self._whole, text)

    def _whole(self, found: re.Match[str]) -> str:
        if not found[1]:
            self.lost = True
            return BROKEN
        high, low = ord(found[1]) - _FIRST_MARK, ord(found[2]) - _FIRST_MARK - _LOW
        return chr(0x10000 + (high << 10) + low)

    def left(self, place: Hashable) -> str:
        """What still waits of this place, as nothing follows it."""
        self.lost = self.lost or place in self._held
        return BROKEN if self._held.pop(place, "") else ""
