r"""Calls in Python syntax with keyword arguments.

    [get_weather(city="Paris", days=3), set_alarm(label='wake\n', days=["mon"], at={'h': 7}, repeat=True, note=None)]

Values are Python literals and are converted to JSON: strings in any quotes with Python's escapes, lists, tuples and
sets as arrays, dicts with string keys. A number keeps its digits, without syntax that JSON lacks: `1_000` becomes 1000,
`.5` becomes 0.5, `0x1F` becomes 31; invalid numbers such as 02139 become strings. `true`, `false` and `null` are
accepted too, in any letter case. Text with other expressions or positional arguments is not a call. JSON objects
instead of the calls are read. An unescaped quote in a string is part of it if the text after it cannot follow a string
and another quote ends the string.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dragoman.parsing.shapes.json_object import JsonCallKeys, Outcome, read_json_call
from dragoman.parsing.shapes.object_notation import (
    Container,
    ObjectNotation,
    expected_error,
    reject_call,
    take_rest,
)
from dragoman.parsing.shapes.python_writer import KEYWORD
from dragoman.parsing.sink import DISCARD, ToolCallSink
from dragoman.schema.argument_types import as_string, string_writer
from dragoman.text.json_stream import NUMBER_LIMIT_CHARS
from dragoman.text.scanner import Parser, Scanner, markers

QUOTES: Final = ('"""', "'''", '"', "'")
LITERALS: Final = {
    **{word: "true" for word in ("True", "true", "TRUE")},
    **{word: "false" for word in ("False", "false", "FALSE")},
    **{word: "null" for word in ("None", "null", "NULL", "NONE")},
}
WORD: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_+-."
ESCAPES: Final = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "\n": "",
    **{c: c for c in "\\'\""},
}
"""Characters by their escape after a backslash; any other escape stands for itself, with the backslash."""
HEX_DIGITS: Final = {"x": 2, "u": 4, "U": 8}
_NAME = re.compile(r"\s*([^\W\d][\w.-]*)\s*")
_CUT_NAME = re.compile(r"\s*(?:[^\W\d][\w.-]*)?\s*")
_NAME_ENDS = markers(*"=,()[]{}\"'")
_FIRST = re.compile(
    r"""\s*(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s'"{}\[\](),:]+)\s*([:,}])|\s*([\[({])""", re.DOTALL
)
_NAMED = r"[^\W\d][\w.-]{0,80}\s{0,20}"
_AFTER_ARGUMENT = re.compile(rf"\s{{0,40}}(?:,\s{{0,40}}(?:\)|{_NAMED}=)|\)\s{{0,40}}(?:[])}},;<`\n]|{_NAMED}\())")
_MAY_FOLLOW_ARGUMENT = re.compile(rf"\s*(?:,\s*(?:{_NAMED})?|\)\s*(?:{_NAMED})?)?")
_AFTER_ITEM = re.compile(r"\s{0,40}[]),:}]")
_CLOSED_AFTER = re.compile(r"\s*\)?\s*")
_AHEAD_CHARS: Final = 2048
"""Maximum lookahead, in characters, for the quote that ends a string."""
_LOOK_CHARS: Final = 256
"""Maximum lookahead, in characters, after a quote, to decide whether it ends its string."""
_WORD = re.compile(r"\s*([\w.-]{0,128})(.?)", re.DOTALL)
_HEX = re.compile(r"[0-9a-fA-F]+")
_OCTAL_DIGITS = frozenset("01234567")
_OCTAL = re.compile(r"[0-7]{1,3}")
_PAIR = re.compile(r"u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_DIGITS = r"\d(?:_?\d)*"
_NUMBER = re.compile(rf"([+-]?)({_DIGITS})?(\.(?:{_DIGITS})?)?([eE][+-]?{_DIGITS})?", re.A)
_BASED = re.compile(r"([+-]?)(0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+)")


@dataclass(frozen=True, slots=True)
class PythonCalls:
    """How the calls are written in a reply."""

    closers: tuple[str, ...] = ()
    """Markers that end the calls, after the list; the first is the format's own."""
    lines: bool = False
    """True if calls follow one another without a comma."""

    def read(self, s: Scanner, sink: ToolCallSink, opener: str) -> Parser[bool]:
        """Reads what follows the opener. Returns True if it was a call. Text that is not a call is passed through."""
        s.start_capture(s.skipped_space + opener)
        listed = bool((yield from s.literal("[", after_space=True)))
        if listed and opener and (yield from s.literal("]", after_space=True)):
            yield from s.literal("", *self.closers, after_space=True)
            sink.warn("empty_call_section", "dropped a list with no call in it", s.captured())
            s.stop_capture()
            return True
        if listed:
            sink.set_in_list(True)
        more, is_complete = True, False
        while more and (is_call := (yield from _call(s, sink, tagged=bool(opener)))) is not False:
            s.start_capture()
            if is_call:
                more, is_complete = (yield from self._more(s, sink, listed)), True
            elif not (yield from self._skip_unknown_call(s)):
                sink.text(s.captured())
                break
        s.stop_capture()
        if not s.truncated:
            sink.set_in_list(False)
        return is_complete and not more

    def _skip_unknown_call(self, s: Scanner) -> Parser[bool]:
        """Returns True if a call follows one of a tool that is not offered, which is text."""
        comma = yield from s.literal(",", after_space=True)
        return bool(comma or self.lines) and _begins_name((yield from s.peek(after_space=True)))

    def _more(self, s: Scanner, sink: ToolCallSink, listed: bool) -> Parser[bool]:
        """Reads the text between two calls or after the last. Returns True if another call follows."""
        comma = yield from s.literal(",", after_space=True)
        bracket = listed and (yield from s.literal("]", after_space=True))
        if bracket:
            sink.set_in_list(False)
            if (yield from s.literal("]", after_space=True)):
                sink.warn("stray_closing_tag", "dropped ] that closes nothing", "]")
        closed = (yield from s.literal(*self.closers, after_space=True)) if self.closers else bracket
        if closed:
            sink.set_in_list(False)
            return False
        char = yield from s.peek(after_space=True)
        if char and not bracket and (comma or (self.lines and _begins_name(char))):
            return True
        ends = (*self.closers, *(["]"] if listed else []))
        if ends and not any(s.consume_truncated(end) for end in ends):
            sink.warn("missing_closing_tag", f"expected {ends[0]} after the calls")
        return False


TOOL_CODE: Final = "```tool_code"
"""The beginning of Gemma's code that calls tools."""


def read_tool_code(s: Scanner, sink: ToolCallSink, opener: str) -> Parser[bool]:
    """Reads calls in a fence of that name, each optionally assigned or printed. Returns True if a complete one came
    last."""
    s.start_capture(s.skipped_space + opener)
    is_complete, closed = False, ""
    while not closed:
        yield from s.literal("tool_code =", "tool_code=", after_space=True)
        printed = yield from s.literal("print(", after_space=True)
        yield from s.literal("default_api.", after_space=True)
        if not (yield from _call(s, sink, tagged=True)):
            s.stop_capture()
            return False
        is_complete = True
        s.start_capture()
        if printed:
            yield from s.literal(")", after_space=True)
        closed = yield from s.literal("```", after_space=True)
        if not closed and not _begins_name((yield from s.peek(after_space=True)) or "."):
            break
    if not closed and not s.consume_truncated("```"):
        sink.warn("missing_closing_tag", "expected ``` after the calls")
    s.stop_capture()
    return is_complete


def _call(s: Scanner, sink: ToolCallSink, tagged: bool) -> Parser[bool | None]:
    """Reads one call. Returns True if it is complete. If it is not a call, the captured text is emitted as text.

    None: between markers, it is a complete call of a tool that is not offered.
    """
    if tagged and (yield from s.peek(after_space=True)) == "{":
        return (yield from _json_call(s, sink))
    written = yield from _name_of_call(s, tagged)
    if not written:
        reject_call(s, sink, "")
        return False
    name, has_names = sink.resolve(written), (yield from _is_named(s))
    if name is not None and has_names:
        return (yield from NOTATION.call(s, sink, name, CALL))
    if has_names:
        is_complete = not (yield from NOTATION.members(s, DISCARD, CALL))
        reject_call(s, sink, written)
        return None if is_complete and tagged else False
    if name is not None and has_names is None and not s.stopped_by_model:
        take_rest(s)
    reject_call(s, sink, "")
    return False


def _json_call(s: Scanner, sink: ToolCallSink) -> Parser[bool]:
    """Reads a call that is written as a JSON object. Returns True if it is complete."""
    outcome = yield from read_json_call(s, sink, JsonCallKeys())
    if outcome in (Outcome.NOT_A_CALL, Outcome.BROKEN):
        sink.text(s.captured())
    return outcome is Outcome.COMPLETE


def _name_of_call(s: Scanner, tagged: bool) -> Parser[str]:
    """Reads a name and its bracket; returns "" if this is not the beginning of a call."""
    name_field = yield from s.field(markers(*"()[]{}\"',=:"))
    if tagged and not name_field and s.closed and not s.stopped_by_model and _CUT_NAME.fullmatch(s.buf, s.pos):
        take_rest(s)
    match = _NAME.fullmatch(name_field[0]) if name_field and name_field[1] == "(" else None
    return match[1] if match else ""


def _is_named(s: Scanner) -> Parser[bool | None]:
    """Returns True if keyword arguments come next, or none; None at the end of the text."""
    yield from s.skip_space()
    if (yield from s.peek()) == ")":
        return True
    name_field = yield from s.peek_field(_NAME_ENDS)
    if not name_field:
        return None if s.closed else False
    return name_field[1] == "=" and bool(KEYWORD.fullmatch(name_field[0].rstrip()))


def _begins_name(char: str) -> bool:
    return char.isalpha() or char == "_"


def _parameter(s: Scanner, sink: ToolCallSink, _: Container) -> Parser[str]:
    """Reads `name=`."""
    name_field = yield from s.peek_field(_NAME_ENDS)
    if not name_field and s.closed:
        return take_rest(s)
    name = name_field[0].rstrip() if name_field and name_field[1] == "=" else ""
    if not KEYWORD.fullmatch(name):
        return "expected an argument's name and '='"
    yield from s.literal(name)
    yield from s.literal("=", after_space=True)
    sink.arguments(f"{as_string(name)}: ")
    return ""


def _key(s: Scanner, sink: ToolCallSink, _: Container) -> Parser[str]:
    """Reads a key of a dict and its colon; numbers and literals become strings, the only keys of JSON."""
    if (yield from s.peek()) in ('"', "'"):
        problem = yield from _string(s, sink.arguments, None)
    else:
        value, problem = yield from _word(s)
        sink.arguments("" if problem else value if value.startswith('"') else as_string(value))
    if problem:
        return problem
    if not (yield from s.literal(":", after_space=True)):
        return expected_error(s, "':'")
    sink.arguments(": ")
    return ""


def _scalar(s: Scanner, sink: ToolCallSink, inner: Container) -> Parser[str]:
    if (yield from s.peek()) in ('"', "'"):
        return (yield from _string(s, sink.arguments, inner))
    value, problem = yield from _word(s)
    sink.arguments(value)
    return problem


def _word(s: Scanner) -> Parser[tuple[str, str]]:
    """Returns a number or literal as JSON, and "" or the reason why it is invalid."""
    pieces: list[str] = []
    yield from s.run(WORD, pieces.append)
    word = "".join(pieces)
    if s.closed and s.pos == len(s.buf):
        return "", expected_error(s, "a value")
    value = LITERALS.get(word) or (_number(word) if len(word) <= NUMBER_LIMIT_CHARS else "")
    return value, "" if value else "expected a value"


def _number(word: str) -> str:
    """Returns a Python number as JSON: a string if it is invalid in Python, "" if it is something else."""
    if match := _BASED.fullmatch(word):
        return match[1].strip("+") + str(int(match[2], 0))
    match = _NUMBER.fullmatch(word)
    if not match or not (match[2] or (match[3] or "").strip(".")):
        return ""
    sign, integer_digits, fraction, exponent = (part.replace("_", "") for part in match.groups(""))
    if (
        not (fraction or exponent)
        and len(integer_digits) > 1
        and integer_digits.strip("0")
        and integer_digits[0] == "0"
    ):
        return as_string(word)
    fraction = fraction + "0" if fraction == "." else fraction
    return sign.strip("+") + (integer_digits.lstrip("0") or "0") + fraction + exponent


def _string(s: Scanner, emit: Callable[[str], None], inner: Container | None) -> Parser[str]:
    """Emits one string as JSON, a value in `inner` or a key. Returns "" or the reason why it is incomplete."""
    quote = yield from s.literal(*QUOTES)
    write, ends = string_writer(emit), markers(quote, "\\")
    may_be_inner = inner if len(quote) == 1 and "inner_quotes" in s.enabled_repairs else None
    end = 0  # where the quote is that ends it, once one in it has been seen
    emit('"')
    while True:
        marker = yield from s.verbatim_until(ends, write)
        if marker == quote:
            if may_be_inner and s.offset > end:
                end = yield from _end_of_string(s, may_be_inner, quote)
            if end < 0:
                return take_rest(s)
            if not end or not may_be_inner:
                emit('"')
                return ""
            s.repairs["inner_quotes"] = None
            write(quote)
            continue
        char = (yield from s.peek()) if marker else ""
        if not char:
            return take_rest(s)
        if char in ESCAPES:  # most by far
            s.pos += 1
            write(ESCAPES[char])
        else:
            yield from _escape(s, write, char)


def _end_of_string(s: Scanner, inner: Container, quote: str) -> Parser[int]:
    """Returns the offset of the quote that ends a string, if the one just read does not; 0 if it does.

    It does if the text after it may follow a string, or if no other quote is found that ends it. -1: the reply was
    truncated before either was found.
    """
    after = _AFTER_ARGUMENT if inner is CALL else _AFTER_ITEM
    while not after.match(s.buf, s.pos):
        rest = s.buf[s.pos : s.pos + _LOOK_CHARS]
        may_continue = len(rest) < _LOOK_CHARS and _MAY_FOLLOW_ARGUMENT.fullmatch(rest)
        if s.closed and s.stopped_by_model and _CLOSED_AFTER.fullmatch(rest):
            return 0
        at = -1 if may_continue and not s.closed else s.buf.find(quote, s.pos, s.pos + _AHEAD_CHARS)
        while at >= 0 and (s.buf[at - 1] == "\\" or not after.match(s.buf, at + 1)):
            at = s.buf.find(quote, at + 1, s.pos + _AHEAD_CHARS)
        if at >= 0:
            return s.offset + at - s.pos
        # The text is long enough to decide on the last quote within the lookahead.
        if len(s.buf) - s.pos >= _AHEAD_CHARS + _LOOK_CHARS:
            return 0
        if s.closed:
            return 0 if s.stopped_by_model else -1
        yield None
    return 0


def _escape(s: Scanner, write: Callable[[str], None], char: str) -> Parser[None]:
    """Emits the text for an escape that is not a single character with a meaning."""
    if char in HEX_DIGITS:
        yield from _hexadecimal(s, write, char)
    elif char in _OCTAL_DIGITS and (match := _OCTAL.match((yield from s.peek(3)))):
        yield from s.literal(match[0])
        write(chr(int(match[0], 8)))
    else:
        yield from s.literal(char)
        write("\\" + char)


def _hexadecimal(s: Scanner, write: Callable[[str], None], kind: str) -> Parser[None]:
    r"""Emits `\x`, `\u` and `\U`; the halves of a surrogate pair are joined."""
    window = yield from s.peek(1 + HEX_DIGITS[kind])
    code = window[1:]
    if len(code) < HEX_DIGITS[kind] or not _HEX.fullmatch(code) or int(code, 16) > 0x10FFFF:
        yield from s.literal(kind)
        write("\\" + kind)
        return
    char = chr(int(code, 16))
    if "\ud800" <= char <= "\udbff" and (pair := _PAIR.fullmatch((yield from s.peek(11)))):
        window, char = pair[0], json.loads(f'"\\{pair[0]}"')
    yield from s.literal(window)
    write(char)


CALL: Final = Container(")", "{}", _parameter)
LIST: Final = Container("]", "[]")
DICT: Final = Container("}", "{}", _key)
SET: Final = Container("}", "[]")


def _opened(s: Scanner, opener: str) -> Parser[Container]:
    """Returns the container after an opening bracket: for a brace, a set (an array in JSON) if its first item is not a
    key."""
    if opener != "{":
        return LIST if opener == "[" else TUPLE
    while not (first := _FIRST.match(s.buf, s.pos, s.pos + _AHEAD_CHARS)):
        if s.closed or len(s.buf) - s.pos >= _AHEAD_CHARS or (yield from s.peek(after_space=True)) in ("}", ""):
            return DICT
        yield None
    return DICT if first[1] == ":" else SET


TUPLE: Final = Container(")", "[]")
NOTATION: Final = ObjectNotation({"{": DICT, "[": LIST, "(": TUPLE}, _scalar, _opened)


def read_bare(s: Scanner, sink: ToolCallSink, opener: str) -> Parser[bool]:
    """Reads calls if an offered tool's name and a bracket come next. Returns True if a complete one came last."""
    while (word := _WORD.match(s.buf, s.pos)) and not word[2] and not s.closed:
        yield None
    if word is None or word[2] != "(" or sink.resolve(word[1]) is None:
        return False
    return (yield from _LINES.read(s, sink, opener))


_LINES: Final = PythonCalls(lines=True)
BARE_CALLS: Final = dict.fromkeys("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_", read_bare)
"""Readers of calls at the start of a reply without an opener, one per line, by the first character."""
