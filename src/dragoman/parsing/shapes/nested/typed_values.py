"""Nested values, each in a tag that states its type and, in an object, its name.

    <value name="city" type="raw">Paris</value>
    <value name="days" type="list"><value type="json">1</value></value>
    <value name="at" type="dict"><value name="h" type="json">7</value></value>

`raw` is a string, including trailing spaces; `json` is any other scalar. Parameters of one level, in their own tags,
may be written instead of such values.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from dragoman.constraints.constraint import ConstrainedCall
from dragoman.core.messages import Tool, ToolCall
from dragoman.parsing.shapes.invoke_tags import escape_attribute, read_attributes, unescape_attribute
from dragoman.parsing.shapes.nested.writer import NestedWriter
from dragoman.parsing.shapes.object_notation import NumberText, expected_error, write_arguments
from dragoman.parsing.shapes.tagged import TaggedParameters, end_unclosed_call, read_call
from dragoman.parsing.sink import ToolCallSink
from dragoman.schema.argument_types import Schema, as_string, string_writer
from dragoman.text.scanner import CUT_OFF, FIELD_LIMIT_CHARS, Follows, Parser, Scanner, discard

DEPTH_LIMIT: Final = 64
"""Maximum nesting depth of values; it limits the use of Python's stack."""
HOLDERS: Final = {"dict": "{}", "list": "[]"}
"""JSON brackets by container type."""
TYPES: Final = {"object": "dict", "array": "list", "string": "raw"}
"""The type by JSON type; any other is `json`."""

Emit: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TypedValues:
    """How such values are written."""

    value: tuple[str, str]
    """`("<value", "</value>")`."""
    flat: TaggedParameters
    """The call with parameters of one level."""

    def read(self, s: Scanner, sink: ToolCallSink, opener: str) -> Parser[bool]:
        """Reads what follows the opener. Returns True if it was a complete call. Text that is not a call is passed
        through."""
        return (yield from read_call(s, sink, opener, self.flat.head, self._body))

    def _body(self, s: Scanner, sink: ToolCallSink, schema: Schema) -> Parser[str]:
        """Reads the arguments, in the notation of the first one. Returns "" or the reason why they are incomplete."""
        if (yield from s.peek(len(self.value[0]), after_space=True)) != self.value[0]:
            return (yield from self.flat.body(s, sink, schema))
        remaining = {name: f'{self.value[0]} name="{escape_attribute(name)}"' for name in schema.names()}
        return (yield from self._members(s, sink, sink.arguments, self.flat.call_close[0], "{}", 0, remaining))

    def write(self, call: ToolCall) -> str:
        """Returns the arguments of a call."""
        return write_arguments(call.arguments, self._written_members)

    def constrain_call(self, tool: Tool, before: str) -> ConstrainedCall:
        """Returns the constraint for calls of this tool, with `before` before their arguments."""
        return NestedWriter(
            takes=lambda name: len(_attribute(name)) <= FIELD_LIMIT_CHARS,
            open=lambda name, kind: self._opening(TYPES.get(kind, "json"), name),
            end=self.value[1],
            close=lambda _: "",
            typed=True,
        ).constrain_call(tool, before, self.flat.call_close[0])

    def _opening(self, type: str, name: str | None) -> str:
        named = "" if name is None else f' name="{_attribute(name)}"'
        return f'{self.value[0]}{named} type="{type}">'

    def _members(
        self,
        s: Scanner,
        sink: ToolCallSink,
        emit: Emit,
        close: str,
        brackets: str,
        depth: int,
        remaining: dict[str, str],
    ) -> Parser[str]:
        """Reads the values up to `close`. Returns "" or the reason why they are incomplete.

        `remaining`: how the tag of each unread parameter begins, by name. Such a tag, or the end of the call, shows
        that the value before it lacks its closing tag.
        """
        names: set[str] = set()
        before = brackets[0]
        ends = (f"{self.value[0]} name=",) * (brackets == "[]") + (self.flat.call_close[0],)
        while not (yield from s.literal(close, after_space=True)):
            if depth and names and (ended := (yield from s.literal(*ends, after_space=True))):
                s.pos -= len(ended)
                self._warn_unclosed(sink)
                break
            if not (yield from s.literal(self.value[0], after_space=True)):
                if depth:
                    return expected_error(s, f"{self.value[0]} or {close}")
                return (yield from self._end_unclosed(s, sink, emit, close, bool(names)))
            attributes = yield from read_attributes(s, ">")
            if attributes is None:
                s.consume_truncated_word()
                return CUT_OFF if s.closed else "expected a value's attributes"
            name = unescape_attribute(attributes[0].get("name", ""))
            is_repeated = brackets == "{}" and name in names
            if is_repeated:
                sink.warn("duplicate_parameter", f"expected each parameter once, dropped another {name!r}")
            else:
                emit(before + (f"{as_string(name)}: " if brackets == "{}" else ""))
                before = ", "
            names.add(name)
            if not depth:
                remaining.pop(name, None)
            problem = yield from self._value(
                s,
                sink,
                discard if is_repeated else emit,
                attributes[0].get("type", ""),
                close,
                brackets,
                depth,
                remaining,
            )
            if problem:
                return problem
        emit(brackets[1] if before == ", " else brackets)
        return ""

    def _value(
        self,
        s: Scanner,
        sink: ToolCallSink,
        emit: Emit,
        type: str,
        close: str,
        brackets: str,
        depth: int,
        remaining: dict[str, str],
    ) -> Parser[str]:
        """Reads the content of a tag and its end. Returns "" or the reason why it is incomplete."""
        if type in HOLDERS:
            if depth == DEPTH_LIMIT:
                return f"expected no more than {DEPTH_LIMIT} levels"
            return (yield from self._members(s, sink, emit, self.value[1], HOLDERS[type], depth + 1, remaining))
        if type == "json":
            yield from s.skip_space()
            problem = yield from s.json_value(emit, self.value[1:])
            if problem or (yield from s.literal(self.value[1], after_space=True)):
                return problem
            marker = yield from s.literal(self.value[0], close, self.flat.call_close[0], after_space=True)
        else:
            emit('"')
            after_call: Follows = (*((each,) for each in self.flat.openers), (self.flat.section_close, ""), ("",))
            closing: Follows = ((self.value[0],), (close,), (self.flat.call_close[0],), *after_call)
            begins = [*remaining.values(), *((f'{self.value[0]} type="',) if brackets == "[]" else ())]
            closers = {self.value[1]: closing, self.flat.call_close[0]: after_call} | dict.fromkeys(begins, ((),))
            marker = yield from s.raw_until(closers, string_writer(emit))
            emit('"' if marker else "")
            if marker == self.value[1]:
                return ""
        s.pos -= len(marker)
        if not marker:
            return CUT_OFF if s.closed else f"expected {self.value[1]}"
        self._warn_unclosed(sink)
        return ""

    def _end_unclosed(self, s: Scanner, sink: ToolCallSink, emit: Emit, close: str, any_value: bool) -> Parser[str]:
        """Ends a call without its closing tag before the next call, or the end of the section or reply.

        Returns "" or the reason why it is incomplete.
        """
        marker = (
            (yield from s.literal(*self.flat.openers, self.flat.section_close, after_space=True)) if any_value else ""
        )
        if not marker:
            yield from s.skip_space()
            return (yield from end_unclosed_call(s, sink, any_value, close, self.value[0]))
        s.pos -= len(marker)
        sink.warn("missing_closing_tag", f"expected {close} before {marker}")
        emit("}")
        return ""

    def _warn_unclosed(self, sink: ToolCallSink) -> None:
        sink.warn("missing_closing_tag", f"expected {self.value[1]} after the value")

    def _written_members(self, members: Any) -> str:
        return "".join(self._written(value, name) for name, value in members.items())

    def _written(self, value: Any, name: str | None = None) -> str:
        match value:
            case dict():
                type, content = "dict", self._written_members(value)
            case list():
                type, content = "list", "".join(map(self._written, value))
            case NumberText():
                type, content = "json", str(value)
            case str():
                type, content = "raw", value
            case _:
                type, content = "json", {True: "true", False: "false"}.get(value, "null")
        return self._opening(type, name) + content + self.value[1]


def _attribute(text: str) -> str:
    return escape_attribute(text).replace("<", "&lt;").replace(">", "&gt;")
