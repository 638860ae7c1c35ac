"""Calls in Gemma's object notation: unquoted keys, and raw strings between special delimiters.

    call:set_alarm{hour:7,label:<|"|>wake up<|"|>,at:{time zone:<|"|>UTC<|"|>}}

A delimiter ends a string only if a comma or the container's end follows. A missing opening delimiter is inferred from
the closing one, and a word without delimiters ends at the comma; both give a warning. Numbers and literals are those of
JSON, and also Python's `True`, `False`, `None`. Keys and values in JSON quotes are read as such.
"""

import json
import re
from typing import Any, Final

from dragoman.constraints import schema_values
from dragoman.constraints.constraint import ConstrainedCall
from dragoman.constraints.grammar import Concat, Identifier, RawText
from dragoman.constraints.schema_values import ValueNotation
from dragoman.core.messages import Tool, ToolCall
from dragoman.parsing.shapes.object_notation import (
    CLOSED,
    Container,
    NumberText,
    ObjectNotation,
    expected_error,
    reject_call,
    take_rest,
    with_number_text,
    write_arguments,
)
from dragoman.parsing.sink import DISCARD, ToolCallSink
from dragoman.schema.argument_types import as_json, as_string, string_writer
from dragoman.text.scanner import Parser, Scanner, markers

REPEATED_OPENER: Final = "call:"
SCALARS: Final = frozenset({"number", "boolean", "null"})
# A namespace may follow `call:`, `google:mcp:` (oMLX 1830), and `call:` may be missing (vLLM 53431).
_NAME = re.compile(r"\s*(?:[^\s{}:]*:\s*)*([^\s{}:]+)\s*")
_CUT_NAME = re.compile(r"\s*(?:[^\s{}:]*:\s*)*[^\s{}:]*")
_KEY = re.compile(r'[^\s,:{}\[\]<>"][^,:{}\[\]<>"]*')
_BEFORE_VALUE = re.compile(r"(?s:.*)[,{]\s*[^\s,:{}\[\]][^,:{}\[\]]*:[\s\[]*")
_BEFORE_ITEM = re.compile(r"(?s:.*)[,\[]\s*")
_PLAIN_KEY = re.compile(r"\w+(?: \w+)*")


class ObjectNotationCalls:
    """Calls in this notation, between an opener and a closer."""

    def __init__(self, opener: str, closer: str, quote: str) -> None:
        self._opener, self._closer, self._quote = opener, closer, quote
        self._object = Container("}", "{}", self._key)
        self._keywords = Container(")", "{}", self._key)
        self._notation = ObjectNotation({"{": self._object, "[": Container("]", "[]")}, self._scalar)

    def read(self, s: Scanner, sink: ToolCallSink, opener: str) -> Parser[bool]:
        """Reads what follows the opener. Returns True if a complete call came last. Text that is not a call is passed
        through."""
        is_complete, closed = yield from self._call(s, sink, opener)
        while is_complete and not closed and (yield from self._has_next_call(s)):
            is_complete, closed = yield from self._call(s, sink, "")
        if is_complete and not closed:
            yield from self._close(s, sink)
        return is_complete

    def _call(self, s: Scanner, sink: ToolCallSink, opener: str) -> Parser[tuple[bool, bool]]:
        """Reads one call. Returns whether it is complete, and whether the block ends with its name."""
        s.start_capture(s.skipped_space + opener)
        name_field = yield from s.field(markers("{", "(", self._closer))
        arguments = self._keywords if name_field and name_field[1] == "(" else self._object
        if not name_field and s.closed and not s.stopped_by_model and _CUT_NAME.fullmatch(s.buf, s.pos):
            take_rest(s)
        match = name_field and _NAME.fullmatch(name_field[0])
        name = sink.resolve(match[1]) if match else None
        closed = False
        if not name_field or not match or name is None:
            if name_field and match and name_field[1] != self._closer:
                yield from self._notation.members(s, DISCARD, arguments)
            reject_call(s, sink, match[1] if match else "")
            is_complete = False
        elif closed := name_field[1] == self._closer:
            sink.start(name)
            sink.arguments("{}")
            sink.end()
            is_complete = True
        else:
            is_complete = yield from self._notation.call(s, sink, name, arguments)
        s.stop_capture()
        return is_complete, closed

    @staticmethod
    def _has_next_call(s: Scanner) -> Parser[bool]:
        """Returns True if another call follows in the same block."""
        marker = yield from s.literal(REPEATED_OPENER, "," + REPEATED_OPENER, after_space=True)
        s.pos -= len(REPEATED_OPENER) if marker else 0
        s.skipped_space = marker.removesuffix(REPEATED_OPENER)
        return bool(marker)

    def write(self, call: ToolCall) -> str:
        """Returns the call as the template writes it, sorted by key; ambiguous keys are written between delimiters."""
        return f"{self._opener}call:{call.name}{write_arguments(call.arguments, self._written)}{self._closer}"

    def constrain_call(self, tool: Tool) -> ConstrainedCall:
        """Returns the constraint for calls of this tool."""
        body, relaxed = schema_values.arguments_grammar(tool, self._spelling())
        return ConstrainedCall(f"{self._opener}call:{tool.name}{{", body, f"}}{self._closer}", relaxed)

    def _spelling(self) -> ValueNotation:
        quote = self._quote
        return ValueNotation(
            known=self._known,
            string=lambda _: Concat((quote, RawText(quote))),
            key=lambda name: "" if quote in name else f"{self._written_key(name)}:",
            any_key=Concat((Identifier(), ":")),
            comma=",",
            order=str.lower,
            counts=False,
        )

    def _known(self, value: Any) -> str:
        # The reader would end the string at the delimiter.
        ended = as_string(self._quote)[1:-1] in json.dumps(value, ensure_ascii=False)
        return "" if ended else self._written(with_number_text(value))

    def _close(self, s: Scanner, sink: ToolCallSink) -> Parser[None]:
        if not (yield from s.literal(self._closer, after_space=True)) and not s.consume_truncated(self._closer):
            sink.warn("missing_closing_tag", f"expected {self._closer} after the call")

    def _key(self, s: Scanner, sink: ToolCallSink, inner: Container) -> Parser[str]:
        separator = "=" if inner is self._keywords else ":"
        if (yield from s.literal(self._quote)):
            sink.arguments('"')
            ended = yield from s.raw_until({self._quote: ((separator,),)}, string_writer(sink.arguments))
            sink.arguments('"' if ended else "")
        elif (yield from s.peek()) == '"':
            key = yield from s.json_string()
            ended = "" if key is None else '"'
            sink.arguments("" if key is None else as_string(key))
        else:
            name_field = yield from s.peek_field(markers(separator, ",", "{", "}", "[", "]"))
            if not name_field and s.closed:
                return take_rest(s)
            ended = (
                name_field[0].rstrip()
                if name_field and name_field[1] == separator and _KEY.fullmatch(name_field[0])
                else ""
            )
            sink.arguments(as_string(ended) if ended else "")
            yield from s.literal(ended)
        if ended and (yield from s.literal(separator, after_space=True)):
            sink.arguments(": ")
            return ""
        return expected_error(s, f"a key and '{separator}'")

    def _scalar(self, s: Scanner, sink: ToolCallSink, inner: Container) -> Parser[str]:
        if (yield from s.literal(self._quote)):
            return (yield from self._string(s, sink, inner))
        if (yield from s.peek()) == '"':
            problem = yield from s.json_value(sink.arguments)
            return problem or (yield from self._stray_quote(s, sink))
        scalar_field = yield from s.peek_field(markers(self._quote, ",", "}", "]", inner.close))
        if not scalar_field and s.closed:
            return take_rest(s)
        bare = scalar_field[0].strip() if scalar_field else ""
        if (
            scalar_field
            and len(bare) > 1
            and bare[0] == bare[-1] == "'"
            and (scalar_field[1] != self._quote or bare.count("'") == 2)
        ):
            sink.arguments(as_string(bare[1:-1]))
            yield from s.literal(scalar_field[0])
            return (yield from self._stray_quote(s, sink))
        if scalar_field and scalar_field[1] != self._quote:
            literal = as_json(bare, SCALARS)
            if not bare:
                return "expected a value"
            is_word = literal.startswith('"')
            if not is_word or (yield from self._is_bare_value(s, inner)):
                sink.arguments(literal)
                yield from s.literal(scalar_field[0])
                if is_word:
                    sink.warn("missing_delimiter", f"expected {self._quote} around a string", bare)
                return ""
        sink.warn("missing_delimiter", f"expected {self._quote} before a string")
        return (yield from self._string(s, sink, inner))

    def _is_bare_value(self, s: Scanner, inner: Container) -> Parser[bool]:
        """Returns True if the next delimiter, if any, does not end the string that begins here."""
        text, end = (yield from s.peek_field(markers(self._quote, self._closer))) or ("", "")
        begins = _BEFORE_VALUE.fullmatch(text) or (not inner.key and _BEFORE_ITEM.fullmatch(text))
        return end == self._closer or (bool(end) and bool(begins))

    def _stray_quote(self, s: Scanner, sink: ToolCallSink) -> Parser[str]:
        """Drops a delimiter after a string in other quotes."""
        if (yield from s.literal(self._quote)):
            sink.warn("missing_delimiter", f"expected {self._quote} before a string")
        return ""

    def _string(self, s: Scanner, sink: ToolCallSink, inner: Container) -> Parser[str]:
        sink.arguments('"')
        # The end of the call shows where the last delimiter is missing, if another call or nothing follows.
        after = ((*inner.outer, self._closer, self._opener), (*inner.outer, self._closer, ""))
        ends = {self._quote: ((",",), (inner.close,)), inner.close: after}
        marker = yield from s.raw_until(ends, string_writer(sink.arguments))
        if not marker:
            return take_rest(s)
        sink.arguments('"')
        if marker == self._quote:
            return ""
        sink.warn("missing_delimiter", f"expected {self._quote} after a string")
        return CLOSED

    def _written(self, value: Any) -> str:
        match value:
            case dict():
                members = sorted(value.items(), key=lambda member: member[0].lower())
                return "{" + ",".join(f"{self._written_key(k)}:{self._written(v)}" for k, v in members) + "}"
            case list():
                return "[" + ",".join(map(self._written, value)) + "]"
            case NumberText():
                return str(value)
            case str():
                return f"{self._quote}{value}{self._quote}"
            case _:
                return {True: "true", False: "false"}.get(value, "null")

    def _written_key(self, key: str) -> str:
        return key if _PLAIN_KEY.fullmatch(key) else f"{self._quote}{key}{self._quote}"
