"""The tools of a demonstration: a built-in one, or those that the user defines."""

import ast
import json
from pathlib import Path
from typing import Final

from dragoman.api.demo_tools import SUNNY, WEATHER
from dragoman.api.inputs import parse_tools_json
from dragoman.core.errors import ConfigError, RequestError
from dragoman.core.messages import Tool, ToolCall

QUESTION: Final = "What is the weather in Paris?"
DONE: Final = "done"
"""The result of any other tool, unless the user sets one."""

_TYPES: Final = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
}


def parse_tool(text: str) -> tuple[Tool, ...]:
    """Returns the tools of a file, in OpenAI's or Anthropic's shape, or the tool of a Python signature.

    Raises: ConfigError: it is neither; the message says what was expected.
    """
    if "(" in text and not Path(text).exists():
        return (_tool_of_signature(text),)
    try:
        return parse_tools_json(Path(text).read_bytes())
    except OSError as e:
        raise ConfigError(f"--tool: cannot read {text}: {e.strerror}") from None
    except RequestError as e:
        raise ConfigError(f"--tool: {e} in {text}") from None


def _tool_of_signature(text: str) -> Tool:
    """Returns the tool for `add(a: int, b: int = 0)`; a parameter with a default is optional."""
    try:
        (definition,) = ast.parse(f"def {text.strip().rstrip(':')}: ...").body
        assert isinstance(definition, ast.FunctionDef)
    except (SyntaxError, ValueError) as e:
        raise ConfigError(f"--tool: expected a file or a signature like 'add(a: int, b: int)', got {text!r}") from e
    names = [*definition.args.posonlyargs, *definition.args.args]
    required = [one.arg for one in names[: len(names) - len(definition.args.defaults)]]
    properties = {one.arg: _schema(one.annotation) for one in names}
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return Tool(definition.name, "", json.dumps(schema))


def _schema(annotation: ast.expr | None) -> dict[str, str]:
    name = annotation.id if isinstance(annotation, ast.Name) else ""
    return {"type": _TYPES[name]} if name in _TYPES else {}


def tool_result(call: ToolCall, output: str | None) -> str:
    """Returns the result of a call: `output`, or that of the built-in tool."""
    return output if output is not None else SUNNY if call.name == WEATHER.name else DONE
