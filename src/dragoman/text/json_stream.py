"""JSON as it streams: passed on verbatim, always a valid prefix, ended by JSON itself.

`JsonText` is a pushdown recogniser (RFC 8259). It takes any cut of the text, copies what it has accepted
and says where the value ends, so a marker inside a string can never end it. What it copies is the model's
own text: digits, key order, escapes and duplicate keys stay. Two things in strings are changed, as the client's
reader would refuse them: a raw control character, which small models write all the time, becomes its escape;
half of a surrogate pair, which UTF-8 cannot carry, becomes `\\ufffd`.

    m = JsonText()
    pos = m.feed(buf, 0)      # m.take() is what may be sent on; m.done, m.problem say how it stands

Whatever the cut, the same text gives the same joined output and the same problem at the same character:
an escape (a surrogate pair of them), a literal and a number are taken only whole, and numbers are at most
`NUMBER_LIMIT_CHARS` long.
"""

import re
from typing import Final

NUMBER_LIMIT_CHARS: Final = 1000
"""A longer run of digits is a model gone astray; it also bounds how much text is held back."""

_HEX = "[0-9a-fA-F]"
_HIGH, _LOW = rf"u[dD][89abAB]{_HEX}{{2}}", rf"u[dD][c-fC-F]{_HEX}{{2}}"  # the halves of a character beyond U+FFFF
_PLAIN = r'[^"\\\x00-\x1f\ud800-\udfff]*+'
_WHOLE_ESCAPE = rf'\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F]){_HEX}{{4}}|{_HIGH}\\{_LOW})'
# Escapes too, in one match: code is full of them. The bound keeps the matcher's memory small.
_RUN = re.compile(rf"{_PLAIN}(?:{_WHOLE_ESCAPE}{_PLAIN}){{0,99}}+")
_ESCAPED = rf'["/bfnrt]|u(?![dD][89a-fA-F]){_HEX}{{4}}'
STOPS_STRING = rf'["\\\x00-\x1f\ud800-\udfff](?:(?<=\\)(?!{_ESCAPED})|(?<=")(?<!\\")|(?<![\\"]))'
"""Found nowhere in a text that belongs to a JSON string as it is, whatever follows (not for each such text)."""
STOPS_PLAIN = r'["\\\x00-\x1f\ud800-\udfff]'
"""As `STOPS_STRING`, of text that has no escapes either."""
SPACE = re.compile(r"[ \t\n\r]*")
ESCAPE = re.compile(_WHOLE_ESCAPE)
ESCAPE_BEGUN = re.compile(rf"(?:\\(?:u{_HEX}{{0,3}})?|\\{_HIGH}(?:\\(?:u(?:[dD](?:[c-fC-F]{_HEX}?)?)?)?)?)\Z")
HALF = re.compile(rf"\\(?:{_HIGH}|{_LOW})")
REPLACEMENT = "\\ufffd"
WORD = re.compile(r"[-+.0-9A-Za-z_]*")
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_CONTROL = {i: f"\\u{i:04x}" for i in range(32)} | {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}

# States: what may come next. The place after a value depends on what encloses it, hence NEXT_*.
VALUE, FIRST_ITEM, FIRST_KEY, KEY, COLON, NEXT_ITEM, NEXT_KEY, STRING, KEY_STRING, DONE = range(10)

EXPECTED = {
    VALUE: "a value",
    FIRST_ITEM: "a value or ']'",
    FIRST_KEY: "a string key or '}'",
    KEY: "a string key",
    COLON: "':'",
    NEXT_ITEM: "',' or ']'",
    NEXT_KEY: "',' or '}'",
}

# (state, character) -> next state. What follows a whole value lies on the stack of open containers.
_STEP = {
    **{(s, c): to for s in (VALUE, FIRST_ITEM) for c, to in (('"', STRING), ("{", FIRST_KEY), ("[", FIRST_ITEM))},
    **{(s, '"'): KEY_STRING for s in (FIRST_KEY, KEY)},
    (COLON, ":"): VALUE,
    (NEXT_ITEM, ","): VALUE,
    (NEXT_KEY, ","): KEY,
    **{(s, "]"): DONE for s in (FIRST_ITEM, NEXT_ITEM)},
    **{(s, "}"): DONE for s in (FIRST_KEY, NEXT_KEY)},
}


def escaped(char: str) -> str:
    """As JSON has a character that may not stand in a string as it is."""
    return _CONTROL.get(ord(char), REPLACEMENT)


class JsonText:
    """Recognises one JSON value, piece by piece."""

    __slots__ = ("_open", "_out", "_state", "problem")

    def __init__(self) -> None:
        self._state = VALUE
        self._open: list[int] = []  # per open container, the state after one of its values
        self._out: list[str] = []
        self.problem = ""
        """Why the text is not JSON: what was expected at the character where `feed` stopped; empty while it is."""

    @property
    def done(self) -> bool:
        """The value is complete."""
        return self._state == DONE

    @property
    def in_string(self) -> bool:
        """The next character belongs to a string."""
        return self._state in (STRING, KEY_STRING)

    def take(self) -> str:
        """The text accepted since the last take."""
        text = "".join(self._out)
        self._out.clear()
        return text

    def feed(self, buf: str, pos: int, closed: bool = False) -> int:
        """Accept what can be accepted of `buf[pos:]`; the position of the first character not taken.

        `closed` says that nothing follows `buf`, which ends a number that nothing else has ended.
        """
        end = len(buf)
        while pos < end and self._state != DONE and not self.problem:
            before = pos
            pos = self._string(buf, pos) if self.in_string else self._structure(buf, pos, closed)
            if pos == before:
                break
        return pos

    def _string(self, buf: str, pos: int) -> int:
        stop = _RUN.match(buf, pos).end()  # type: ignore[union-attr]
        if stop == len(buf):
            self._out.append(buf[pos:])
            return stop
        char = buf[stop]
        if char == '"':
            return self._quote(buf, pos, stop)
        self._out.append(buf[pos:stop])
        return self._odd_escape(buf, stop) if char == "\\" else self._raw(buf, stop)

    def _quote(self, buf: str, pos: int, stop: int) -> int:
        """The string goes on from `pos` to the quote at `stop`, which ends it."""
        self._state = COLON if self._state == KEY_STRING else self._after_value()
        self._out.append(buf[pos : stop + 1])
        return stop + 1

    def _raw(self, buf: str, pos: int) -> int:
        """A character that may not stand in a string as it is."""
        self._out.append(escaped(buf[pos]))
        return pos + 1

    def _odd_escape(self, buf: str, pos: int) -> int:
        """What `_RUN` left: the hundredth escape, one that is not all there, half of a pair, or none."""
        if pos + 1 == len(buf) or ESCAPE.match(buf, pos) or ESCAPE_BEGUN.match(buf, pos):
            return pos
        if half := HALF.match(buf, pos):
            self._out.append(REPLACEMENT)
            return half.end()
        self.problem = "expected a JSON escape"
        return pos

    def _structure(self, buf: str, pos: int, closed: bool) -> int:
        char = buf[pos]
        if char in " \t\n\r":
            stop = SPACE.match(buf, pos).end()  # type: ignore[union-attr]
        elif char in '"{}[]:,':
            stop = self._punctuation(char, pos)
        else:
            stop = self._word(buf, pos, closed)
        self._out.append(buf[pos:stop])
        return stop

    def _punctuation(self, char: str, pos: int) -> int:
        state = _STEP.get((self._state, char))
        if state is None:
            self.problem = f"expected {EXPECTED[self._state]}"
            return pos
        if char in "{[":
            self._open.append(NEXT_KEY if char == "{" else NEXT_ITEM)
        elif char in "}]":
            self._open.pop()
            state = self._after_value()
        self._state = state
        return pos + 1

    def _word(self, buf: str, pos: int, closed: bool) -> int:
        """A number or literal; the end of the text ends it only where no container is open."""
        stop = WORD.match(buf, pos).end()  # type: ignore[union-attr]
        if self._state not in (VALUE, FIRST_ITEM) or not 0 < stop - pos <= NUMBER_LIMIT_CHARS:
            self.problem = f"expected {EXPECTED[self._state]}"
            return pos
        if stop == len(buf) and (self._open or not closed):
            return pos
        if buf[pos:stop] not in ("true", "false", "null") and not NUMBER.fullmatch(buf, pos, stop):
            self.problem = f"expected {EXPECTED[self._state]}"
            return pos
        self._state = self._after_value()
        return stop

    def _after_value(self) -> int:
        return self._open[-1] if self._open else DONE
