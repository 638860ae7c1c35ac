r"""JSON as models write it, with errors, repaired while it streams.

    {'city': 'Paris', days: 3, "on": True,}        {"city": "Paris", "days": 3, "on": true}

`TolerantJsonStream` reads valid JSON like `JsonStream`, byte for byte. At an error it tries the repairs of
`text/json_repairs.py`. Emitted text cannot be taken back, so text that may need a repair is held back: a comma until
the next character is known, and also the quote that ends a string in an object or array. The output does not depend
on how the text is split into chunks.

Repairs never invent content. Ambiguous input is left as an error: `problem` is that of `JsonStream`, at the same
character.
"""

import re
from collections.abc import Collection
from enum import Enum
from typing import Final

from dragoman.text.json_repairs import ALL_REPAIRS, COMMENT, FOREIGN_ESCAPE, INNER_QUOTE_NEXT, MEMBER, NAME_START
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
    escape_char,
)
from dragoman.text.tolerant_json_paths import WindowsPathDetector

KEY_LIMIT_CHARS: Final = 128
"""The longest key that is recognised after a possible end of a string. Parameter names are shorter in every API."""
GAP_LIMIT_CHARS: Final = 256
"""The longest white space that is skipped there."""

# Additional states: in a single-quoted string or key, after a held-back quote or comma, in a comment.
_SINGLE, _KEY_SINGLE, _AFTER_QUOTE, _AFTER_COMMA, _LINE, _BLOCK = range(DONE + 1, DONE + 7)
_LITERALS: Final = {"True": "true", "False": "false", "None": "null"}
CLOSERS: Final = {NEXT_KEY: "}", NEXT_ITEM: "]"}
_VALUE_ENDS: Final = {after: f",{closer}" for after, closer in CLOSERS.items()}
"""The characters that may follow a value, by the state after it."""
_STATE_AFTER_COMMA: Final = {NEXT_KEY: KEY, NEXT_ITEM: VALUE}
_STRING_STATES: Final = (STRING, KEY_STRING)
_KEY_STATES: Final = (FIRST_KEY, KEY)
_VALUE_STATES: Final = (VALUE, FIRST_ITEM)
_COMMENT_STATES: Final = (FIRST_KEY, FIRST_ITEM, KEY, NEXT_KEY, NEXT_ITEM)
"""The states in which a comment is accepted."""

_BLANK: Final = " \t\n\r"
_GAP: Final = re.compile(r"(?:[ \t\n\r]|\\[nrt])*")
_SINGLE_RUN: Final = re.compile(r"[^'\"\\\x00-\x1f\ud800-\udfff]*")
_KEY_CHARS: Final = rf"\\\x00-\x1f]{{0,{KEY_LIMIT_CHARS}}}"
_QUOTED_KEY: Final = re.compile(rf"""(?:"[^"{_KEY_CHARS}("?)|'[^'{_KEY_CHARS}('?))[ \t\n\r]{{0,9}}(.?)""", re.DOTALL)
_BARE_KEY: Final = re.compile(rf"([A-Za-z_$][\w$-]{{0,{KEY_LIMIT_CHARS}}}|[0-9]{{1,9}})[ \t]{{0,9}}(.?)", re.DOTALL)


class _Lookahead(Enum):
    YES = "what was searched for is next"
    NO = "something else is next"
    NEED_MORE = "more text is needed to decide"
    AMBIGUOUS = "the text can be read either way"


_YES, _NO, _NEED_MORE, _AMBIGUOUS = _Lookahead


class TolerantJsonStream(WindowsPathDetector):
    """Reads one JSON value incrementally and repairs its errors."""

    __slots__ = (
        *("_enabled", "_has_inner_quotes", "_inner_quote_open", "_last_char", "_pending", "_resume", "_single_quoted"),
        "repairs",
    )

    def __init__(self, enabled_repairs: Collection[str] = ALL_REPAIRS) -> None:
        """`enabled_repairs`: names of the repairs to apply; any other error ends the value."""
        super().__init__()
        self._enabled = enabled_repairs
        self.repairs: dict[str, None] = {}
        """Names of the applied repairs, in the order of their first use."""
        self._pending: list[str] = []  # a held-back comma or quote, and the white space after it
        self._resume = VALUE  # the state after the comment
        self._single_quoted = False  # the string that may end at the held-back quote is single-quoted
        self._last_char = ""  # the last character of a single-quoted string
        self._has_inner_quotes = False  # this string contains unescaped quotes that do not end it
        self._inner_quote_open = False  # an inner quotation has begun and not ended

    @property
    def in_doubt(self) -> bool:
        """The text read last (a string with inner quotes, a comment) is not part of the value if it never ends."""
        return self._has_inner_quotes or self._state in (_LINE, _BLOCK)

    def feed(self, buf: str, pos: int, closed: bool = False) -> int:
        """See `JsonStream.feed`."""
        end = len(buf)
        while pos < end and self._state != DONE and not self.problem:
            before, state = pos, self._state
            pos = self._step(buf, pos, closed)
            if pos == before and state == self._state:
                break
        if closed and pos == end:
            self._out += self._pending
            self._pending.clear()
        return pos

    def _step(self, buf: str, pos: int, closed: bool) -> int:
        """Reads the next token. Returns the position after it, or `pos` if more text is needed."""
        state = self._state
        if state in _STRING_STATES:
            pos = self._string(buf, pos)
        elif state > DONE:
            return self._non_json_state(buf, pos)
        elif buf[pos] == "," and state in _STATE_AFTER_COMMA:
            pos = self._comma(buf, pos)
        else:
            self.has_path_escape = self._has_path_backslash = False
            pos = self._structure(buf, pos, closed)
        return self._repair(buf, pos) if self.problem else pos

    def _allow_repair(self, name: str) -> bool:
        """Records the repair and returns True if it is enabled."""
        if name in self._enabled:
            self.repairs[name] = None
        return name in self._enabled

    def _non_json_state(self, buf: str, pos: int) -> int:
        """Reads a token in one of the additional states."""
        if self._state in (_SINGLE, _KEY_SINGLE):
            return self._in_single_quotes(buf, pos)
        if self._state in (_LINE, _BLOCK):
            return self._in_comment(buf, pos)
        if buf[pos] in _BLANK:
            stop = SPACE.match(buf, pos).end()  # type: ignore[union-attr]
            self._pending.append(buf[pos:stop])
            return stop
        return self._after_comma(buf, pos) if self._state == _AFTER_COMMA else self._after_quote(buf, pos)

    def _release_pending(self) -> None:
        """Emits the held-back text unchanged."""
        self._out += self._pending
        self._pending.clear()
        self._has_inner_quotes = self._inner_quote_open = False

    # Strings

    def _quote(self, buf: str, pos: int, stop: int) -> int:
        if self._state == KEY_STRING or not (self._open and self._enabled):
            return super()._quote(buf, pos, stop)
        if not self._has_inner_quotes and (buf[stop + 1 : stop + 2] or " ") in _VALUE_ENDS[self._open[-1]]:
            return super()._quote(buf, pos, stop)
        self._out.append(buf[pos:stop])
        return self._hold_quote(stop)

    def _hold_quote(self, stop: int) -> int:
        """Holds back a quote that may end the string."""
        self._pending.append('"')
        self._single_quoted, self._state = self._state == _SINGLE, _AFTER_QUOTE
        return stop + 1

    def _raw(self, buf: str, pos: int) -> int:
        if buf[pos] >= "\ud800" or self._allow_repair("controls"):
            return super()._raw(buf, pos)
        self.problem = "expected no control characters in a string"
        return pos

    def _in_single_quotes(self, buf: str, pos: int) -> int:
        """Reads in a single-quoted string."""
        stop = _SINGLE_RUN.match(buf, pos).end()  # type: ignore[union-attr]
        if stop > pos:
            self._out.append(buf[pos:stop])
            self._last_char = buf[stop - 1]
            return stop
        char = buf[pos]
        if char == "\\":
            return self._single_escape(buf, pos)
        if char == "'" and self._state == _SINGLE and self._open:
            return self._hold_quote(pos)
        if char == "'":
            self._out.append('"')
            self._state = COLON if self._state == _KEY_SINGLE else self._after_value()
        elif char == '"':
            self._out.append('\\"')
            self._last_char = char
        else:
            return self._raw(buf, pos)
        return pos + 1

    def _single_escape(self, buf: str, pos: int) -> int:
        self._last_char = ""
        if buf[pos + 1 : pos + 2] == "'":
            self._out.append("'")
            return pos + 2
        pos = self._one_escape(buf, pos)
        return self._repair(buf, pos) if self.problem else pos

    def _after_quote(self, buf: str, pos: int) -> int:
        """Decides whether the held-back quote ended its string."""
        answer = self._string_ended(buf, pos, self._open[-1])
        if answer is _NEED_MORE:
            return pos
        if answer is _NO and self._allow_repair("inner_quotes"):
            self._continue_string(buf[pos])
            return pos
        self._release_pending()
        self._state = self._open[-1]
        if answer is not _YES:
            self.problem = f"expected {EXPECTED[self._state]}"
        return pos

    def _continue_string(self, next_char: str) -> None:
        """Emits the held-back quote as part of its string."""
        gap = "".join(self._pending[1:])
        self._pending.clear()
        written = "".join(char if char == " " else escape_char(char) for char in gap)
        if written != gap and not self._allow_repair("controls"):
            self.problem = "expected no control characters in a string"
        self._out.append(("'" if self._single_quoted else '\\"') + written)
        if gap or not (self._single_quoted and self._last_char.isalnum() and next_char.isalnum()):  # not an apostrophe
            self._inner_quote_open = not self._inner_quote_open
        self._has_inner_quotes, self._last_char = True, (gap or "'")[-1]
        self._state = _SINGLE if self._single_quoted else STRING

    def _string_ended(self, buf: str, pos: int, after: int) -> _Lookahead:
        """Decides whether the string ended, from the text at `pos`, after its quote and white space."""
        char = buf[pos]
        if char == CLOSERS[after]:
            return _AMBIGUOUS if self._inner_quote_open else _YES
        if char == "," and not (self._has_inner_quotes or self._single_quoted):
            return _YES
        if char == ",":
            answer = self._member_follows(buf, pos + 1, after)
            return _AMBIGUOUS if answer in (_YES, _NO) and self._inner_quote_open is (answer is _YES) else answer
        if char in "\"'":
            return self._before_second_quote(buf, pos, after)
        if char in "/\\" and not self._inner_quote_open:
            return self._after_slash(buf, pos, after)
        opens = len(self._pending) == 1 and (char.isalnum() or char in INNER_QUOTE_NEXT)
        return _NO if self._inner_quote_open or opens else _AMBIGUOUS

    def _after_slash(self, buf: str, pos: int, after: int) -> _Lookahead:
        """Decides whether the string ended before a possible comment, or an escape that means white space."""
        gap = len(self._pending) > 1
        if buf[pos] == "/":
            two = buf[pos : pos + 2]
            if two in ("//", "/*"):
                return _YES if gap and not self._has_inner_quotes else _AMBIGUOUS
            return _NEED_MORE if two == "/" else _AMBIGUOUS if gap else _NO
        stop = _GAP.match(buf, pos).end()  # type: ignore[union-attr]
        if stop - pos > GAP_LIMIT_CHARS:
            return _AMBIGUOUS
        if buf[stop:] in ("", "\\"):
            return _NEED_MORE
        return _YES if buf[stop] in _VALUE_ENDS[after] and stop > pos else _AMBIGUOUS

    def _before_second_quote(self, buf: str, pos: int, after: int) -> _Lookahead:
        """Decides whether the string ended before another quote: the comma between them may be missing."""
        gap = "".join(self._pending[1:])
        if self._inner_quote_open and not gap:
            return _NO
        if not gap or after == NEXT_ITEM:
            return _NO if self._inner_quote_open else _AMBIGUOUS
        answer = self._key_follows(buf, pos)
        if answer is _YES:
            return _YES if "\n" in gap and not self._inner_quote_open and "commas" in self._enabled else _AMBIGUOUS
        return _AMBIGUOUS if answer is _NO and not self._inner_quote_open else answer

    def _member_follows(self, buf: str, pos: int, after: int) -> _Lookahead:
        """Decides whether another member or item follows the comma."""
        at = _GAP.match(buf, pos).end()  # type: ignore[union-attr]
        char = buf[at : at + 1]
        if at - pos > GAP_LIMIT_CHARS or char in ("/", "#"):
            return _AMBIGUOUS
        if not char or (char == "\\" and at + 1 == len(buf)):
            return _NEED_MORE
        if char == CLOSERS[after]:
            return _YES
        if after == NEXT_KEY:
            return self._key_follows(buf, at)
        if char in "\"'[{":
            return _YES
        stop = WORD.match(buf, at).end()  # type: ignore[union-attr]
        word = buf[at:stop]
        if stop == len(buf) and len(word) <= KEY_LIMIT_CHARS:
            return _NEED_MORE
        value = word in ("true", "false", "null", *_LITERALS) or NUMBER.fullmatch(word)
        return _YES if value else _NO

    def _key_follows(self, buf: str, pos: int) -> _Lookahead:
        """Decides whether a key and its colon are next."""
        if buf[pos] not in "\"'":
            bare = _BARE_KEY.match(buf, pos)
            if not bare:
                return _NO
            return _NEED_MORE if not bare[2] else _YES if bare[2] == ":" and "bare_keys" in self._enabled else _NO
        quoted = _QUOTED_KEY.match(buf, pos)
        assert quoted, "it begins with a quote"
        if not quoted[3]:
            return _NEED_MORE
        if not (quoted[1] or quoted[2]) or quoted[3] in _BLANK:
            return _AMBIGUOUS
        return _YES if quoted[3] == ":" else _NO

    # Commas and comments

    def _comma(self, buf: str, pos: int) -> int:
        """Reads a comma and the white space after it. Holds them back if the comma may be superfluous."""
        if self._state == NEXT_KEY and (member := MEMBER.match(buf, pos)):
            self._out.append(member[0])
            self._state = VALUE
            return member.end()
        stop = SPACE.match(buf, pos + 1).end()  # type: ignore[union-attr]
        if (buf[stop : stop + 1] or "]") not in "]},/#\\":
            self._out.append(buf[pos:stop])
            self._state = _STATE_AFTER_COMMA[self._state]
        else:
            self._pending.append(buf[pos:stop])
            self._state = _AFTER_COMMA
        return stop

    def _after_comma(self, buf: str, pos: int) -> int:
        char, after = buf[pos], self._open[-1]
        if char == CLOSERS[after] and self._allow_repair("commas"):
            self._pending[0] = self._pending[0][1:]
            self._release_pending()
            self._state = after
            return pos
        if char == "," and after == NEXT_KEY and self._allow_repair("commas"):
            return pos + 1
        end = self._comment_or_escape(buf, pos) if char in "/#\\" else -1
        if end < 0:
            self._release_pending()
            self._state = _STATE_AFTER_COMMA[after]
        return max(pos, end)

    def _comment_or_escape(self, buf: str, pos: int) -> int:
        """Reads the start of a comment, or an escape that means white space. Returns -1 if neither is next."""
        if pos + 1 == len(buf):
            return pos if ("escapes" if buf[pos] == "\\" else "comments") in self._enabled else -1
        if buf[pos] == "\\":
            return pos + 2 if buf[pos + 1] in "nrt" and self._allow_repair("escapes") else -1
        comment = COMMENT.match(buf, pos)
        if not (comment and self._allow_repair("comments")):
            return -1
        self._resume, self._state = self._state, _BLOCK if comment[0] == "/*" else _LINE
        return comment.end()

    def _in_comment(self, buf: str, pos: int) -> int:
        end = "*/" if self._state == _BLOCK else "\n"
        stop = buf.find(end, pos)
        if stop < 0:
            return len(buf) - buf.endswith("*")
        self._state = self._resume
        return stop + len(end)

    # Errors

    def _repair(self, buf: str, pos: int) -> int:
        """Tries to repair the error at `pos`. Returns the position to continue from; keeps `problem` on failure."""
        problem, self.problem = self.problem, ""
        end = self._try_repair(buf, pos)
        if end < 0:
            self.problem = problem
        return max(pos, end)

    def _try_repair(self, buf: str, pos: int) -> int:
        """Returns the position after the repaired text, `pos` if more text is needed, or -1 if no repair fits."""
        char, state = buf[pos], self._state
        if state in (STRING, KEY_STRING, _SINGLE, _KEY_SINGLE):
            return self._escape(buf, pos) if char == "\\" and "escapes" in self._enabled else -1
        if char == "\\" or (char in "/#" and state in _COMMENT_STATES):
            return self._comment_or_escape(buf, pos)
        if char == "'" and state in (*_KEY_STATES, *_VALUE_STATES):
            return self._open_single_quotes(pos)
        if state in _KEY_STATES:
            return self._bare_key(buf, pos)
        if state in _VALUE_STATES:
            return self._python_literal(buf, pos)
        return self._missing_comma(buf, pos) if state in _STATE_AFTER_COMMA else -1

    def _escape(self, buf: str, pos: int) -> int:
        r"""Repairs an escape that is invalid in JSON: `\'` becomes the quote, any other backslash a literal one."""
        if buf.startswith("U", pos + 1) and pos + 2 == len(buf):
            return pos
        if FOREIGN_ESCAPE.match(buf, pos) or ESCAPE.match(buf, pos):
            return -1
        if NAME_START.match(buf, pos + 1):
            if self.has_path_escape:
                return -1
            self._has_path_backslash = True
        self.repairs["escapes"] = None
        if buf[pos + 1] == "'":
            self._out.append("'")
            return pos + 2
        self._out.append("\\\\")
        return pos + 1

    def _open_single_quotes(self, pos: int) -> int:
        if not self._allow_repair("quotes"):
            return -1
        self._out.append('"')
        self._state = _KEY_SINGLE if self._state in _KEY_STATES else _SINGLE
        self._last_char = ""
        return pos + 1

    def _bare_key(self, buf: str, pos: int) -> int:
        answer = self._key_follows(buf, pos) if "bare_keys" in self._enabled else _NO
        if answer is _NEED_MORE:
            return pos
        bare = _BARE_KEY.match(buf, pos)
        if not bare or answer is not _YES:
            return -1
        self.repairs["bare_keys"] = None
        self._out.append(f'"{bare[1]}"')
        self._state = COLON
        return pos + len(bare[1])

    def _python_literal(self, buf: str, pos: int) -> int:
        stop = WORD.match(buf, pos).end()  # type: ignore[union-attr]
        literal = _LITERALS.get(buf[pos:stop])
        if literal is None or not self._allow_repair("literals"):
            return -1
        self._out.append(literal)
        self._state = self._after_value()
        return stop

    def _missing_comma(self, buf: str, pos: int) -> int:
        after = self._state
        if "commas" not in self._enabled:
            return -1
        answer = self._key_follows(buf, pos) if after == NEXT_KEY else _YES if buf[pos] == "{" else _NO
        if answer is _NEED_MORE:
            return pos
        if answer is not _YES:
            return -1
        self.repairs["commas"] = None
        self._out.append(",")
        self._state = _STATE_AFTER_COMMA[after]
        return pos
