"""Incremental text scanner. Results do not depend on how the input is split into chunks.

A format is an ordinary recursive-descent parser, written as a generator over the primitives below. A primitive
yields when it needs more text; the position in the code is the parser's state. Only this module handles chunks:

    until(markers)      text up to the first marker; the longest marker wins; a partial marker is held back
    verbatim_until(…)   the same, but white space before the marker is emitted too
    literal(*alts)      one of these strings, or nothing
    peek(n)             the next n characters, not consumed
    skip_space()        white space
    run(characters)     the longest run of these characters
    raw_until(…)        a raw value up to a closer that is followed by one of the allowed strings
    field(ends)         a short text up to one of `ends`, such as a name in a header
    peek_field(ends)    the same, not consumed
    json_value()        one JSON value, verbatim
    json_string()       one JSON string, decoded

The commit rule makes chunks irrelevant: a primitive decides only what holds for every possible continuation, and
the text it has consumed when it fails depends on the text alone. Parsers built from the primitives inherit this.

A primitive may yield a `FastPath`, which describes the chunks that it would emit unchanged. Most chunks are of that
kind, so the driver of the generator emits them itself and does not resume the parser. The driver also calls `feed`
and sets `closed`.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Final, TypeAlias

from dragoman.text import unclosed_json
from dragoman.text.buffer import SPACE, SPACE_RUN, FastPath, Markers, Parser, TextBuffer, markers
from dragoman.text.tolerant_json import TolerantJsonStream

__all__ = [
    "CUT_OFF",
    "FIELD_LIMIT_CHARS",
    "GAP_LIMIT_CHARS",
    "SPACE",
    "STRING_LIMIT_CHARS",
    "FastPath",
    "Follows",
    "Markers",
    "Parser",
    "Scanner",
    "discard",
    "markers",
]

Follows: TypeAlias = tuple[tuple[str, ...], ...]
"""What may follow a closer: one of these sequences of strings, with optional white space before each string. "" is the
end of the text, if the model stopped of itself."""

CUT_OFF: Final = "the text ended inside a value"
GAP_LIMIT_CHARS: Final = 256  # the longest white space after the closer of a raw value
FIELD_LIMIT_CHARS: Final = 256  # the longest name or id in the header of a tool call
STRING_LIMIT_CHARS: Final = 4096
"""The longest key or name that `json_string` reads by default. Vendors allow 64 to 128 characters."""


def discard(_: str) -> None:
    """Drops the text. Passed as `emit` where the text of a value is not needed."""


@cache
def _run_of(characters: str) -> Callable[[str, int], re.Match[str] | None]:
    return re.compile(f"[{re.escape(characters)}]*").match


class Scanner(TextBuffer):
    """A buffer with the primitives that formats are written with. Each parser has its own."""

    __slots__ = ()

    def until(self, stops: Markers, emit: Callable[[str], None], has_text: bool = False) -> Parser[str]:
        """Emit the text up to the first marker and consume the marker. Returns the marker, or "" at the text's end.

        White space before the marker is not emitted but stored in `skipped_space`. At the text's end, white space is
        emitted only after other text, from this call or (`has_text`) before it.

        Args:
            stops: The markers.
            emit: Receives the text.
            has_text: Whether text precedes, from an earlier call.
        """
        gap: list[str] = []
        while True:
            start, end = stops.find(self.buf, self.pos, self.closed)
            found_text = self.buf[self.pos : start]
            text = found_text.rstrip(SPACE)
            if text:
                self.pos += len(text)
                emit("".join(gap) + text if gap else text)
                gap.clear()
                has_text = True
            if len(text) < len(found_text):
                gap.append(found_text[len(text) :])
            self.pos = start
            if end >= 0 or self.closed:
                break
            ready = has_text and not gap and start == len(self.buf)
            yield FastPath(stops.find_start_or_trailing_space, emit, SPACE) if ready else None
        self.skipped_space = "".join(gap)
        if end < 0 and has_text:
            self._emit(self.skipped_space, emit)
            self.skipped_space = ""
        self.pos = max(start, end)
        return self.buf[start : self.pos]

    def verbatim_until(self, stops: Markers, emit: Callable[[str], None]) -> Parser[str]:
        """Like `until`, but white space before the marker is emitted too."""
        fast_path: FastPath | None = None
        while True:
            start, end = stops.find(self.buf, self.pos, self.closed)
            text, self.pos = self.buf[self.pos : start], start
            self._emit(text, emit)
            self.pos = max(start, end)
            if end >= 0 or self.closed:
                return self.buf[start : self.pos]
            fast_path = fast_path or FastPath(stops.find_start, emit, stops.prefixes)
            yield fast_path if start == len(self.buf) else None

    def raw_until(self, closers: Mapping[str, Follows], emit: Callable[[str], None]) -> Parser[str]:
        """Emit a raw value up to a closer that is followed by one of its `Follows`. Returns that closer.

        A closer that is followed by something else is part of the value. Returns "" if the value is never closed. The
        caller may go back to the start of the closer: it is still in the buffer.
        """
        closer_markers = markers(*closers)
        while True:
            closer = yield from self.verbatim_until(closer_markers, emit)
            if not closer:
                return ""
            self.pos -= len(closer)
            while (is_end := self.follows(closers[closer], len(closer))) is None:
                yield None
            self.pos += len(closer)
            if is_end:
                return closer
            emit(closer)

    def follows(self, follow: Follows, skipped: int = 0) -> bool | None:
        """Returns whether one of `follow` starts `skipped` characters after `pos`; None if more text has to decide."""
        matches = [self._starts_with(strings, self.pos + skipped) for strings in follow]
        return True if True in matches else None if None in matches else False

    def _starts_with(self, strings: tuple[str, ...], at: int) -> bool | None:
        """Returns whether these strings start at index `at`, with optional white space before each."""
        for each in strings:
            start, at = at, SPACE_RUN.match(self.buf, at).end()  # type: ignore[union-attr]
            if at - start > GAP_LIMIT_CHARS:
                return False
            rest = self.buf[at : at + max(1, len(each))]
            if not rest and not each:
                return self.stopped_by_model if self.closed else None
            if rest != each:
                return None if not self.closed and each.startswith(rest) else False
            at += len(each)
        return True

    def field(self, ends: Markers, limit_chars: int = FIELD_LIMIT_CHARS) -> Parser[tuple[str, str] | None]:
        """Consume and return (text, end) up to the first of `ends`; None (nothing consumed) if beyond the limit."""
        text_and_end = yield from self.peek_field(ends, limit_chars)
        self.pos += len("".join(text_and_end or ()))
        return text_and_end

    def peek_field(self, ends: Markers, limit_chars: int = FIELD_LIMIT_CHARS) -> Parser[tuple[str, str] | None]:
        """Like `field`, but consumes nothing."""
        while True:
            # Limited, because the rest of a long text would be searched again at each marker.
            window = self.buf[self.pos : self.pos + limit_chars + ends.longest_chars]
            start, end = ends.find(window, 0, self.closed)
            if start > limit_chars or (end < 0 and self.closed):
                return None
            if end >= 0:
                return window[:start], window[start:end]
            yield None

    def peek(self, count: int = 1, after_space: bool = False) -> Parser[str]:
        """Returns the next `count` characters (after white space), fewer only at the text's end. Consumes nothing."""
        while True:
            start = self.space_end() if after_space else self.pos
            if len(self.buf) - start >= count or self.closed:
                return self.buf[start : start + count]
            yield None

    def skip_space(self) -> Parser[None]:
        """Consume white space."""
        while True:
            self.pos = self.space_end()
            if self.pos < len(self.buf) or self.closed:
                return
            yield None

    def run(self, characters: str, emit: Callable[[str], None]) -> Parser[int]:
        """Emit the run of these characters that is next. Returns its length."""
        count = 0
        while True:
            end = _run_of(characters)(self.buf, self.pos).end()  # type: ignore[union-attr]
            text, self.pos = self.buf[self.pos : end], end
            self._emit(text, emit)
            count += len(text)
            if end < len(self.buf) or self.closed:
                return count
            yield None

    def json_value(self, emit: Callable[[str], None], ends: Collection[str] | None = ()) -> Parser[str]:
        """Emit one JSON value, repaired, as it arrives. Returns "", or why the value is not complete.

        Reading stops at the first character that JSON forbids. A truncated value is consumed to the text's end, and
        the result is `CUT_OFF`. `ends`: strings that end the call here, in addition to `call_ends`; if None, a value
        that is open there is not closed.
        """
        enders = () if ends is None else unclosed_json.enders(self, ends)
        end_markers = markers(*enders) if enders else None
        reader = unclosed_json.CallValueReader(self, enders, end_markers, closes=ends is not None)
        stops = unclosed_json.string_stops(end_markers.start_pattern if end_markers else "")
        plain, with_escapes = FastPath(stops[0], emit, "\\"), FastPath(stops[1], emit, "\\")
        while True:
            needs_text = yield from reader.read()
            value = reader.value
            self._emit(value.drain(), emit)
            if value.problem and (yield from reader.close_at_end()):
                self._emit(value.drain(), emit)
            if value.done or value.problem:
                self.repairs |= value.repairs
                return value.problem
            if not needs_text:
                continue
            if self.closed:
                self.pos = len(self.buf)
                in_doubt = self.stopped_by_model and value.in_doubt
                return "expected the end of a string or comment" if in_doubt else CUT_OFF
            is_string = value.in_string and self.pos == len(self.buf)
            yield (with_escapes if value.has_path_escape else plain) if is_string else None

    def json_string(self, limit_chars: int = STRING_LIMIT_CHARS) -> Parser[str | None]:
        """Returns one JSON string, decoded; None if none is next, it exceeds the limit, or it is truncated."""
        if (yield from self.peek(1)) not in ('"', "'" if "quotes" in self.enabled_repairs else '"'):
            return None
        pieces: list[str] = []
        left, value = limit_chars, TolerantJsonStream(self.enabled_repairs)
        while True:
            window = self.buf[self.pos : self.pos + left]
            used = value.feed(window, 0)
            self.pos += used
            pieces.append(value.drain())
            if value.done:
                self.repairs |= value.repairs
                break
            if value.problem or len(window) == left:
                return None
            if self.closed:
                self.pos = len(self.buf)
                return None
            left -= used
            yield None
        text: str = json.loads("".join(pieces))
        return text

    @staticmethod
    def _emit(text: str, emit: Callable[[str], None]) -> None:
        if text:
            emit(text)
