"""Formats of the settings: read and written, validated, and every written call read back."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core import events as ev
from dragoman.core.collect import collect
from dragoman.core.errors import ConfigError
from dragoman.core.messages import Reasoning, Text, Tool, ToolCall, ToolChoice, ToolResult
from dragoman.parsing.format import Format
from dragoman.parsing.reply_reader import ReplyReader
from dragoman.parsing.tag_format import tag_format
from dragoman.parsing.tag_format_config import TagFormatConfig

TOOLS = (Tool("get_weather"), Tool("ping"))
JSON = {"opener": "<call>", "closer": "</call>", "name_key": "tool", "arguments_key": "args"}
NAMED = {"opener": "@@tool ", "name_end": "\n", "closer": "\n@@end", "reasoning": ("[[", "]]")}
SHAPES: list[dict[str, Any]] = [
    JSON,
    NAMED,
    {"opener": "::call::"},
    {"opener": "[[CALL]]\n", "closer": "\n[[/CALL]]", "result": ("@@result {name}\n", "\n@@done")},
    {"opener": "§§ ", "closer": "/§§", "name_end": ": "},
    {"opener": "<|tool|>", "name_end": "<|args|>"},
]


def make(**settings: Any) -> Format:
    return tag_format("mine", TagFormatConfig(**settings), "formats.mine")


def parts(format: Format, text: str, size: int = 1) -> list[Any]:
    ids = iter(range(99))
    reader = ReplyReader(format, TOOLS, new_id=lambda: str(next(ids)))
    events = [event for at in range(0, len(text), size) for event in reader.feed(text[at : at + size])]
    return list(collect([ev.Start("", "", 0), *events, *reader.close(), ev.Finish("stop")]).parts)


def test_call_with_keys_is_read() -> None:
    found = parts(make(**JSON), 'Let me see.\n<call>{"tool": "get_weather", "args": {"city": "Paris"}}</call>')
    assert found == [Text("Let me see."), ToolCall("call_0", "get_weather", '{"city": "Paris"}')]


def test_call_with_name_before_arguments_is_read() -> None:
    text = '[[Paris is meant.]]@@tool get_weather\n{"city": "Paris"}\n@@end\n@@tool ping\n{}\n@@end'
    assert parts(make(**NAMED), text) == [
        Reasoning("Paris is meant."),
        ToolCall("call_0", "get_weather", '{"city": "Paris"}'),
        ToolCall("call_1", "ping", "{}"),
    ]


def test_unknown_tool_stays_text() -> None:
    text = '<call>{"tool": "rm", "args": {}}</call>'
    assert parts(make(**JSON), text) == [Text(text)]


def test_result_is_written_between_the_settings_own_texts() -> None:
    format = make(**JSON, result=("@@result {name}\n", "\n@@done"))
    written = format.write_result(ToolResult("1", (Text("a @@done b"),)), "ping")
    assert written.startswith("@@result ping\na ")
    assert written.endswith(" b\n@@done")
    assert written.count("@@done") == 1


def test_tools_are_described_with_the_formats_own_call() -> None:
    assert "<call>{" in make(**JSON).write_tools(TOOLS, ToolChoice())


@pytest.mark.parametrize("settings", SHAPES)
def test_calls_can_be_constrained(settings: dict[str, Any]) -> None:
    assert make(**settings).constrain(TOOLS, ToolChoice("required")) is not None


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=3), v, max_size=3),
)
arguments = st.dictionaries(st.text("abcdefgh_", min_size=1, max_size=6), values, max_size=4)
markers = st.text("<>@#:|/!=~%callend\n ", min_size=1, max_size=8)


@given(
    calls=st.lists(st.tuples(st.sampled_from(["get_weather", "ping"]), arguments), min_size=1, max_size=3),
    settings=st.sampled_from(SHAPES),
    size=st.integers(1, 9),
)
def test_written_calls_are_read_back(calls: list[tuple[str, Any]], settings: dict[str, Any], size: int) -> None:
    check_round_trip(make(**settings), calls, size)


@given(
    calls=st.lists(st.tuples(st.sampled_from(["get_weather", "ping"]), arguments), min_size=1, max_size=3),
    opener=markers,
    closer=markers | st.just(""),
    name_end=markers | st.just(""),
    size=st.integers(1, 9),
)
def test_any_accepted_markers_read_what_they_write(
    calls: list[tuple[str, Any]], opener: str, closer: str, name_end: str, size: int
) -> None:
    try:
        format = make(opener=opener, closer=closer, name_end=name_end)
    except ConfigError:
        return
    check_round_trip(format, calls, size)


def check_round_trip(format: Format, calls: list[tuple[str, Any]], size: int) -> None:
    stated = [ToolCall("", name, json.dumps(value, ensure_ascii=False)) for name, value in calls]
    text = format.write_calls(stated)
    found = [(part.name, json.loads(part.arguments)) for part in parts(format, text, size)]
    assert found == calls, text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"opener": ""}, "expected a marker of at least 2 characters, .* got '' - at formats.mine.opener"),
        ({"opener": "call"}, "such as '<call>', got 'call' - at formats.mine.opener"),
        ({"opener": "{call"}, "expected a marker around the JSON, got '{call' - at formats.mine.opener"),
        ({"opener": "<c>", "closer": "}}"}, "expected a marker around the JSON, got '}}' - at formats.mine.closer"),
        ({"opener": "<c>", "closer": "<c>"}, "closer with which no opener begins, got '<c>' - at formats.mine.closer"),
        ({"opener": "<c>", "name_end": "_x"}, "cannot be part of a tool's name, got '_x' - at formats.mine.name_end"),
        ({"opener": "<c>", "name_end": ">{"}, "expected a text before the JSON object, got '>{'"),
        ({"opener": "<c>", "name_key": "a", "arguments_key": "a"}, "two different keys, got 'a' and 'a'"),
        ({"opener": "<c>", "reasoning": ("<t>",)}, r"two different texts, got \['<t>'\] - at formats.mine.reasoning"),
        ({"opener": "<c>", "reasoning": ("<c>", "</c>")}, "other markers than '<c>', which opens calls"),
        ({"opener": "<c>", "result": ("a", "b")}, "such as '<call>', got 'a' - at formats.mine.result"),
    ],
)
def test_invalid_markers_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**settings)


def test_invalid_name_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"got 'a b' - at formats.x"):
        tag_format("a b", TagFormatConfig("<c>"), "formats.x")
