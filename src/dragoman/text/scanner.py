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
from collections.abc import Callable, Collection, Generator, Mapping
from functools import cache
from typing import Final, NamedTuple, TypeAlias, TypeVar

from dragoman.text import unclosed_json
from dragoman.text.json_repairs import ALL_REPAIRS
from dragoman.text.taken_text import TextCapture
from dragoman.text.tolerant_json import TolerantJsonStream

T = TypeVar("T")
Follows: TypeAlias = tuple[tuple[str, ...], ...]
"""What may follow a closer: one of these sequences of strings, with optional white space before each string. "" is the
end of the text, if the model stopped of itself."""


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

SPACE: Final = " \t\r\n"
_SPACE = re.compile(r"[ \t\r\n]*")
CUT_OFF: Final = "the text ended inside a value"
GAP_LIMIT_CHARS: Final = 256  # the longest white space after the closer of a raw value
FIELD_LIMIT_CHARS: Final = 256  # the longest name or id in the header of a tool call
STRING_LIMIT_CHARS: Final = 4096
"""The longest key or name that `json_string` reads by default. Vendors allow 64 to 128 characters."""


def discard(_: str) -> None:
    """Drops the text. Passed as `emit` where the text of a value is not needed."""


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


@cache
def _run_of(characters: str) -> Callable[[str, int], re.Match[str] | None]:
    return re.compile(f"[{re.escape(characters)}]*").match


class Scanner:
    """The text received so far and the position in it. Each parser has its own."""

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

    def until(self, wanted: Markers, emit: Callable[[str], None], has_text: bool = False) -> Parser[str]:
        """Emit the text up to the first marker and consume the marker. Returns the marker, or "" at the text's end.

        White space before the marker is not emitted but stored in `skipped_space`. At the text's end, white space is
        emitted only after other text, from this call or (`has_text`) before it.
        """
        gap: list[str] = []
        while True:
            start, end = wanted.find(self.buf, self.pos, self.closed)
            whole = self.buf[self.pos : start]
            text = whole.rstrip(SPACE)
            if text:
                self.pos += len(text)
                emit("".join(gap) + text if gap else text)
                gap.clear()
                has_text = True
            if len(text) < len(whole):
                gap.append(whole[len(text) :])
            self.pos = start
            if end >= 0 or self.closed:
                break
            ready = has_text and not gap and start == len(self.buf)
            yield FastPath(wanted.find_start_or_trailing_space, emit, SPACE) if ready else None
        self.skipped_space = "".join(gap)
        if end < 0 and has_text:
            self._emit(self.skipped_space, emit)
            self.skipped_space = ""
        self.pos = max(start, end)
        return self.buf[start : self.pos]

    def verbatim_until(self, wanted: Markers, emit: Callable[[str], None]) -> Parser[str]:
        """Like `until`, but white space before the marker is emitted too."""
        fast_path: FastPath | None = None
        while True:
            start, end = wanted.find(self.buf, self.pos, self.closed)
            text, self.pos = self.buf[self.pos : start], start
            self._emit(text, emit)
            self.pos = max(start, end)
            if end >= 0 or self.closed:
                return self.buf[start : self.pos]
            fast_path = fast_path or FastPath(wanted.find_start, emit, wanted.prefixes)
            yield fast_path if start == len(self.buf) else None

    def raw_until(self, closers: Mapping[str, Follows], emit: Callable[[str], None]) -> Parser[str]:
        """Emit a raw value up to a closer that is followed by one of its `Follows`. Returns that closer.

        A closer that is followed by something else is part of the value. Returns "" if the value is never closed.
        """
        wanted = markers(*closers)
        while True:
            closer = yield from self.verbatim_until(wanted, emit)
            if not closer:
                return ""
            while (is_end := self.follows(closers[closer])) is None:
                yield None
            if is_end:
                return closer
            emit(closer)

    def follows(self, follow: Follows, skipped: int = 0) -> bool | None:
        """Returns whether one of `follow` starts `skipped` characters after `pos`; None if more text has to decide."""
        here = [self._starts_with(strings, self.pos + skipped) for strings in follow]
        return True if True in here else None if None in here else False

    def _starts_with(self, strings: tuple[str, ...], at: int) -> bool | None:
        """Returns whether these strings start at index `at`, with optional white space before each."""
        for each in strings:
            start, at = at, _SPACE.match(self.buf, at).end()  # type: ignore[union-attr]
            if at - start > GAP_LIMIT_CHARS:
                return False
            rest = self.buf[at : at + max(1, len(each))]
            if not rest and not each:
                return self.stopped_by_model if self.closed else None
            if rest != each:
                return None if not self.closed and each.startswith(rest) else False
            at += len(each)
        return True

    def literal(self, *alts: str, after_space: bool = False) -> Parser[str]:
        """Consume and return the longest of these strings that is next; "" (nothing consumed) if none is.

        `after_space`: white space may precede the string and is consumed with it.
        """
        longest = max(map(len, alts))
        while True:
            start = self.space_end() if after_space else self.pos
            rest = self.buf[start : start + longest]
            whole = len(rest) == longest or self.closed
            if whole or not any(len(a) > len(rest) and a.startswith(rest) for a in alts):
                found = max((a for a in alts if rest.startswith(a)), key=len, default="")
                self.pos = start + len(found) if found else self.pos
                return found
            yield None

    def field(self, ends: Markers, limit_chars: int = FIELD_LIMIT_CHARS) -> Parser[tuple[str, str] | None]:
        """Consume and return (text, end) up to the first of `ends`; None (nothing consumed) if beyond the limit."""
        found = yield from self.peek_field(ends, limit_chars)
        self.pos += len("".join(found or ()))
        return found

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

    def space_end(self) -> int:
        """Returns the index in `buf` at which the white space after `pos` ends."""
        # Continues where the last call ended: white space in many chunks takes linear time.
        self._space_end = _SPACE.match(self.buf, max(self.pos, self._space_end)).end()  # type: ignore[union-attr]
        return self._space_end

    def json_value(self, emit: Callable[[str], None], ends: Collection[str] | None = ()) -> Parser[str]:
        """Emit one JSON value, repaired, as it arrives. Returns "", or why the value is not complete.

        Reading stops at the first character that JSON forbids. A truncated value is consumed to the text's end, and
        the result is `CUT_OFF`. `ends`: strings that end the call here, in addition to `call_ends`; if None, a value
        that is open there is not closed.
        """
        enders = () if ends is None else unclosed_json.enders(self, ends)
        wanted = markers(*enders) if enders else None
        reader = unclosed_json.CallValueReader(self, enders, wanted, closes=ends is not None)
        stops = unclosed_json.string_stops(wanted.start_pattern if wanted else "")
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
            taken = value.feed(window, 0)
            self.pos += taken
            pieces.append(value.drain())
            if value.done:
                self.repairs |= value.repairs
                break
            if value.problem or len(window) == left:
                return None
            if self.closed:
                self.pos = len(self.buf)
                return None
            left -= taken
            yield None
        text: str = json.loads("".join(pieces))
        return text

    @staticmethod
    def _emit(text: str, emit: Callable[[str], None]) -> None:
        if text:
            emit(text)
