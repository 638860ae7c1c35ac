r"""JSON as models write it, slips and all, passed on as the JSON that is meant.

    {'city': 'Paris', days: 3, "on": True,}        {"city": "Paris", "days": 3, "on": true}

`MendedJson` reads JSON as `JsonText` does, byte for byte, and where that stops it looks for one of the slips of
`text/json_repairs.py`.
What has been passed on stays passed on, so what may yet turn out to be a slip waits: a comma for what stands behind
it, the quote that ends a string in an object or array too. Whatever the cut, the same text gives the same output.

Nothing is made up, and what can be read in two ways is none of these slips: the problem is that of `JsonText`, at
the same character.
"""

import re
from collections.abc import Collection
from enum import Enum
from typing import Final

from dragoman.text.json_repairs import ALL_SLIPS, COMMENT, MEANS_MORE, MEMBER, NAMED, QUOTED_FIRST
from dragoman.text.json_stream import (
    COLON,
    DONE,
    ESCAPE,
    EXPECTED,
    FIRST_ITEM,
    FIRST_KEY,
    KEY,
    KEY_STRING,
    NEXT_ITEM,
    NEXT_KEY,
    NUMBER,
    SPACE,
    STRING,
    VALUE,
    WORD,
    escaped,
)
from dragoman.text.tolerant_json_paths import PathWise

KEY_LIMIT_CHARS: Final = 128
"""The longest key that is looked for where a string may have ended; names of parameters are shorter in every API."""
GAP_LIMIT_CHARS: Final = 256
"""The longest white space that is looked beyond there."""

# States beside those of `JsonText`: in a string of single quotes, behind a quote or comma that waits, in a comment.
_SINGLE, _KEY_SINGLE, _BEHIND_QUOTE, _BEHIND_COMMA, _LINE, _BLOCK = range(DONE + 1, DONE + 7)
_LITERALS: Final = {"True": "true", "False": "false", "None": "null"}
CLOSES: Final = {NEXT_KEY: "}", NEXT_ITEM: "]"}
_ENDS: Final = {after: f",{closer}" for after, closer in CLOSES.items()}
"""What may stand behind a value, by the state there."""
_BEHIND: Final = {NEXT_KEY: KEY, NEXT_ITEM: VALUE}
"""The state behind the comma."""
_STRINGS: Final = (STRING, KEY_STRING)
_KEYS: Final = (FIRST_KEY, KEY)
_VALUES: Final = (VALUE, FIRST_ITEM)
_REMARKS: Final = (FIRST_KEY, FIRST_ITEM, KEY, NEXT_KEY, NEXT_ITEM)
"""Where a comment may stand."""

_BLANK: Final = " \t\n\r"
_GAP: Final = re.compile(r"(?:[ \t\n\r]|\\[nrt])*")
_SINGLE_RUN: Final = re.compile(r"[^'\"\\\x00-\x1f\ud800-\udfff]*")
_KEY_CHARS: Final = rf"\\\x00-\x1f]{{0,{KEY_LIMIT_CHARS}}}"
_QUOTED_KEY: Final = re.compile(rf"""(?:"[^"{_KEY_CHARS}("?)|'[^'{_KEY_CHARS}('?))[ \t\n\r]{{0,9}}(.?)""", re.DOTALL)
_BARE_KEY: Final = re.compile(rf"([A-Za-z_$][\w$-]{{0,{KEY_LIMIT_CHARS}}}|[0-9]{{1,9}})[ \t]{{0,9}}(.?)", re.DOTALL)


class _Is(Enum):
    """What a look ahead has found."""

    SO = "what was looked for comes next"
    NOT = "something else does"
    OPEN = "more of the text has to be seen"
    UNCLEAR = "either may be meant"


class MendedJson(PathWise):
    """Recognises one JSON value, piece by piece, slips and all."""

    __slots__ = ("_before", "_held", "_inner", "_mends", "_odd", "_resume", "_single", "slips")

    def __init__(self, mends: Collection[str] = ALL_SLIPS) -> None:
        """`mends`: the slips that are mended, by their names."""
        super().__init__()
        self._mends = mends
        self.slips: dict[str, None] = {}
        """The names of those that were, in the order in which they came first."""
        self._held: list[str] = []  # a comma or quote, then white space, while it waits for what stands behind it
        self._resume = VALUE  # the state behind a comment
        self._single = False  # it began the string that may end here in single quotes
        self._before = ""  # the last character of such a string
        self._inner = False  # this string has quotes that do not end it
        self._odd = False  # one of them is open

    @property
    def in_doubt(self) -> bool:
        """What was read last may be no part of the value; where nothing ends it, it is none."""
        return self._inner or self._state in (_LINE, _BLOCK)

    def feed(self, buf: str, pos: int, closed: bool = False) -> int:
        """As `JsonText` has it."""
        end = len(buf)
        while pos < end and self._state != DONE and not self.problem:
            before, state = pos, self._state
            pos = self._step(buf, pos, closed)
            if pos == before and state == self._state:
                break
        if closed and pos == end:
            self._out += self._held
            self._held.clear()
        return pos

    def _step(self, buf: str, pos: int, closed: bool) -> int:
        """Behind the next part of the text, or before it where more of it has to be seen."""
        state = self._state
        if state in _STRINGS:
            pos = self._string(buf, pos)
        elif state > DONE:
            return self._beside(buf, pos)
        elif buf[pos] == "," and state in _BEHIND:
            pos = self._comma(buf, pos)
        else:
            self.breaks = self._names = False
            pos = self._structure(buf, pos, closed)
        return self._mend(buf, pos) if self.problem else pos

    def _slip(self, name: str) -> bool:
        """Note this slip; False where it is not to be mended."""
        if name in self._mends:
            self.slips[name] = None
        return name in self._mends

    def _beside(self, buf: str, pos: int) -> int:
        """In a state that JSON does not have."""
        if self._state in (_SINGLE, _KEY_SINGLE):
            return self._in_single(buf, pos)
        if self._state in (_LINE, _BLOCK):
            return self._in_comment(buf, pos)
        if buf[pos] in _BLANK:
            stop = SPACE.match(buf, pos).end()  # type: ignore[union-attr]
            self._held.append(buf[pos:stop])
            return stop
        return self._behind_comma(buf, pos) if self._state == _BEHIND_COMMA else self._behind_quote(buf, pos)

    def _let_go(self) -> None:
        """What waited is JSON's."""
        self._out += self._held
        self._held.clear()
        self._inner = self._odd = False

    # Strings

    def _quote(self, buf: str, pos: int, stop: int) -> int:
        if self._state == KEY_STRING or not (self._open and self._mends):
            return super()._quote(buf, pos, stop)
        if not self._inner and (buf[stop + 1 : stop + 2] or " ") in _ENDS[self._open[-1]]:
            return super()._quote(buf, pos, stop)
        self._out.append(buf[pos:stop])
        return self._wait(stop)

    def _wait(self, stop: int) -> int:
        """Behind a quote that may end the string."""
        self._held.append('"')
        self._single, self._state = self._state == _SINGLE, _BEHIND_QUOTE
        return stop + 1

    def _raw(self, buf: str, pos: int) -> int:
        if buf[pos] >= "\ud800" or self._slip("controls"):
            return super()._raw(buf, pos)
        self.problem = "expected no control characters in a string"
        return pos

    def _in_single(self, buf: str, pos: int) -> int:
        """In a string of single quotes."""
        stop = _SINGLE_RUN.match(buf, pos).end()  # type: ignore[union-attr]
        if stop > pos:
            self._out.append(buf[pos:stop])
            self._before = buf[stop - 1]
            return stop
        char = buf[pos]
        if char == "\\":
            return self._single_escape(buf, pos)
        if char == "'" and self._state == _SINGLE and self._open:
            return self._wait(pos)
        if char == "'":
            self._out.append('"')
            self._state = COLON if self._state == _KEY_SINGLE else self._after_value()
        elif char == '"':
            self._out.append('\\"')
            self._before = char
        else:
            return self._raw(buf, pos)
        return pos + 1

    def _single_escape(self, buf: str, pos: int) -> int:
        self._before = ""
        if buf[pos + 1 : pos + 2] == "'":
            self._out.append("'")
            return pos + 2
        pos = self._one_escape(buf, pos)
        return self._mend(buf, pos) if self.problem else pos

    def _behind_quote(self, buf: str, pos: int) -> int:
        """Tell whether the quote that waits ended its string."""
        found = self._ended(buf, pos, self._open[-1])
        if found is _Is.OPEN:
            return pos
        if found is _Is.NOT and self._slip("inner_quotes"):
            self._go_on(buf[pos])
            return pos
        self._let_go()
        self._state = self._open[-1]
        if found is not _Is.SO:
            self.problem = f"expected {EXPECTED[self._state]}"
        return pos

    def _go_on(self, behind: str) -> None:
        """The quote that waits is part of its string."""
        gap = "".join(self._held[1:])
        self._held.clear()
        shown = "".join(char if char == " " else escaped(char) for char in gap)
        if shown != gap and not self._slip("controls"):
            self.problem = "expected no control characters in a string"
        self._out.append(("'" if self._single else '\\"') + shown)
        if not (self._single and self._before.isalnum() and behind.isalnum() and not gap):  # no apostrophe
            self._odd = not self._odd
        self._inner, self._before = True, (gap or "'")[-1]
        self._state = _SINGLE if self._single else STRING

    def _ended(self, buf: str, pos: int, after: int) -> _Is:
        """Whether the string ended, as what stands at `pos`, behind its quote and white space, belongs to no string."""
        char = buf[pos]
        if char == CLOSES[after]:
            return _Is.UNCLEAR if self._odd else _Is.SO
        if char == "," and not (self._inner or self._single):
            return _Is.SO
        if char == ",":
            found = self._goes_on(buf, pos + 1, after)
            return _Is.UNCLEAR if found in (_Is.SO, _Is.NOT) and self._odd is (found is _Is.SO) else found
        if char in "\"'":
            return self._behind_both(buf, pos, after)
        if char in "/\\" and not self._odd:
            return self._behind_slash(buf, pos, after)
        opens = len(self._held) == 1 and (char.isalnum() or char in QUOTED_FIRST)
        return _Is.NOT if self._odd or opens else _Is.UNCLEAR

    def _behind_slash(self, buf: str, pos: int, after: int) -> _Is:
        """Whether the string ended before what may be a comment, or an escape that means white space."""
        gap = len(self._held) > 1
        if buf[pos] == "/":
            two = buf[pos : pos + 2]
            if two in ("//", "/*"):
                return _Is.SO if gap and not self._inner else _Is.UNCLEAR
            return _Is.OPEN if two == "/" else _Is.UNCLEAR if gap else _Is.NOT
        stop = _GAP.match(buf, pos).end()  # type: ignore[union-attr]
        if stop - pos > GAP_LIMIT_CHARS:
            return _Is.UNCLEAR
        if buf[stop:] in ("", "\\"):
            return _Is.OPEN
        return _Is.SO if buf[stop] in _ENDS[after] and stop > pos else _Is.UNCLEAR

    def _behind_both(self, buf: str, pos: int, after: int) -> _Is:
        """Whether the string ended where another quote stands behind its own: a comma may be missing."""
        gap = "".join(self._held[1:])
        if self._odd and not gap:
            return _Is.NOT
        if not gap or after == NEXT_ITEM:
            return _Is.NOT if self._odd else _Is.UNCLEAR
        found = self._is_key(buf, pos)
        if found is _Is.SO:
            return _Is.SO if "\n" in gap and not self._odd and "commas" in self._mends else _Is.UNCLEAR
        return _Is.UNCLEAR if found is _Is.NOT and not self._odd else found

    def _goes_on(self, buf: str, pos: int, after: int) -> _Is:
        """Whether what follows a comma is another member, or item."""
        at = _GAP.match(buf, pos).end()  # type: ignore[union-attr]
        char = buf[at : at + 1]
        if at - pos > GAP_LIMIT_CHARS or char in ("/", "#"):
            return _Is.UNCLEAR
        if not char or (char == "\\" and at + 1 == len(buf)):
            return _Is.OPEN
        if char == CLOSES[after]:
            return _Is.SO
        if after == NEXT_KEY:
            return self._is_key(buf, at)
        if char in "\"'[{":
            return _Is.SO
        stop = WORD.match(buf, at).end()  # type: ignore[union-attr]
        word = buf[at:stop]
        if stop == len(buf) and len(word) <= KEY_LIMIT_CHARS:
            return _Is.OPEN
        value = word in ("true", "false", "null", *_LITERALS) or NUMBER.fullmatch(word)
        return _Is.SO if value else _Is.NOT

    def _is_key(self, buf: str, pos: int) -> _Is:
        """Whether a key and its colon come next."""
        if buf[pos] not in "\"'":
            bare = _BARE_KEY.match(buf, pos)
            if not bare:
                return _Is.NOT
            return _Is.OPEN if not bare[2] else _Is.SO if bare[2] == ":" and "bare_keys" in self._mends else _Is.NOT
        quoted = _QUOTED_KEY.match(buf, pos)
        assert quoted, "it begins with a quote"
        if not quoted[3]:
            return _Is.OPEN
        if not (quoted[1] or quoted[2]) or quoted[3] in _BLANK:
            return _Is.UNCLEAR
        return _Is.SO if quoted[3] == ":" else _Is.NOT

    # Commas and comments

    def _comma(self, buf: str, pos: int) -> int:
        """A comma and white space behind it, which wait where it may be one too many."""
        if self._state == NEXT_KEY and (member := MEMBER.match(buf, pos)):
            self._out.append(member[0])
            self._state = VALUE
            return member.end()
        stop = SPACE.match(buf, pos + 1).end()  # type: ignore[union-attr]
        if (buf[stop : stop + 1] or "]") not in "]},/#\\":
            self._out.append(buf[pos:stop])
            self._state = _BEHIND[self._state]
        else:
            self._held.append(buf[pos:stop])
            self._state = _BEHIND_COMMA
        return stop

    def _behind_comma(self, buf: str, pos: int) -> int:
        char, after = buf[pos], self._open[-1]
        if char == CLOSES[after] and self._slip("commas"):
            self._held[0] = self._held[0][1:]
            self._let_go()
            self._state = after
            return pos
        if char == "," and after == NEXT_KEY and self._slip("commas"):
            return pos + 1
        taken = self._remark(buf, pos) if char in "/#\\" else -1
        if taken < 0:
            self._let_go()
            self._state = _BEHIND[after]
        return max(pos, taken)

    def _remark(self, buf: str, pos: int) -> int:
        """Behind what begins a comment, or an escape that means white space; -1 where neither does."""
        if pos + 1 == len(buf):
            return pos if ("escapes" if buf[pos] == "\\" else "comments") in self._mends else -1
        if buf[pos] == "\\":
            return pos + 2 if buf[pos + 1] in "nrt" and self._slip("escapes") else -1
        begun = COMMENT.match(buf, pos)
        if not (begun and self._slip("comments")):
            return -1
        self._resume, self._state = self._state, _BLOCK if begun[0] == "/*" else _LINE
        return begun.end()

    def _in_comment(self, buf: str, pos: int) -> int:
        end = "*/" if self._state == _BLOCK else "\n"
        stop = buf.find(end, pos)
        if stop < 0:
            return len(buf) - buf.endswith("*")
        self._state = self._resume
        return stop + len(end)

    # What JSON does not have

    def _mend(self, buf: str, pos: int) -> int:
        """Behind the slip at `pos`, where a problem was found; the problem stays where it is none."""
        problem, self.problem = self.problem, ""
        taken = self._mended(buf, pos)
        if taken < 0:
            self.problem = problem
        return max(pos, taken)

    def _mended(self, buf: str, pos: int) -> int:
        """Behind the slip, or before it where more of it has to be seen; -1 where it is none."""
        char, state = buf[pos], self._state
        if state in (STRING, KEY_STRING, _SINGLE, _KEY_SINGLE):
            return self._escape(buf, pos) if char == "\\" and "escapes" in self._mends else -1
        if char == "\\" or (char in "/#" and state in _REMARKS):
            return self._remark(buf, pos)
        if char == "'" and state in (*_KEYS, *_VALUES):
            return self._open_single(pos)
        if state in _KEYS:
            return self._bare_key(buf, pos)
        if state in _VALUES:
            return self._literal(buf, pos)
        return self._missing_comma(buf, pos) if state in _BEHIND else -1

    def _escape(self, buf: str, pos: int) -> int:
        r"""An escape that JSON does not have: `\'` is the quote, any other backslash stands for itself."""
        if buf.startswith("U", pos + 1) and pos + 2 == len(buf):
            return pos
        if MEANS_MORE.match(buf, pos) or ESCAPE.match(buf, pos):
            return -1
        if NAMED.match(buf, pos + 1):
            if self.breaks:
                return -1
            self._names = True
        self.slips["escapes"] = None
        if buf[pos + 1] == "'":
            self._out.append("'")
            return pos + 2
        self._out.append("\\\\")
        return pos + 1

    def _open_single(self, pos: int) -> int:
        if not self._slip("quotes"):
            return -1
        self._out.append('"')
        self._state = _KEY_SINGLE if self._state in _KEYS else _SINGLE
        self._before = ""
        return pos + 1

    def _bare_key(self, buf: str, pos: int) -> int:
        found = self._is_key(buf, pos) if "bare_keys" in self._mends else _Is.NOT
        if found is _Is.OPEN:
            return pos
        bare = _BARE_KEY.match(buf, pos)
        if not bare or found is not _Is.SO:
            return -1
        self.slips["bare_keys"] = None
        self._out.append(f'"{bare[1]}"')
        self._state = COLON
        return pos + len(bare[1])

    def _literal(self, buf: str, pos: int) -> int:
        stop = WORD.match(buf, pos).end()  # type: ignore[union-attr]
        literal = _LITERALS.get(buf[pos:stop])
        if literal is None or not self._slip("literals"):
            return -1
        self._out.append(literal)
        self._state = self._after_value()
        return stop

    def _missing_comma(self, buf: str, pos: int) -> int:
        after = self._state
        if "commas" not in self._mends:
            return -1
        found = self._is_key(buf, pos) if after == NEXT_KEY else _Is.SO if buf[pos] == "{" else _Is.NOT
        if found is _Is.OPEN:
            return pos
        if found is not _Is.SO:
            return -1
        self.slips["commas"] = None
        self._out.append(",")
        self._state = _BEHIND[after]
        return pos
