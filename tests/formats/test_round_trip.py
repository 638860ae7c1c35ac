"""Each format reads the calls that it writes: their order, and arguments with any content."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import formats
from dragoman.core.collect import collect
from dragoman.core.events import Finish, Start
from dragoman.core.messages import ToolCall
from dragoman.parsing.format import Format
from dragoman.parsing.reply_reader import ReplyReader
from dragoman.schema.argument_types import as_json, as_string
from support.format_cases import TOOLS
from support.sampling import sample

each = pytest.mark.parametrize("format", [formats.get(name) for name in formats.names()], ids=lambda f: f.name)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)


def objects(strings: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    keys = st.text("abcdefgh_", min_size=1, max_size=6)
    values = st.recursive(
        scalars | strings, lambda v: st.lists(v, max_size=3) | st.dictionaries(strings, v, max_size=3)
    )
    return st.dictionaries(keys, values, max_size=4)


def written(format: Format, calls: list[ToolCall]) -> str:
    return format.write_calls(calls)


def read(format: Format, text: str, size: int) -> list[tuple[str, Any]]:
    ids = iter(range(99))
    reader = ReplyReader(format, TOOLS, new_id=lambda: str(next(ids)))
    events = [e for at in range(0, len(text), size) for e in reader.feed(text[at : at + size])]
    reply = collect([Start("", "", 0), *events, *reader.close(), Finish("stop")])
    return [(p.name, json.loads(p.arguments)) for p in reply.parts if isinstance(p, ToolCall)]


marker_texts = st.lists(st.integers(0, 30) | st.sampled_from(["\n", '"', "\\", "<", "{"]), max_size=3).map(tuple)
"""Text that `with_markers` completes for each format: a number is the index of one of its markers."""
tool_names = st.sampled_from([tool.name for tool in TOOLS if tool.name != "set_alarm"])


def with_markers(value: Any, format: Format) -> Any:
    """Returns the value with the format's own markers; formats with raw values get none."""
    match value:
        case tuple():
            known = format.markers if format.arguments == "JSON" and format.markers else [""]
            return "".join(known[each % len(known)] if isinstance(each, int) else each for each in value)
        case list():
            return [with_markers(each, format) for each in value]
        case dict():
            return {with_markers(name, format): with_markers(each, format) for name, each in value.items()}
        case _:
            return value


@given(
    calls=st.lists(st.tuples(tool_names, objects(words | marker_texts)), min_size=1, max_size=3),
    plain_calls=st.lists(st.tuples(tool_names, objects(words)), min_size=1, max_size=3),
    size=st.integers(1, 9),
)
def test_written_calls_are_read_back(
    calls: list[tuple[str, Any]], plain_calls: list[tuple[str, Any]], size: int
) -> None:
    """Strings may contain the format's own markers, but not a complete end of a value."""
    for format in map(formats.get, sample(formats.names(), 16, repr(calls))):
        stated = calls if format.arguments == "JSON" else plain_calls
        expected = [(name, with_markers(arguments, format)) for name, arguments in stated]
        made = [
            ToolCall(f"call{i:05}", name, json.dumps(value, ensure_ascii=False))
            for i, (name, value) in enumerate(expected)
        ]
        got = read(format, written(format, made), size)
        if format.arguments == "JSON":
            assert got == expected, format.name
        else:
            # Raw values have the types of the schema; without one, a string may look like something else.
            assert [name for name, _ in got] == [name for name, _ in expected], format.name
            assert [sorted(value) for _, value in got] == [sorted(value) for _, value in expected], format.name


# Without a schema for nested values, a string may be raw and look like another type.
plain = words.filter(lambda text: as_json(text) == as_string(text))
ALARMS = st.fixed_dictionaries(
    {},
    optional={
        "hour": st.integers(),
        "volume": st.floats(allow_nan=False, allow_infinity=False),
        "repeat": st.booleans(),
        "label": words,
        "days": st.lists(scalars | plain, max_size=3),
        "at": objects(plain),
    },
)


@given(alarm=ALARMS, size=st.integers(1, 9))
def test_written_values_keep_schema_types(alarm: dict[str, Any], size: int) -> None:
    call = ToolCall("call00000", "set_alarm", json.dumps(alarm, ensure_ascii=False))
    for format in map(formats.get, sample(formats.names(), 16, repr(alarm))):
        assert read(format, written(format, [call]), size) == [("set_alarm", alarm)], format.name


@each
def test_call_quoted_in_unknown_tool_call_is_not_read(format: Format) -> None:
    quoted = json.dumps(f"As in {written(format, [ToolCall('', 'ping', '{}')])} for example.", ensure_ascii=False)
    for around in ('{{"text": {}}}', '{{"a": {{"b": ["x", {}]}}}}', '{{"n": 1, "text": {}, "more": true}}'):
        assert read(format, written(format, [ToolCall("", "unknown", around.format(quoted))]), 7) == [], around
