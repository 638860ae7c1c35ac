"""Reads text that arrives in pieces, so that no cut of it can ever matter.

A format is an ordinary recursive-descent reader, written as a generator over the leaves below. `yield` in a
leaf means "I need more text"; the place in the code is the state. All that is known of cuts lives here:

    until(markers)    the text up to the first marker; longest marker wins; a marker's beginning is held back
    verbatim_until(…) the same, white space before the marker included
    literal(*alts)    one of these strings, or nothing
    peek(n)           the next n characters, without taking them
    space()           white space
    run(characters)   as many of these characters as come
    raw_until(…)      a raw value up to a closer that something legal follows
    field(ends)       a short text up to one of its ends, such as a name in a header
    ahead(ends)       the same, without taking it
    json_value()      one JSON value, verbatim
    json_string()     one JSON string, decoded

The commit rule (why cuts cannot matter): a leaf decides only what every continuation agrees on, and what it
has consumed when it gives up is fixed by the text alone. Whatever is built of such leaves inherits that.

A leaf may yield `Plain`: which pieces would be passed on whole if it went on with them. Most pieces are, so
whoever drives the generator saves the way down to the leaf and back by passing them on itself.

`feed` and `close` belong to whoever drives the generator; a leaf sees `closed` and takes the end as it is.
"""

import json
import re
from collections.abc import Callable, Collection, Generator, Mapping
from functools import cache
from typing import Final, NamedTuple, TypeAlias, TypeVar

from dragoman.text import unclosed_json
from dragoman.text.json_repairs import ALL_SLIPS
from dragoman.text.taken_text import Recorder
from dragoman.text.tolerant_json import MendedJson

T = TypeVar("T")
Follow: TypeAlias = tuple[tuple[str, ...], ...]
"""What may follow a closer: one of these runs of strings, white space before each; "" is the end of the text, where
the model stopped of itself."""


class Plain(NamedTuple):
    """What a leaf that has taken all the text would do with a piece that `stops` finds nothing in: `emit` it whole."""

    stops: Callable[[str], re.Match[str] | None]
    emit: Callable[[str], None]
    open: Collection[str]
    """What decides nothing at the end of a piece, so that it may wait for the next one."""

    def waits(self, text: str, stop: re.Match[str]) -> int:
        """Where of this piece, which `stop` was found in, that begins which may wait; -1: the leaf has to see it."""
        return stop.start() if stop.end() == len(text) and stop[0] in self.open else -1


Leaf: TypeAlias = Generator[Plain | None, None, T]
"""Yields when more text is needed; returns what it read."""

SPACE: Final = " \t\r\n"
_SPACE = re.compile(r"[ \t\r\n]*")
CUT_OFF: Final = "the text ended inside a value"
GAP_LIMIT_CHARS: Final = 256
"""The longest white space behind the closer of a raw value."""
FIELD_LIMIT_CHARS: Final = 256
"""The longest name or id in a header."""
STRING_LIMIT_CHARS: Final = 4096
"""The longest key or name that `json_string` reads by default; vendors allow 64 to 128 characters."""


def nothing(_: str) -> None:
    """Takes text and drops it: for a leaf whose text is not wanted."""


class Markers:
    """A set of strings to look for at once: leftmost first, then longest."""

    def __init__(self, *markers: str) -> None:
        self._find = re.compile("|".join(re.escape(m) for m in sorted(markers, key=len, reverse=True))).search
        self._beginnings = frozenset(m[:i] for m in markers for i in range(1, len(m)))
        self.longest_chars = max(map(len, markers))
        first = re.compile(f"[{re.escape(''.join({m[0] for m in markers}))}]")
        self._has_first, self._firsts = first.search, first.finditer
        # Two characters tell a closer on a line of its own from a mere line break, and more take long to compile.
        begins = "|".join(
            rf"{re.escape(m[0])}(?:{re.escape(m[1])}|\Z)" if len(m) > 1 else re.escape(m)
            for m in sorted({m[:2] for m in markers})
        )
        self.begins = begins
        """A pattern of that."""
        self.may_begin = re.compile(begins).search
        """Where a text has or ends in what a marker begins with."""
        self.may_begin_or_space_ends = re.compile(rf"{begins}|[{SPACE}]+\Z").search
        self.begun = self._beginnings - {*markers}
        """What may become a marker, and is none yet."""

    def find(self, buf: str, pos: int, closed: bool) -> tuple[int, int]:
        """Where the next marker starts and ends; (start, -1) where `buf` ends in what may become one.

        (len(buf), -1) where there is neither.
        """
        if self._has_first(buf, pos) is None:
            return len(buf), -1
        match = self._find(buf, pos)
        begun = len(buf) if closed else self._begun(buf, pos)
        if match and match.start() < begun:
            return match.span()
        return begun, -1

    def _begun(self, buf: str, pos: int) -> int:
        end = len(buf)
        for match in self._firsts(buf, max(pos, end - self.longest_chars + 1)):
            if buf[match.start() :] in self._beginnings:
                return match.start()
        return end


@cache
def markers(*strings: str) -> Markers:
    """The set of these strings, compiled once."""
    return Markers(*strings)


@cache
def _run_of(characters: str) -> Callable[[str, int], re.Match[str] | None]:
    return re.compile(f"[{re.escape(characters)}]*").match


class Scanner:
    """The text so far and the place in it. Not for sharing between readers."""

    __slots__ = (
        *("_drafted", "_dropped", "_keeping", "_spaced"),
        *("behind", "buf", "closed", "ends", "gap", "listed", "mends", "pos", "shows", "slips", "spent", "stopped"),
    )

    def __init__(self, mends: Collection[str] = ALL_SLIPS) -> None:
        self.mends = mends
        """The slips in JSON that are mended (text/json_repairs.py)."""
        self.slips: dict[str, None] = {}
        """Those that were, since `keep`."""
        self.buf = ""
        self.pos = 0
        self.closed = False
        """Nothing follows `buf`."""
        self.stopped = True
        """The end, once `closed`, is where the model stopped of itself (not at a limit)."""
        self.gap = ""
        """White space that `until` found before its marker."""
        self.ends: tuple[str, ...] = ()
        """What ends a call in this format: JSON that is open there is completed (`text/unclosed_json.py`)."""
        self.behind: tuple[str, ...] = ()
        """What else may follow a call."""
        self.listed = False
        """The calls stand in one array, whose `]` ends them too."""
        self.shows = False
        """Text followed a call in a code fence: the reply shows how calls look."""
        self.spent = 0
        """Characters that were read twice."""
        self._dropped = 0
        self._keeping = Recorder()
        self._drafted = Recorder()
        self._spaced = 0  # up to here there is white space only, from some place at or before `pos`

    def feed(self, text: str) -> None:
        """Put more text behind what has not been taken yet."""
        self._keeping.move(self.buf, self.pos)
        self._drafted.move(self.buf, self.pos)
        self._dropped += self.pos
        self._spaced -= self.pos
        if self.pos == len(self.buf):
            self.buf = text
        else:
            rest, self.buf = self.buf[self.pos :], ""
            rest += text  # the only reference to it: grows in place, so a long wait for more stays linear
            self.buf = rest
        self.pos = 0

    def pass_by(self, text: str) -> None:
        """Take a piece at once, all before it being taken."""
        self._dropped += len(text)
        self._keeping.pass_by(self.buf, self.pos, text)
        self._drafted.pass_by(self.buf, self.pos, text)

    @property
    def offset(self) -> int:
        """Characters taken since the beginning; where text is emitted, the place at which it ends."""
        return self._dropped + self.pos

    @property
    def cut_off(self) -> bool:
        """All is taken, and the text ends here because of a limit."""
        return self.closed and not self.stopped and self.pos == len(self.buf)

    def cut_off_in(self, literal: str) -> bool:
        """Take the rest where a limit ended the text inside this string, white space before it included."""
        cut = self.closed and not self.stopped and literal.startswith(self.buf[self.pos :].lstrip(SPACE))
        self.pos = len(self.buf) if cut else self.pos
        return cut

    def cut_off_in_word(self) -> bool:
        """Take the rest where a limit ended the text within a word, white space around it included."""
        cut = self.closed and not self.stopped and len(self.buf[self.pos :].split()) < 2
        self.pos = len(self.buf) if cut else self.pos
        return cut

    @property
    def before(self) -> str:
        """The last character that was taken and kept; "" where none was."""
        if 0 <= self._keeping.since < self.pos:
            return self.buf[self.pos - 1]
        return next((text[-1] for text in reversed(self._keeping.pieces) if text), "")

    def keep(self, before: str = "") -> None:
        """Remember what is taken from here on, for `kept`, as if `before` had been taken just now."""
        self._keeping.begin(before, self.pos)
        self.slips.clear()

    def kept(self) -> str:
        """What has been taken since `keep`."""
        return self._keeping.text(self.buf, self.pos)

    def forget(self) -> None:
        """Stop remembering."""
        self._keeping.forget()

    def keep_draft(self, before: str) -> None:
        """Remember all that is taken from here on, as if `before` had been taken just now, for `draft` and `rewind`."""
        self._drafted.begin(before, self.pos)

    def draft(self) -> str:
        """What has been taken since `keep_draft`."""
        return self._drafted.text(self.buf, self.pos)

    def forget_draft(self) -> None:
        """Stop remembering it."""
        self._drafted.forget()

    def rewind(self) -> None:
        """Return to where the draft begins."""
        text = self.draft()
        self._dropped = self.offset - len(text)
        self.buf = text + self.buf[self.pos :]
        self.pos = self._spaced = 0
        self.gap = ""
        self.forget()
        self.forget_draft()

    def until(self, wanted: Markers, emit: Callable[[str], None], said: bool = False) -> Leaf[str]:
        """Emit the text up to the first marker and take the marker; which one, or "" at the end of the text.

        White space right before the marker is not emitted but left in `gap`. White space alone is no text,
        unless it ends what has been `said` before.
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
                said = True
            if len(text) < len(whole):
                gap.append(whole[len(text) :])
            self.pos = start
            if end >= 0 or self.closed:
                break
            ready = said and not gap and start == len(self.buf)
            yield Plain(wanted.may_begin_or_space_ends, emit, SPACE) if ready else None
        self.gap = "".join(gap)
        if end < 0 and said:
            self._emit(self.gap, emit)
            self.gap = ""
        self.pos = max(start, end)
        return self.buf[start : self.pos]

    def verbatim_until(self, wanted: Markers, emit: Callable[[str], None]) -> Leaf[str]:
        """As `until`, but white space before the marker is text too."""
        plain: Plain | None = None
        while True:
            start, end = wanted.find(self.buf, self.pos, self.closed)
            text, self.pos = self.buf[self.pos : start], start
            self._emit(text, emit)
            self.pos = max(start, end)
            if end >= 0 or self.closed:
                return self.buf[start : self.pos]
            plain = plain or Plain(wanted.may_begin, emit, wanted.begun)
            yield plain if start == len(self.buf) else None

    def raw_until(self, closers: Mapping[str, Follow], emit: Callable[[str], None]) -> Leaf[str]:
        """Emit a raw value up to a closer that is followed by what may follow it; which closer.

        A closer that something else follows is part of the value. "" where the value was never closed.
        """
        wanted = markers(*closers)
        while True:
            closer = yield from self.verbatim_until(wanted, emit)
            if not closer:
                return ""
            while (here := self.follows(closers[closer])) is None:
                yield None
            if here:
                return closer
            emit(closer)

    def follows(self, follow: Follow, skipped: int = 0) -> bool | None:
        """Whether one of these comes next, so many characters from here; None while that is open."""
        here = [self._comes(strings, self.pos + skipped) for strings in follow]
        return True if True in here else None if None in here else False

    def _comes(self, strings: tuple[str, ...], at: int) -> bool | None:
        """Whether these come at this place, white space before each."""
        for each in strings:
            start, at = at, _SPACE.match(self.buf, at).end()  # type: ignore[union-attr]
            if at - start > GAP_LIMIT_CHARS:
                return False
            rest = self.buf[at : at + max(1, len(each))]
            if not rest and not each:
                return self.stopped if self.closed else None
            if rest != each:
                return None if not self.closed and each.startswith(rest) else False
            at += len(each)
        return True

    def literal(self, *alts: str, after_space: bool = False) -> Leaf[str]:
        """Take the longest of these strings that comes next; "" (and nothing taken) where none does.

        `after_space`: white space may come before it, and is taken with it.
        """
        longest = max(map(len, alts))
        while True:
            start = self.past_space() if after_space else self.pos
            rest = self.buf[start : start + longest]
            whole = len(rest) == longest or self.closed
            if whole or not any(len(a) > len(rest) and a.startswith(rest) for a in alts):
                found = max((a for a in alts if rest.startswith(a)), key=len, default="")
                self.pos = start + len(found) if found else self.pos
                return found
            yield None

    def field(self, ends: Markers, limit_chars: int = FIELD_LIMIT_CHARS) -> Leaf[tuple[str, str] | None]:
        """The text up to one of `ends`, and which; None (and nothing taken) where none comes within the limit."""
        found = yield from self.ahead(ends, limit_chars)
        self.pos += len("".join(found or ()))
        return found

    def ahead(self, ends: Markers, limit_chars: int = FIELD_LIMIT_CHARS) -> Leaf[tuple[str, str] | None]:
        """As `field`, without taking anything."""
        while True:
            # No more than can matter: the rest of a long text would be searched again at each marker.
            window = self.buf[self.pos : self.pos + limit_chars + ends.longest_chars]
            start, end = ends.find(window, 0, self.closed)
            if start > limit_chars or (end < 0 and self.closed):
                return None
            if end >= 0:
                return window[:start], window[start:end]
            yield None

    def peek(self, count: int = 1, after_space: bool = False) -> Leaf[str]:
        """The next characters (those after white space), fewer only at the end of the text; nothing is taken."""
        while True:
            start = self.past_space() if after_space else self.pos
            if len(self.buf) - start >= count or self.closed:
                return self.buf[start : start + count]
            yield None

    def space(self) -> Leaf[None]:
        """Take white space."""
        while True:
            self.pos = self.past_space()
            if self.pos < len(self.buf) or self.closed:
                return
            yield None

    def run(self, characters: str, emit: Callable[[str], None]) -> Leaf[int]:
        """Emit these characters as long as they come; how many."""
        count = 0
        while True:
            end = _run_of(characters)(self.buf, self.pos).end()  # type: ignore[union-attr]
            text, self.pos = self.buf[self.pos : end], end
            self._emit(text, emit)
            count += len(text)
            if end < len(self.buf) or self.closed:
                return count
            yield None

    def past_space(self) -> int:
        """Where the white space ends that comes next."""
        # From where the last look ended: a model that writes white space without end stays linear.
        self._spaced = _SPACE.match(self.buf, max(self.pos, self._spaced)).end()  # type: ignore[union-attr]
        return self._spaced

    def json_value(self, emit: Callable[[str], None], ends: Collection[str] | None = ()) -> Leaf[str]:
        """Pass on one JSON value as it comes, mended; "", or why it is not whole (`CUT_OFF` at the end of the text).

        Stops at the first character that JSON forbids; of a value that is cut off all is taken. `ends`: what ends the
        call here, beside `self.ends`; None: a value that is open there is not completed.
        """
        enders = () if ends is None else unclosed_json.enders(self, ends)
        reading = unclosed_json.Unclosed(self, enders, markers(*enders) if enders else None, completes=ends is not None)
        stops = unclosed_json.stops(markers(*enders).begins if enders else "")
        plain, coded = Plain(stops[0], emit, "\\"), Plain(stops[1], emit, "\\")
        while True:
            waits = yield from reading.read()
            value = reading.value
            self._emit(value.take(), emit)
            if value.problem and (yield from reading.ends_here()):
                self._emit(value.take(), emit)
            if value.done or value.problem:
                self.slips |= value.slips
                return value.problem
            if not waits:
                continue
            if self.closed:
                self.pos = len(self.buf)
                return "expected the end of a string or comment" if self.stopped and value.in_doubt else CUT_OFF
            is_plain = value.in_string and self.pos == len(self.buf)
            yield (coded if value.breaks else plain) if is_plain else None

    def json_string(self, limit_chars: int = STRING_LIMIT_CHARS) -> Leaf[str | None]:
        """One JSON string, decoded; None where none comes next, it is longer than the limit, or is cut off."""
        if (yield from self.peek(1)) not in ('"', "'" if "quotes" in self.mends else '"'):
            return None
        pieces: list[str] = []
        left, value = limit_chars, MendedJson(self.mends)
        while True:
            window = self.buf[self.pos : self.pos + left]
            taken = value.feed(window, 0)
            self.pos += taken
            pieces.append(value.take())
            if value.done:
                self.slips |= value.slips
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
