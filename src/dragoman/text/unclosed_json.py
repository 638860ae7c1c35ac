"""One JSON value of a call, completed where the call ends before its JSON does.

    {"city": "Paris"</tool_call>        {"city": "Paris"}

Where the closer of a call stands, all that is open ends. Outside of strings that is certain. A string may be about
tool calls, so the text after such a closer is read first, as part of the string: the string ended before the closer
only if the JSON cannot go on so, and nothing but the ends and beginnings of calls follows.
"""

import re
from collections.abc import Callable, Collection
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

from dragoman.text.json_stream import (
    DONE,
    FIRST_ITEM,
    FIRST_KEY,
    NEXT_ITEM,
    STOPS_PLAIN,
    STOPS_STRING,
    STRING,
    JsonText,
)
from dragoman.text.tolerant_json import CLOSES, MendedJson
from dragoman.text.tolerant_json_paths import PathWise

if TYPE_CHECKING:
    from dragoman.text.scanner import Leaf, Markers, Scanner

REREAD_LIMIT_CHARS: Final = 65_536
"""Of one reply, read twice to tell whether a string has ended; beyond that it goes on."""
UNCLOSED: Final = "unclosed_object"
_SLOTS: Final = (*JsonText.__slots__, *PathWise.__slots__, *MendedJson.__slots__)
FIRST_WINDOW_CHARS: Final = 256
"""Characters of a value that are searched at once for the end of its call; doubled at each further search."""
_FENCE: Final = "```"
_SPACE: Final = " \t\r\n"
_LINE: Final = re.compile(r"[\r\n]")
_MAY_HAVE_ENDED: Final = ("", *"}])\"'\\,:{[(`")
"""Where a string ends in one of these, the model may have written its end in some other way."""
Search: TypeAlias = Callable[[str], re.Match[str] | None]


@cache
def stops(begins: str) -> tuple[Search, Search]:
    """What stops a run of a string's characters: without escapes, and with them."""
    also = f"|{begins}" if begins else ""
    return re.compile(STOPS_PLAIN + also).search, re.compile(STOPS_STRING + also).search


class ClosingJson(MendedJson):
    """Recognises one JSON value, and can close what stands open in it."""

    __slots__ = ()

    def copy(self) -> "ClosingJson":
        """A second recogniser that stands where this one does."""
        other = ClosingJson(self._mends)
        for name in _SLOTS:
            held = getattr(self, name)
            setattr(other, name, held.copy() if isinstance(held, list | dict) else held)
        return other

    def complete(self) -> bool:
        """Close what stands open, as the call that holds this value ends here; False where the value cannot end here.

        A value may be missing after a comma or colon, so only an open string and brackets are closed. A string that
        ends in a quote or bracket may have ended there, so it stays open.
        """
        ended = self._state in (FIRST_KEY, FIRST_ITEM, *CLOSES)
        in_text = self._state == STRING and not self._inner and bool(self._open)
        if not (ended or in_text) or UNCLOSED not in self._mends:
            return False
        self.slips[UNCLOSED] = None
        self._out += ['"' if in_text else "", *(CLOSES[after] for after in reversed(self._open))]
        self._open.clear()
        self._state, self.problem = DONE, ""
        return True

    def step(self, buf: str, pos: int) -> int:
        """Read one part of the value, such as an escape, where all of it can be seen; where that ends."""
        return pos if self.problem or self._state == DONE else self._step(buf, pos, False)

    @property
    def in_text(self) -> bool:
        """The next character belongs to a string that is a value."""
        return self._state == STRING

    @property
    def in_array(self) -> bool:
        """An array is open."""
        return NEXT_ITEM in self._open


class Unclosed:
    """Reads one value for a scanner, up to its end or that of its call."""

    def __init__(self, s: "Scanner", ends: Collection[str], wanted: "Markers | None", *, completes: bool) -> None:
        """`ends`: what ends the call; `wanted` looks for them in strings, None where there are none."""
        self.value = ClosingJson(s.mends)
        self._s, self._ends, self._wanted = s, ends, wanted
        self._completes = completes and UNCLOSED in s.mends
        self._window_chars = FIRST_WINDOW_CHARS

    def read(self) -> "Leaf[bool]":
        """Take what there is; whether no more can be taken before more text comes."""
        s = self._s
        if self._wanted and self._take_window(self._wanted):
            return False
        stop, end = self._bound()
        if stop == len(s.buf):
            s.pos = self.value.feed(s.buf, s.pos, s.closed)
            return True
        s.pos += self.value.feed(s.buf[s.pos : stop], 0)
        if s.pos < stop or not self.value.in_text:
            before, s.pos = s.pos, self._past(stop, end)
            if s.pos == before and not self.value.problem:
                s.pos = self.value.feed(s.buf, s.pos, s.closed)
            return s.pos in (before, len(s.buf))
        if end < 0 and not s.closed:
            return True
        if end < 0 or s.spent > REREAD_LIMIT_CHARS:
            s.pos = self.value.feed(s.buf, s.pos, s.closed)
            return True
        yield from self._end(end)
        return True

    def _take_window(self, wanted: "Markers") -> bool:
        """Read the next characters up to what may end the call; whether any were read."""
        # A search up to the end of the buffer for each value makes a reply of many values quadratic.
        s, size = self._s, self._window_chars
        if len(s.buf) - s.pos <= size:
            return False
        window = s.buf[s.pos : s.pos + size]
        taken = self.value.feed(window[: wanted.find(window, 0, False)[0]].rstrip(_SPACE), 0)
        s.pos += taken
        self._window_chars *= 2
        return taken > 0

    def ends_here(self) -> "Leaf[bool]":
        """Whether the call ends where a problem was found, and what is open can be closed."""
        s = self._s
        also = ("]",) if s.listed and not self.value.in_array else ()
        found = self._completes and (yield from s.literal(*self._ends, _FENCE, *also, after_space=True))
        if found:
            s.pos -= len(found)
        return bool(found) and self.value.complete()

    def _bound(self) -> tuple[int, int]:
        """Up to where the text cannot be the call's end, and where that ends; -1: it is not all there."""
        s = self._s
        if self._wanted is None:
            return len(s.buf), -1
        if s.buf[s.pos : s.pos + 1] in ("\r", "\n") and s.past_space() == len(s.buf):
            return s.pos, -1
        start, end = self._wanted.find(s.buf, s.pos, s.closed)
        text = s.buf[s.pos : start]
        line = _LINE.search(text, len(text.rstrip(_SPACE)))
        return (s.pos + line.start() if line else start), end

    def _past(self, stop: int, end: int) -> int:
        """Read on where the text up to `stop` does not suffice: a single escape, or up to behind the call's closer."""
        s = self._s
        if self.value.in_text:
            return self.value.step(s.buf, s.pos)
        return s.pos + self.value.feed(s.buf[s.pos : max(end, stop + 1)], 0)

    def _end(self, end: int) -> "Leaf[None]":
        """In a string, before what looks like the call's end: read on behind it, or complete the value."""
        s, last, trial = self._s, self._s.before, self.value.copy()
        at, end = s.pos, end - s.pos
        while True:
            at = trial.feed(s.buf, at, s.closed)
            if trial.done or trial.problem or s.closed:
                break
            ahead = at - s.pos
            yield None
            at = s.pos + ahead
        whole = trial.done and trial.slips == self.value.slips
        cut = s.closed and not s.stopped and not (trial.problem or trial.done)
        if not (whole or cut or last in _MAY_HAVE_ENDED) and self._is_last(s.pos + end) and self.value.complete():
            s.spent += at - s.pos
            return
        self.value, s.pos = trial, at

    def _is_last(self, at: int) -> bool:
        """Whether nothing but ends and beginnings of calls stands there."""
        s = self._s
        rest = s.buf[at:].lstrip(_SPACE)
        return rest.startswith((*self._ends, *s.behind)) or (s.closed and not rest)


def enders(s: "Scanner", ends: Collection[str]) -> tuple[str, ...]:
    """What ends the call whose JSON is read now; nothing where open JSON is not completed."""
    if UNCLOSED not in s.mends:
        return ()
    stripped = (each.strip() for each in (*s.ends, *ends))
    found = dict.fromkeys(each for each in stripped if any(map(str.isalpha, each)))
    return (*found, *(f"]{each}" for each in found if s.listed))
