"""Writes calls in Python syntax (`python_call.py` reads them), and constrains the decoding of such calls."""

import json
import re
from dataclasses import replace
from typing import Any, Final

from dragoman.constraints import schema_values
from dragoman.constraints.constraint import ConstrainedCall
from dragoman.constraints.grammar import Concat, Identifier, JsonValue
from dragoman.constraints.schema_values import ValueNotation
from dragoman.core.messages import Tool, ToolCall
from dragoman.parsing.shapes.object_notation import NumberText, with_number_text, write_arguments
from dragoman.schema.argument_types import as_string

KEYWORD: Final = re.compile(r"[^\s()\[\]{}'\"=,:]+")
"""The name of an argument."""


def write_call(call: ToolCall) -> str:
    """Returns the call in Python syntax."""
    return f"{call.name}({write_arguments(call.arguments, _parameters)})"


def _known(value: Any) -> str:
    return literal(with_number_text(value))


def _parameters(loaded: dict[str, Any]) -> str:
    return ", ".join(f"{name}={literal(value)}" for name, value in loaded.items())


def literal(value: Any) -> str:
    """Returns a value in Python syntax, with numbers as `NumberText`."""
    match value:
        case dict():
            return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(literal, value)) + "]"
        case NumberText():
            return str(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return repr(value) if value in (True, False) else "None"


_STRING: Final = JsonValue('{"type": "string"}')
SPELLING: Final = ValueNotation(
    known=_known,
    string=lambda _: _STRING,
    key=lambda name: f"{as_string(name)}: ",
    any_key=Concat((_STRING, ": ")),
    comma=", ",
    counts=False,  # JSON's `\\/` is two characters in Python
)
AS_JSON: Final = replace(SPELLING, known=lambda value: json.dumps(value, ensure_ascii=False))
"""Literals are written as in JSON."""


def constrain_call(tool: Tool, values: ValueNotation = SPELLING) -> ConstrainedCall:
    """Returns the constraint for calls of this tool; strings are written as in JSON, which is also valid Python."""
    by_name = replace(
        values, key=lambda name: f"{name}=" if KEYWORD.fullmatch(name) else "", any_key=Concat((Identifier(), "="))
    )
    body, relaxed = schema_values.arguments_grammar(tool, values, by_name)
    return ConstrainedCall(f"{tool.name}(", body, ")", relaxed)
