"""Arguments as nested elements, each tag after a marker that does not occur in text.

    <k>value</k>                          a string, number or literal
    <k><a>1</a><b>2</b></k>               an object
    <k><item>1</item><item>2</item></k>   an array

The tool's schema determines the type of an element, otherwise its content.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from dragoman.constraints.constraint import ConstrainedCall
from dragoman.core.messages import Tool, ToolCall
from dragoman.parsing.shapes.name_then_json import ReadCallHead
from dragoman.parsing.shapes.nested.writer import ITEM, NestedWriter
from dragoman.parsing.shapes.object_notation import NumberText, expected_error, write_arguments
from dragoman.parsing.shapes.tagged import end_unclosed_call, read_call
from dragoman.parsing.shapes.tagged_writer import NAME
from dragoman.parsing.sink import ToolCallSink
from dragoman.schema.argument_types import Schema, as_json, as_string, string_writer
from dragoman.text.scanner import CUT_OFF, FIELD_LIMIT_CHARS, Follows, Parser, Scanner, discard, markers

DEPTH_LIMIT: Final = 64
"""Maximum nesting depth of elements; it limits the use of Python's stack."""
_NAME = re.compile(r"[\w.-]+")

Path: TypeAlias = tuple[str | None, ...]
Emit: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class NestedElements:
    """How such a call is written."""

    head: ReadCallHead
    mark: str
    """The marker before each tag."""
    close: str
    """The end of a call, without the marker."""

    def read(self, s: Scanner, sink: ToolCallSink, opener: str) -> Parser[bool]:
        """Reads what follows the opener. Returns True if it was a complete call. Text that is not a call is passed
        through."""
        return (yield from read_call(s, sink, opener, self.head, self._body))

    def write(self, call: ToolCall) -> str:
        """Returns the arguments of a call."""
        return write_arguments(call.arguments, self._members)

    def constrain_call(self, tool: Tool, before: str) -> ConstrainedCall:
        """Returns the constraint for calls of this tool, with `before` before their arguments."""
        return NestedWriter(
            takes=lambda name: (
                bool(NAME.fullmatch(name)) and not name.startswith("/") and len(name) <= FIELD_LIMIT_CHARS
            ),
            open=lambda name, _: f"<{name or ITEM}>",
            end=self.mark,
            close=lambda name: f"</{name or ITEM}>",
            mark=self.mark,
        ).constrain_call(tool, before, self.close)

    def _body(self, s: Scanner, sink: ToolCallSink, schema: Schema) -> Parser[str]:
        return (yield from _Body(s, sink, schema, self.mark).members(self.mark + self.close, (), sink.arguments))

    def _members(self, members: Any) -> str:
        return "".join(self._element(name, self._written(value)) for name, value in members.items())

    def _element(self, name: str, content: str) -> str:
        return f"{self.mark}<{name}>{content}{self.mark}</{name}>"

    def _written(self, value: Any) -> str:
        """Returns a value; an object with ambiguous member names is written as JSON."""
        if isinstance(value, list) and value:
            return "".join(self._element(ITEM, self._written(each)) for each in value)
        if isinstance(value, dict) and value and all(_NAME.fullmatch(k) and k != ITEM for k in value):
            return self._members(value)
        return value if _is_text(value) else _json(value)


class _Body:
    """State of the arguments of one call while they are read.

    Each method that reads an element or its content takes `ends`: tags of the levels around it which, where the element
    lacks its closing tag, show that it has ended.
    """

    def __init__(self, s: Scanner, sink: ToolCallSink, schema: Schema, mark: str) -> None:
        self._s = s
        self._sink = sink
        self._schema = schema
        self._open = f"{mark}<"
        self._mark = mark

    def members(self, close: str, path: Path, emit: Emit, ends: tuple[str, ...] = ()) -> Parser[str]:
        """Reads the elements of an object or array and its end. Returns "" or the reason why it is incomplete."""
        types = self._schema.types_at(*path) if path else frozenset({"object"})
        array: bool | None = None if {"object", "array"} <= types else "array" in types
        remaining = {self._opening(name) for name in self._schema.names(*path)}
        names: set[str] = set()
        count = 0
        while not (yield from self._s.literal(close, after_space=True)):
            items = (self._opening(ITEM),) if array is not False else ()
            if count and (yield from self._is_next([each for each in ends if each not in (*remaining, *items)])):
                self._warn_unclosed(close)
                break
            name = yield from self._name()
            if not name:
                return (yield from self._without_name(close, path, bool(count)))
            array = name == ITEM if array is None else array
            remaining.discard(self._opening(name))
            emit_element = emit
            if name in names and not array:
                self._sink.warn("duplicate_parameter", f"expected each parameter once, dropped another {name!r}")
                emit_element = discard
            else:
                emit(", " if count else _brackets(array)[0])
            inner = (close, *sorted(remaining), *((self._opening(ITEM),) if array else ()), *ends)
            problem = yield from self._element(name, (*path, None if array else name), emit_element, inner)
            if problem:
                return problem
            names.add(name)
            count += 1
        emit(_brackets(array)[1] if count else _brackets(array))
        return ""

    def _without_name(self, close: str, path: Path, any_element: bool) -> Parser[str]:
        """Returns why text that is not an element makes this incomplete; "" if the end of the reply completes it."""
        if path:
            return expected_error(self._s, f"an element or {close}")
        yield from self._s.skip_space()
        return (yield from end_unclosed_call(self._s, self._sink, any_element, close, "an element"))

    def _opening(self, name: str) -> str:
        return f"{self._open}{name}>"

    def _is_next(self, tags: list[str]) -> Parser[bool]:
        marker = (yield from self._s.literal(*tags, after_space=True)) if tags else ""
        self._s.pos -= len(marker)
        return bool(marker)

    def _warn_unclosed(self, close: str) -> None:
        self._sink.warn("missing_closing_tag", f"expected {close.removeprefix(self._mark)} after the value")

    def _name(self) -> Parser[str]:
        """Returns the name in an opening tag; "" if none comes next."""
        if not (yield from self._s.literal(self._open, after_space=True)):
            return ""
        name_field = yield from self._s.field(markers(">"))
        return name_field[0].strip() if name_field and not name_field[0].startswith("/") else ""

    def _element(self, name: str, path: Path, emit: Emit, ends: tuple[str, ...]) -> Parser[str]:
        """Reads the content of an element and its end. Returns "" or the reason why it is incomplete."""
        if path[-1] is not None:
            emit(f"{as_string(name)}: ")
            if self._schema.types_at(*path) == {"array"}:
                return (yield from self._array(name, path, emit, ends))
        return (yield from self._content(name, path, emit, ends))

    def _array(self, name: str, path: Path, emit: Emit, ends: tuple[str, ...]) -> Parser[str]:
        """Reads an array: nested elements, JSON, or a first item that others with the same name follow."""
        item = (*path, None)
        first = self._opening(ITEM)
        upcoming = yield from self._s.peek(len(first), after_space=True)
        listed = upcoming == first or self._schema.types_at(*item) != {"object"}
        if upcoming.startswith(self._open) and (listed or upcoming.startswith(f"{self._open}/")):
            return (yield from self._content(name, path, emit, ends))
        ends = (self._opening(name), *ends)
        if upcoming.startswith(self._open):
            emit("[")
            problem = yield from self._content(name, item, emit, ends)
        else:
            pieces: list[str] = []
            if not (yield from self._text(name, pieces.append, ends)):
                return CUT_OFF
            value = _value("".join(pieces), frozenset({"array"}), ())
            if value.startswith("["):
                emit(value)
                return ""
            emit("[" + _value("".join(pieces), self._schema.types_at(*item), self._schema.constants(*item)))
            problem = ""
        while not problem and (yield from self._s.literal(self._opening(name), after_space=True)):
            emit(", ")
            problem = yield from self._content(name, item, emit, ends)
        emit("" if problem else "]")
        return problem

    def _text(self, name: str, emit: Emit, ends: tuple[str, ...]) -> Parser[bool]:
        """Reads raw text up to the end of its element. Returns False if nothing ends it.

        Text with the element's own closing tag in it ends with another such tag only.
        """
        close = f"{self._mark}</{name}>"
        closing: Follows = ((self._mark,), ("",))
        begins: Follows = ((),)
        closers = {each: closing if each.startswith(f"{self._open}/") else begins for each in (*ends, close)}
        has_own_close = False

        def emit_text(text: str) -> None:
            nonlocal has_own_close
            has_own_close |= text == close
            emit(text)

        while True:
            marker = yield from self._s.raw_until(closers, emit_text)
            if marker in ("", close):
                return bool(marker)
            if not has_own_close:
                self._s.pos -= len(marker)
                self._warn_unclosed(close)
                return True
            emit(marker)

    def _content(self, name: str, path: Path, emit: Emit, ends: tuple[str, ...]) -> Parser[str]:
        """Reads the value in an element and its end. Returns "" or the reason why it is incomplete."""
        types = self._schema.types_at(*path)
        if types & {"object", "array"}:
            upcoming = yield from self._s.peek(len(self._open) + 1, after_space=True)
            if upcoming.startswith(self._open) and not upcoming.endswith("/"):
                too_deep = len(path) >= DEPTH_LIMIT
                return (
                    f"expected no more than {DEPTH_LIMIT} levels"
                    if too_deep
                    else (yield from self.members(f"{self._mark}</{name}>", path, emit, ends))
                )
        pieces: list[str] = []
        string = types == {"string"}
        emit('"' if string else "")
        if not (yield from self._text(name, string_writer(emit) if string else pieces.append, ends)):
            return CUT_OFF
        emit('"' if string else _value("".join(pieces), types, self._schema.constants(*path)))
        return ""


def _brackets(array: bool | None) -> str:
    return "[]" if array else "{}"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, NumberText)


def _json(value: Any) -> str:
    """Returns JSON, with numbers as their original digits."""
    match value:
        case dict():
            return "{" + ", ".join(f"{as_string(k)}: {_json(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_json, value)) + "]"
        case NumberText():
            return value
        case str():
            return as_string(value)
        case _:
            return {True: "true", False: "false", None: "null"}[value]


def _value(text: str, types: frozenset[str], constants: Collection[Any]) -> str:
    """Returns the text as JSON; an empty text is an empty object or array if the type must be one."""
    if not text.strip() and types <= {"object", "array", "null"}:
        return "{}" if "object" in types else "[]"
    return as_json(text, types, constants)
