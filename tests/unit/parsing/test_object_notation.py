"""Values in object notations (Python, Gemma): nesting depth, and arguments that cannot be written."""

import json

import pytest

from dragoman import ToolCallReader, formats
from dragoman.core import events as ev
from dragoman.core.messages import Tool, ToolCall
from dragoman.parsing.shapes.object_notation import DEPTH_LIMIT

SHAPES = {
    "gemma4": ("<|tool_call>call:ping{a:", "}<tool_call|>"),
    "functiongemma": ("<start_function_call>call:ping{a:", "}<end_function_call>"),
    "pythonic": ("[ping(a=", ")]"),
    "lfm2": ("<|tool_call_start|>[ping(a=", ")]<|tool_call_end|>"),
    "olmo3": ("<function_calls>\nping(a=", ")\n</function_calls>"),
}
each = pytest.mark.parametrize("name", SHAPES)


def read(name: str, value: str) -> list[ev.AnyEvent]:
    before, behind = SHAPES[name]
    reader = ToolCallReader(name, [Tool("ping")])
    return [*reader.feed(before + value + behind), *reader.close()]


def arguments(events: list[ev.AnyEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, ev.ToolCallDelta))


@each
def test_nesting_up_to_limit_is_read(name: str) -> None:
    levels = DEPTH_LIMIT - 1  # the arguments object is one level
    events = read(name, "[" * levels + "]" * levels)
    assert isinstance(events[-1], ev.ToolCallEnd)
    assert json.loads(arguments(events))


@each
def test_nesting_beyond_limit_is_incomplete(name: str) -> None:
    events = read(name, "[" * 100_000)
    assert any(isinstance(event, ev.ToolCallIncomplete) for event in events)
    assert len(arguments(events)) < 2 * DEPTH_LIMIT


@each
@pytest.mark.parametrize("given", ["", "{", "[1]", "null", '{"a": ' + "[" * 100_000])
def test_non_object_arguments_are_written_as_empty(name: str, given: str) -> None:
    format = formats.get(name)
    assert format.write_call(ToolCall("id", "ping", given)) == format.write_call(ToolCall("id", "ping", "{}"))


@each
def test_numbers_are_written_verbatim(name: str) -> None:
    given = '{"a": [1.50, 12345678901234567890123, -1E+400, true, false, null]}'
    format = formats.get(name)
    reader = ToolCallReader(name, [Tool("ping")])
    written = format.write_calls([ToolCall("id", "ping", given)])
    assert arguments([*reader.feed(written), *reader.close()]) == given


@each
def test_many_delimiters_are_read_in_linear_time(name: str) -> None:
    """Quadratic work would exceed the test's time limit."""
    read(name, "[" + "x, " * 20_000)
    read(name, "[" + "1, " * 20_000 + "1]")


@pytest.mark.parametrize(
    ("name", "begun"),
    [
        ("gemma4", "<|tool_call>ca"),
        ("mistral", "[TOOL_CALLS]get_weather"),
        ("lfm2", "<|tool_call_start|>pi"),
        ("minicpm5", "<function name"),
    ],
)
def test_many_unterminated_names_are_read_in_linear_time(name: str, begun: str) -> None:
    """The end of a name is searched within a window only. Quadratic work would exceed the test's time limit."""
    reader = ToolCallReader(name, [Tool("ping")])
    assert [*reader.feed(begun * 20_000), *reader.close()]
