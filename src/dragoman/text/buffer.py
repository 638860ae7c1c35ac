"""The text that a parser has received, the position in it, and searches for markers that chunks may split.

`Scanner` (text/scanner.py) adds the primitives that formats are written with.
"""

import re
from collections.abc import Callable, Collection, Generator
from functools import cache
from typing import Final, NamedTuple, TypeAlias, TypeVar

from dragoman.text.json_repairs import ALL_REPAIRS

T = TypeVar("T")

SPACE: Final = " \t\r\n"
SPACE_RUN: Final = re.compile(r"[ \t\r\n]*")


class FastPath(NamedTuple):
    """Offered by a parser that has consumed all its text: it would `emit` a chunk without a stop unchanged."""

    find_stop: Callable[[str], re.Match[str] | None]
    """Searches a chunk for text that the parser has to see."""
    emit: Callable[[str], None]
    deferrable: Collection[str]
    """Stops that decide nothing at the end of a chunk, so that they may wait for the next chunk."""

    def deferrable_from(self, text: str, stop: re.Match[str]) -> int:
        """Returns the index in the chunk from which text may wait for the next one; -1 if the parser has to see it."""
        return stop.start() if stop.end() == len(text) and stop[0] in self.deferrable else -1


Parser: TypeAlias = Generator[FastPath | None, None, T]
"""Generator that yields when it needs more input and returns the parsed value."""


class Markers:
    """A set of strings to search for at once. The leftmost match wins, then the longest."""

    def __init__(self, *markers: str) -> None:
        self._find = re.compile("|".join(re.escape(m) for m in sorted(markers, key=len, reverse=True))).search
        self._all_prefixes = frozenset(m[:i] for m in markers for i in range(1, len(m)))
        self.longest_chars = max(map(len, markers))
        first = re.compile(f"[{re.escape(''.join({m[0] for m in markers}))}]")
        self._has_first, self._firsts = first.search, first.finditer
        # Two characters distinguish a closer on its own line from a line break. More take long to compile.
        starts = "|".join(
            rf"{re.escape(m[0])}(?:{re.escape(m[1])}|\Z)" if len(m) > 1 else re.escape(m)
            for m in sorted({m[:2] for m in markers})
        )
        self.start_pattern = starts
        """Regular expression of the first two characters of a marker, or of its first one at the text's end."""
        self.find_start = re.compile(starts).search
        self.find_start_or_trailing_space = re.compile(rf"{starts}|[{SPACE}]+\Z").search
        self.prefixes = self._all_prefixes - {*markers}
        """Beginnings of markers that are not markers themselves."""

    def find(self, buf: str, pos: int, closed: bool) -> tuple[int, int]:
        """Returns the start and end of the next marker.

        (start, -1) if `buf` ends in a partial marker that starts there, (len(buf), -1) if it has neither.

        Args:
            buf: The text.
            pos: The index at which the search starts.
            closed: Whether nothing follows `buf`, so that a partial marker is text.
        """
        if self._has_first(buf, pos) is None:
            return len(buf), -1
        match = self._find(buf, pos)
        partial = len(buf) if closed else self._partial_start(buf, pos)
        if match and match.start() < partial:
            return match.span()
        return partial, -1

    def _partial_start(self, buf: str, pos: int) -> int:
        end = len(buf)
        for match in self._firsts(buf, max(pos, end - self.longest_chars + 1)):
            if buf[match.start() :] in self._all_prefixes:
                return match.start()
        return end


@cache
def markers(*strings: str) -> Markers:
    """Returns the `Markers` of these strings, compiled once per set."""
    return Markers(*strings)


class TextCapture:
    """The text consumed since `begin`."""

    __slots__ = ("pieces", "start")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        """Recorded text that is no longer in the buffer."""
        self.start = -1
        """The index in the buffer at which the rest of the recorded text starts; -1 while nothing is recorded."""

    def begin(self, before: str, pos: int) -> None:
        """Record the text from buffer index `pos` on, preceded by `before`."""
        self.pieces = [before]
        self.start = pos

    def discard(self) -> None:
        """Stop recording and drop the recorded text."""
        self.pieces.clear()
        self.start = -1

    def rebase(self, buf: str, pos: int) -> None:
        """Prepare for a buffer that starts at index `pos` of this one."""
        if self.start >= 0:
            self.pieces.append(buf[self.start : pos])
            self.start = 0

    def add(self, buf: str, pos: int, text: str) -> None:
        """Record text that never enters the buffer, all of which (up to `pos`) is consumed."""
        if self.start >= 0:
            if self.start < pos:
                self.pieces.append(buf[self.start : pos])
                self.start = pos
            self.pieces.append(text)

    def text(self, buf: str, pos: int) -> str:
        """Returns the text recorded up to index `pos`; "" while nothing is recorded."""
        return "".join(self.pieces) + buf[self.start : pos] if self.start >= 0 else ""


class TextBuffer:
    """The text that is not consumed yet, the position in it, and what is known about the call at that position."""

    __slots__ = (
        *("_capture", "_draft", "_dropped", "_space_end", "after_call", "buf", "call_ends", "calls_in_array", "closed"),
        *("enabled_repairs", "pos", "repairs", "reread_chars", "shows_examples", "skipped_space", "stopped_by_model"),
    )

    def __init__(self, enabled_repairs: Collection[str] = ALL_REPAIRS) -> None:
        self.enabled_repairs = enabled_repairs
        """Names of the JSON errors to repair (text/json_repairs.py)."""
        self.repairs: dict[str, None] = {}
        """Names of those repaired since `start_capture`."""
        self.buf = ""
        self.pos = 0
        self.closed = False
        """Nothing follows `buf`."""
        self.stopped_by_model = True
        """Valid once `closed`: the model stopped of itself, not at a token limit or a stop string."""
        self.skipped_space = ""
        """White space that `until` found before its marker."""
        self.call_ends: tuple[str, ...] = ()
        """Strings that end a call in this format. JSON that is still open there is closed (`text/unclosed_json.py`)."""
        self.after_call: tuple[str, ...] = ()
        """Other strings that may follow a call."""
        self.calls_in_array = False
        """The calls are items of one array, whose `]` ends them too."""
        self.shows_examples = False
        """Text followed a call in a code fence: the reply shows examples of calls."""
        self.reread_chars = 0
        """Number of characters that were read twice."""
        self._dropped = 0
        self._capture = TextCapture()
        self._draft = TextCapture()
        self._space_end = 0  # only white space precedes this index, from some index at or before `pos`

    def feed(self, text: str) -> None:
        """Append text to the text that is not consumed yet."""
        self._capture.rebase(self.buf, self.pos)
        self._draft.rebase(self.buf, self.pos)
        self._dropped += self.pos
        self._space_end -= self.pos
        if self.pos == len(self.buf):
            self.buf = text
        else:
            rest, self.buf = self.buf[self.pos :], ""
            rest += text  # the only reference: the string grows in place, so many chunks take linear time
            self.buf = rest
        self.pos = 0

    def skip(self, text: str) -> None:
        """Count a chunk as consumed that the driver has emitted itself. All text before it must be consumed."""
        self._dropped += len(text)
        self._capture.add(self.buf, self.pos, text)
        self._draft.add(self.buf, self.pos, text)

    @property
    def offset(self) -> int:
        """Number of characters consumed since the start of the text."""
        return self._dropped + self.pos

    @property
    def truncated(self) -> bool:
        """All text is consumed, and a limit ended it here."""
        return self.closed and not self.stopped_by_model and self.pos == len(self.buf)

    def consume_truncated(self, literal: str) -> bool:
        """Consume the rest, and white space before it, if a limit ended the text inside `literal`. Returns whether."""
        cut = self.closed and not self.stopped_by_model and literal.startswith(self.buf[self.pos :].lstrip(SPACE))
        self.pos = len(self.buf) if cut else self.pos
        return cut

    def consume_truncated_word(self) -> bool:
        """Consume the rest, and white space around it, if a limit ended the text inside a word. Returns whether."""
        cut = self.closed and not self.stopped_by_model and len(self.buf[self.pos :].split()) < 2
        self.pos = len(self.buf) if cut else self.pos
        return cut

    @property
    def last_char(self) -> str:
        """The last captured character; "" if there is none."""
        if 0 <= self._capture.start < self.pos:
            return self.buf[self.pos - 1]
        return next((text[-1] for text in reversed(self._capture.pieces) if text), "")

    def start_capture(self, before: str = "") -> None:
        """Record the text that is consumed from here on, preceded by `before`. Clears `repairs`."""
        self._capture.begin(before, self.pos)
        self.repairs.clear()

    def captured(self) -> str:
        """Returns the text recorded since `start_capture`."""
        return self._capture.text(self.buf, self.pos)

    def stop_capture(self) -> None:
        """Stop recording and discard the recorded text."""
        self._capture.discard()

    def start_draft(self, before: str) -> None:
        """Start a second recording, preceded by `before`, for `draft` and `rewind`."""
        self._draft.begin(before, self.pos)

    def draft(self) -> str:
        """Returns the text recorded since `start_draft`."""
        return self._draft.text(self.buf, self.pos)

    def stop_draft(self) -> None:
        """Stop the second recording and discard its text."""
        self._draft.discard()

    def rewind(self) -> None:
        """Return to the start of the draft, so that its text is read again. Ends both recordings."""
        text = self.draft()
        self._dropped = self.offset - len(text)
        self.buf = text + self.buf[self.pos :]
        self.pos = self._space_end = 0
        self.skipped_space = ""
        self.stop_capture()
        self.stop_draft()

    def literal(self, *alts: str, after_space: bool = False) -> Parser[str]:
        """Consume and return the longest of these strings that is next; "" (nothing consumed) if none is.

        `after_space`: white space may precede the string and is consumed with it.
        """
        longest = max(map(len, alts))
        while True:
            start = self.space_end() if after_space else self.pos
            rest = self.buf[start : start + longest]
            is_decided = len(rest) == longest or self.closed
            if is_decided or not any(len(a) > len(rest) and a.startswith(rest) for a in alts):
                if not rest.startswith(alts):
                    return ""
                literal = max((a for a in alts if rest.startswith(a)), key=len)
                self.pos = start + len(literal) if literal else self.pos
                return literal
            yield None

    def space_end(self) -> int:
        """Returns the index in `buf` at which the white space after `pos` ends."""
        # Continues where the last call ended: white space in many chunks takes linear time.
        start = max(self.pos, self._space_end)
        if self.buf[start : start + 1] in SPACE:
            start = SPACE_RUN.match(self.buf, start).end()  # type: ignore[union-attr]
        self._space_end = start
        return start
