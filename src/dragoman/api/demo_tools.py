"""The tools of demonstrations: `dragoman ask` has the first one, the console's playground all of them."""

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias

from dragoman.core.messages import Tool
from dragoman.text.json_cursor import load_json

SUNNY: Final = "sunny, 22 degrees Celsius"
WEATHER: Final = Tool(
    "get_weather",
    "Weather in a city.",
    '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],'
    ' "additionalProperties": false}',
)
CALCULATE: Final = Tool(
    "calculate",
    "Computes with two numbers.",
    '{"type": "object", "properties": {"operation": {"type": "string", "enum": ["add", "subtract", "multiply",'
    ' "divide"]}, "numbers": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}},'
    ' "required": ["operation", "numbers"], "additionalProperties": false}',
)
GET_TIME: Final = Tool(
    "get_time",
    "The present date and time in UTC.",
    '{"type": "object", "properties": {}, "additionalProperties": false}',
)
Clock: TypeAlias = Callable[[], datetime]


class DemoResult(NamedTuple):
    """What a tool returned."""

    text: str
    is_error: bool = False


def signature(tool: Tool) -> str:
    """Returns `get_weather(city: string)`."""
    try:
        schema: dict[str, Any] = json.loads(tool.parameters)
        types = {
            name: property_schema.get("type", "") for name, property_schema in schema.get("properties", {}).items()
        }
    except (ValueError, AttributeError):
        return tool.name
    return f"{tool.name}({', '.join(f'{name}: {type}' if type else name for name, type in types.items())})"


def run_demo_tool(name: str, arguments: str, clock: Clock = lambda: datetime.now(UTC)) -> DemoResult:
    """Runs one of `DEMO_TOOLS`; it computes only, and reads nothing of this machine but the time.

    Args:
        name: The name of the tool.
        arguments: JSON, as a model wrote it.
        clock: Returns the present time.
    """
    try:
        values = load_json(arguments)
        if not isinstance(values, dict):
            raise TypeError
        return DemoResult(_RUNS[name](values, clock))
    except ZeroDivisionError:
        return DemoResult("error: division by zero", is_error=True)
    except (KeyError, ValueError, TypeError, OverflowError, RecursionError):
        expected = signature(DEMO_TOOLS[name])
        return DemoResult(f"error: expected arguments of {expected}, got others", is_error=True)


def _weather(values: Mapping[str, Any], clock: Clock) -> str:
    if not isinstance(values["city"], str):
        raise TypeError
    return SUNNY


def _calculate(values: Mapping[str, Any], clock: Clock) -> str:
    first, second = (float(number) for number in values["numbers"])
    result = _OPERATIONS[values["operation"]](first, second)
    if not math.isfinite(result):
        raise OverflowError
    return f"{result:.15g}"


def _time(values: Mapping[str, Any], clock: Clock) -> str:
    return clock().strftime("%Y-%m-%d %H:%M:%S UTC")


_OPERATIONS: Final[Mapping[str, Callable[[float, float], float]]] = {
    "add": lambda first, second: first + second,
    "subtract": lambda first, second: first - second,
    "multiply": lambda first, second: first * second,
    "divide": lambda first, second: first / second,
}
_RUNS: Final[Mapping[str, Callable[[Mapping[str, Any], Clock], str]]] = {
    WEATHER.name: _weather,
    CALCULATE.name: _calculate,
    GET_TIME.name: _time,
}
DEMO_TOOLS: Final[Mapping[str, Tool]] = {tool.name: tool for tool in (WEATHER, CALCULATE, GET_TIME)}
"""The tools by name."""
