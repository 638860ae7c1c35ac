"""Reads one JSON value of a tool call, and closes it if the call ends before its JSON does.

    {"city": "Paris"</tool_call>        {"city": "Paris"}

The closer of a call ends everything that is open. Outside of strings that is certain. A string may be about tool calls,
so the text after such a closer is first read as part of the string. The string ended before the closer only if that
reading is invalid JSON and nothing but ends and beginnings of calls follows.
"""

import re
from collections.abc import Callable, Collection
from functools import cache
from typing import Final, TypeAlias

from dragoman.text.buffer import SPACE, Markers, Parser, TextBuffer
from dragoman.text.json_stream import (
    DONE,
    FIRST_ITEM,
    FIRST_KEY,
    NEXT_ITEM,
    STOPS_PLAIN,
    STOPS_STRING,
    STRING,
    JsonStream,
)
from dragoman.text.tolerant_json import CLOSERS, TolerantJsonStream
from dragoman.text.tolerant_json_paths import WindowsPathDetector

REREAD_LIMIT_CHARS: Final = 65_536
"""Characters of one reply that may be read twice to find the end of a string. Beyond that, the string continues."""
UNCLOSED: Final = "unclosed_object"
_SLOTS: Final = (*JsonStream.__slots__, *WindowsPathDetector.__slots__, *TolerantJsonStream.__slots__)
FIRST_WINDOW_CHARS: Final = 256
"""Characters of a value in which the end of its call is searched at first; doubled at each further search."""
_FENCE: Final = "```"
_LINE: Final = re.compile(r"[\r\n]")
_POSSIBLE_ENDS: Final = ("", *"}])\"'\\,:{[(`")
"""If a string's text ends in one of these, the model may have written its end in another way."""
Search: TypeAlias = Callable[[str], re.Match[str] | None]


@cache
def string_stops(start_pattern: str) -> tuple[Search, Search]:
    """Returns two searches for the end of a run of string characters: a run without escapes, and one with them.

    `start_pattern` matches other ends of the run; empty if there are none.
    """
    start = f"|{start_pattern}" if start_pattern else ""
    return re.compile(STOPS_PLAIN + start).search, re.compile(STOPS_STRING + start).search


class ClosableJsonStream(TolerantJsonStream):
    """Reads one JSON value, and can close its open string and containers."""

    __slots__ = ()

    def copy(self) -> "ClosableJsonStream":
        """Returns a second stream with the same state."""
        other = ClosableJsonStream(self._enabled)
        for name in _SLOTS:
            state = getattr(self, name)
            setattr(other, name, state.copy() if isinstance(state, list | dict) else state)
        return other

    def complete(self) -> bool:
        """Closes the open string and containers where the call ends. Returns False if the value cannot end here.

        It cannot end after a comma or colon, nor in a string with inner quotes.
        """
        after_value = self._state in (FIRST_KEY, FIRST_ITEM, *CLOSERS)
        in_value = self._state == STRING and not self._has_inner_quotes and bool(self._open)
        if not (after_value or in_value) or UNCLOSED not in self._enabled:
            return False
        self.repairs[UNCLOSED] = None
        self._out += ['"' if in_value else "", *(CLOSERS[after] for after in reversed(self._open))]
        self._open.clear()
        self._state, self.problem = DONE, ""
        return True

    def step(self, buf: str, pos: int) -> int:
        """Reads one token, such as an escape. Returns the position after it; `pos` if the token is not complete."""
        return pos if self.problem or self._state == DONE else self._step(buf, pos, False)

    @property
    def in_string_value(self) -> bool:
        """The next character is inside a string that is a value, not a key."""
        return self._state == STRING

    @property
    def in_array(self) -> bool:
        """An array is open."""
        return NEXT_ITEM in self._open


class CallValueReader:
    """Reads one value from a buffer, up to the end of the value or of its call."""

    def __init__(self, s: TextBuffer, ends: Collection[str], end_markers: Markers | None, *, closes: bool) -> None:
        """Initialises the reader.

        Args:
            s: The buffer, at the first character of the value.
            ends: Strings that end the call.
            end_markers: Finds `ends` in strings; None if there are none.
            closes: Whether a value that is open at the end of its call is closed.
        """
        self.value = ClosableJsonStream(s.enabled_repairs)
        self._s, self._ends, self._end_markers = s, ends, end_markers
        self._closes = closes and UNCLOSED in s.enabled_repairs
        self._window_chars = FIRST_WINDOW_CHARS

    def read(self) -> Parser[bool]:
        """Reads the text that is available. Returns whether more text is needed to continue."""
        s = self._s
        if self._end_markers and self._take_window(self._end_markers):
            return False
        stop, end = self._bound()
        if stop == len(s.buf):
            s.pos = self.value.feed(s.buf, s.pos, s.closed)
            return True
        s.pos += self.value.feed(s.buf[s.pos : stop], 0)
        if s.pos < stop or not self.value.in_string_value:
            before, s.pos = s.pos, self._past(stop, end)
            if s.pos == before and not self.value.problem:
                s.pos = self.value.feed(s.buf, s.pos, s.closed)
            return s.pos in (before, len(s.buf))
        if end < 0 and not s.closed:
            return True
        if end < 0 or s.reread_chars > REREAD_LIMIT_CHARS:
            s.pos = self.value.feed(s.buf, s.pos, s.closed)
            return True
        yield from self._end(end)
        return True

    def _take_window(self, end_markers: Markers) -> bool:
        """Reads the next characters up to a possible end of the call. Returns whether any were read."""
        # Searching to the end of the buffer for each value would take quadratic time for a reply of many values.
        s, size = self._s, self._window_chars
        if len(s.buf) - s.pos <= size:
            return False
        window = s.buf[s.pos : s.pos + size]
        used = self.value.feed(window[: end_markers.find(window, 0, False)[0]].rstrip(SPACE), 0)
        s.pos += used
        self._window_chars *= 2
        return used > 0

    def close_at_end(self) -> Parser[bool]:
        """Closes the value if the call ends where an error was found. Returns whether it was closed."""
        s = self._s
        array_end = ("]",) if s.calls_in_array and not self.value.in_array else ()
        marker = self._closes and (yield from s.literal(*self._ends, _FENCE, *array_end, after_space=True))
        if marker:
            s.pos -= len(marker)
        return bool(marker) and self.value.complete()

    def _bound(self) -> tuple[int, int]:
        """Returns the start and end of the next possible end of the call; the end is -1 if it is partial or missing."""
        s = self._s
        if self._end_markers is None:
            return len(s.buf), -1
        if s.buf[s.pos : s.pos + 1] in ("\r", "\n") and s.space_end() == len(s.buf):
            return s.pos, -1
        start, end = self._end_markers.find(s.buf, s.pos, s.closed)
        text = s.buf[s.pos : start]
        line = _LINE.search(text, len(text.rstrip(SPACE)))
        return (s.pos + line.start() if line else start), end

    def _past(self, stop: int, end: int) -> int:
        """Returns the position after a token that ends beyond `stop`: an escape, or text up to the closer's end."""
        s = self._s
        if self.value.in_string_value:
            return self.value.step(s.buf, s.pos)
        return s.pos + self.value.feed(s.buf[s.pos : max(end, stop + 1)], 0)

    def _end(self, end: int) -> Parser[None]:
        """In a string, before a possible end of the call: continues the string after it, or closes the value."""
        s, last, trial = self._s, self._s.last_char, self.value.copy()
        at, end = s.pos, end - s.pos
        while True:
            at = trial.feed(s.buf, at, s.closed)
            if trial.done or trial.problem or s.closed:
                break
            distance = at - s.pos
            yield None
            at = s.pos + distance
        is_complete = trial.done and trial.repairs == self.value.repairs
        cut = s.closed and not s.stopped_by_model and not (trial.problem or trial.done)
        if not (is_complete or cut or last in _POSSIBLE_ENDS) and self._is_last(s.pos + end) and self.value.complete():
            s.reread_chars += at - s.pos
            return
        self.value, s.pos = trial, at

    def _is_last(self, at: int) -> bool:
        """Returns whether only ends and beginnings of calls are at index `at`."""
        s = self._s
        rest = s.buf[at:].lstrip(SPACE)
        return rest.startswith((*self._ends, *s.after_call)) or (s.closed and not rest)


def enders(s: TextBuffer, ends: Collection[str]) -> tuple[str, ...]:
    """Returns the strings that end the call whose JSON is being read; none if the repair is disabled."""
    if UNCLOSED not in s.enabled_repairs:
        return ()
    stripped = (each.strip() for each in (*s.call_ends, *ends))
    enders_found = dict.fromkeys(each for each in stripped if any(map(str.isalpha, each)))
    return (*enders_found, *(f"]{each}" for each in enders_found if s.calls_in_array))
