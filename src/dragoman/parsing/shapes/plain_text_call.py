"""Calls of a tool's name and its input as plain text, as in a shell.

    <tool: function>
    terminal find . -name "*.py"
    </tool>

The text is the value of the tool's only string parameter, or of `command` if the tool has several or its parameters are
unknown; a JSON object is read as all arguments. The label is ignored; it may be the name if its own end is missing.
"""

import json
from typing import Final

from dragoman.constraints.constraint import ConstrainedCall
from dragoman.constraints.grammar import JsonValue
from dragoman.core.messages import Tool, ToolCall
from dragoman.parsing.define_format import object_or_string
from dragoman.parsing.shapes.name_then_json import CallHead
from dragoman.parsing.shapes.tagged import read_call
from dragoman.parsing.sink import ToolCallSink
from dragoman.schema.argument_types import Schema, as_string, string_writer
from dragoman.text.scanner import CUT_OFF, Parser, Scanner, markers

OPEN, LABEL, CLOSE = "<tool:", "function>", "</tool>"
COMMAND: Final = "command"


def head(s: Scanner, _: str) -> Parser[CallHead | None]:
    """Reads the label, and the name up to the first blank."""
    yield from s.skip_space()
    name_field = yield from s.field(markers(">", " ", "\n", CLOSE))
    if name_field and name_field[1] == ">":
        yield from s.skip_space()
        name_field = yield from s.field(markers(" ", "\n", CLOSE))
    if name_field is None or not name_field[0]:
        return None
    s.pos -= len(name_field[1])
    return CallHead(name_field[0])


def parameter(schema: Schema) -> str:
    """Returns the parameter that a text is the value of: the only string parameter, if there is one."""
    strings = [name for name in sorted(schema.names()) if schema.types_at(name) == {"string"}]
    return strings[0] if len(strings) == 1 else COMMAND


def body(s: Scanner, sink: ToolCallSink, schema: Schema) -> Parser[str]:
    """Reads the text, or an object instead, and the closing tag. Returns "" or the reason why it is incomplete."""
    yield from s.skip_space()
    if (yield from s.peek()) == "{":
        problem = yield from s.json_value(sink.arguments)
        if problem or (yield from s.literal(CLOSE, after_space=True)):
            return problem
        if not s.closed:
            return f"expected {CLOSE}"
        if not s.stopped_by_model or not CLOSE.startswith(s.buf[s.pos :].strip()):
            return CUT_OFF
        s.pos = len(s.buf)
        sink.warn("missing_closing_tag", f"expected {CLOSE} before the end of the reply")
        return ""
    if (yield from s.literal(CLOSE)):
        sink.arguments("{}")
        return ""
    sink.arguments(f'{{{as_string(parameter(schema))}: "')
    closed = yield from s.until(markers(CLOSE), string_writer(sink.arguments))
    sink.arguments('"}' if closed else "")
    return "" if closed else CUT_OFF


def read(s: Scanner, sink: ToolCallSink, opener: str) -> Parser[bool]:
    """Reads one call."""
    return (yield from read_call(s, sink, opener, head, body))


def write_call(call: ToolCall) -> str:
    """Returns the call with its one string as text if that is unambiguous; otherwise with its arguments as JSON."""
    arguments = object_or_string(call.arguments)
    try:
        ((name, text),) = json.loads(arguments).items()
    except (ValueError, RecursionError):
        name, text = "", None
    plain = name == COMMAND and isinstance(text, str) and text == text.strip() and CLOSE not in text
    written = text if plain and text and not text.startswith("{") else arguments
    return f"{OPEN} {LABEL}\n{call.name} {written}\n{CLOSE}"


def constrain_call(tool: Tool) -> ConstrainedCall:
    """Returns the constraint for calls of this tool, with JSON arguments."""
    return ConstrainedCall(f"{OPEN} {LABEL}\n{tool.name} ", JsonValue(tool.parameters, arguments=True), f"\n{CLOSE}")
