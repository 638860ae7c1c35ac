"""Incremental JSON recogniser. It copies a JSON value verbatim, as a valid prefix at any time, and finds its end.

`JsonStream` is a pushdown recogniser (RFC 8259). It accepts text in chunks of any size, copies what it has accepted,
and reports where the value ends, so a marker inside a string never ends it. The copy keeps the model's digits, key
order, escapes and duplicate keys. Two things in strings are changed, because the client's parser would reject them:
a raw control character, which small models often write, becomes its escape; half of a surrogate pair, which UTF-8
cannot encode, becomes `\\ufffd`.

    stream = JsonStream()
    pos = stream.feed(buf, 0)      # then stream.drain() is the accepted text; see also stream.done, stream.problem

The joined output, and the error and its position, do not depend on the chunks: an escape (or a surrogate pair of
escapes), a literal and a number are accepted only as a whole. Numbers have at most `NUMBER_LIMIT_CHARS` characters.
"""

import re
from typing import Final

NUMBER_LIMIT_CHARS: Final = 1000
"""No model writes a longer number on purpose. The limit also bounds how much text is held back."""

_HEX = "[0-9a-fA-F]"
_HIGH, _LOW = rf"u[dD][89abAB]{_HEX}{{2}}", rf"u[dD][c-fC-F]{_HEX}{{2}}"  # the halves of a character beyond U+FFFF
_PLAIN = r'[^"\\\x00-\x1f\ud800-\udfff]*+'
_WHOLE_ESCAPE = rf'\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F]){_HEX}{{4}}|{_HIGH}\\{_LOW})'
# Includes escapes, because code has many of them. The bound limits the memory of the regex engine.
_RUN = re.compile(rf"{_PLAIN}(?:{_WHOLE_ESCAPE}{_PLAIN}){{0,99}}+")
_ESCAPED = rf'["/bfnrt]|u(?![dD][89a-fA-F]){_HEX}{{4}}'
STOPS_STRING = rf'["\\\x00-\x1f\ud800-\udfff](?:(?<=\\)(?!{_ESCAPED})|(?<=")(?<!\\")|(?<![\\"]))'
"""No match means that the text is a valid part of a JSON string, whatever follows. The reverse may not hold."""
STOPS_PLAIN = r'["\\\x00-\x1f\ud800-\udfff]'
"""Like `STOPS_STRING`, but also matches every escape."""
SPACE = re.compile(r"[ \t\n\r]*")
ESCAPE = re.compile(_WHOLE_ESCAPE)
ESCAPE_BEGUN = re.compile(rf"(?:\\(?:u{_HEX}{{0,3}})?|\\{_HIGH}(?:\\(?:u(?:[dD](?:[c-fC-F]{_HEX}?)?)?)?)?)\Z")
HALF = re.compile(rf"\\(?:{_HIGH}|{_LOW})")
REPLACEMENT = "\\ufffd"
WORD = re.compile(r"[-+.0-9A-Za-z_]*")
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_CONTROL = {i: f"\\u{i:04x}" for i in range(32)} | {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}

# States, named after what may be next. The state after a value depends on the enclosing container: NEXT_*.
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

# (state, character) -> next state. The state after a complete value is on the stack of open containers.
_STEP = {
    **{(s, c): to for s in (VALUE, FIRST_ITEM) for c, to in (('"', STRING), ("{", FIRST_KEY), ("[", FIRST_ITEM))},
    **{(s, '"'): KEY_STRING for s in (FIRST_KEY, KEY)},
    (COLON, ":"): VALUE,
    (NEXT_ITEM, ","): VALUE,
    (NEXT_KEY, ","): KEY,
    **{(s, "]"): DONE for s in (FIRST_ITEM, NEXT_ITEM)},
    **{(s, "}"): DONE for s in (FIRST_KEY, NEXT_KEY)},
}


def escape_char(char: str) -> str:
    """Returns the JSON escape of a control character; U+FFFD's for half of a surrogate pair."""
    return _CONTROL.get(ord(char), REPLACEMENT)


class JsonStream:
    """Recognises one JSON value incrementally."""

    __slots__ = ("_open", "_out", "_state", "problem")

    def __init__(self) -> None:
        self._state = VALUE
        self._open: list[int] = []  # per open container, the state after one of its values
        self._out: list[str] = []
        self.problem = ""
        """What was expected at the character where `feed` stopped; empty while the text is valid JSON."""

    @property
    def done(self) -> bool:
        """The value is complete."""
        return self._state == DONE

    @property
    def in_string(self) -> bool:
        """The next character is inside a string."""
        return self._state in (STRING, KEY_STRING)

    def drain(self) -> str:
        """Returns the text accepted since the last call."""
        text = "".join(self._out)
        self._out.clear()
        return text

    def feed(self, buf: str, pos: int, closed: bool = False) -> int:
        """Accepts as much of `buf[pos:]` as possible.

        Args:
            buf: Text that starts, or continues at `pos`, with the JSON value.
            pos: Index of the first character to read.
            closed: Nothing follows `buf`, so that its end also ends a number.

        Returns: the index of the first character that was not accepted.
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
        """Reads the rest of the string, up to the quote at `stop` that ends it."""
        self._state = COLON if self._state == KEY_STRING else self._after_value()
        self._out.append(buf[pos : stop + 1])
        return stop + 1

    def _raw(self, buf: str, pos: int) -> int:
        """Reads a character that is invalid in a string."""
        self._out.append(escape_char(buf[pos]))
        return pos + 1

    def _odd_escape(self, buf: str, pos: int) -> int:
        """Reads a backslash that `_RUN` left: the hundredth escape, a partial or invalid one, or half of a pair."""
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
        """Reads a number or literal. The end of the text ends it only if no container is open."""
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
