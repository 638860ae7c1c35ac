"""Tagged parameters in all formats that have them: parts that models omit, add or misplace."""

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest

from dragoman import formats
from dragoman.api.parse import parse
from dragoman.core import events as ev
from dragoman.core import messages as v
from dragoman.parsing.reply_reader import ReplyReader
from support.format_cases import shown

STRING = {"type": "string"}
TAGGED = [name for name in formats.names() if formats.get(name).arguments == "tagged"]
WITH_CLOSERS = [name for name in TAGGED if name not in ("cohere_cofl", "cwm", "kimi_k3", "minimax_m3")]
"""Formats in which a tag such as `</parameter>` closes a value; in cohere_cofl and minimax_m3 values are nested."""
CLOSER = re.compile(r"one(\n?(?:</[^<>]+>|<\|tool_arg:end\|>)\n?)")


def tool(**properties: Any) -> v.Tool:
    return v.Tool("f", "", json.dumps({"type": "object", "properties": properties}))


def written(format: str, **arguments: Any) -> str:
    return formats.get(format).write_calls([v.ToolCall("", "f", json.dumps(arguments, ensure_ascii=False))])


def read(text: str, format: str, given: v.Tool) -> list[Any]:
    """Returns the arguments of the calls, and text; asserts that cuts do not change them."""
    whole = shown(events([text], format, given))
    assert shown(events(text, format, given)) == whole
    parts = parse(text, format, [given]).parts
    return [json.loads(part.arguments) if isinstance(part, v.ToolCall) else part for part in parts]


def events(pieces: Iterable[str], format: str, given: v.Tool) -> list[ev.AnyEvent]:
    reader = ReplyReader(formats.get(format), [given], new_id=lambda: "id")
    return [event for piece in pieces for event in reader.feed(piece)] + reader.close("stop")


@pytest.mark.parametrize("format", WITH_CLOSERS)
def test_value_without_closer_ends_at_next_known_parameter(format: str) -> None:
    text = written(format, a="one", b="two")
    for behind in ("", "\n"):
        broken = CLOSER.sub(f"one{behind}", text, count=1)
        assert broken != text
        assert read(broken, format, tool(a=STRING, b=STRING)) == [{"a": "one", "b": "two"}]


@pytest.mark.parametrize("format", WITH_CLOSERS)
def test_parameter_tag_quoted_in_value_is_kept(format: str) -> None:
    text = written(format, a="one", b="two")
    closer = CLOSER.search(text)
    assert closer is not None
    tag = text[closer.end() : text.index("two")]
    value = f"say {tag}x{closer[1].strip()} to all"
    assert read(written(format, a=value, b="y"), format, tool(a=STRING, b=STRING)) == [{"a": value, "b": "y"}]


@pytest.mark.parametrize("format", WITH_CLOSERS)
def test_white_space_around_value_is_kept(format: str) -> None:
    for value in ("a\n", "\na", "\na\n", "a\n\n", "\n", "", "  a  "):
        assert read(written(format, a=value), format, tool(a=STRING)) == [{"a": value}], value


@pytest.mark.parametrize("format", WITH_CLOSERS)
@pytest.mark.parametrize("name", ["arguments", "input", "parameters"])
def test_arguments_nested_in_one_parameter_are_unwrapped(format: str, name: str) -> None:
    inner = {"a": "one", "b": {"c": [1.50]}}
    given = tool(a=STRING, b={"type": "object"})
    for value in (inner, json.dumps(inner)):
        assert read(written(format, **{name: value}), format, given) == [inner]
    assert read(written(format, **{name: inner, "z": "two"}), format, given) == [{**inner, "z": "two"}]
    # A parameter of the tool with that name, and an object without known parameters, are kept.
    assert read(written(format, **{name: inner}), format, tool(**{name: {"type": "object"}})) == [{name: inner}]
    assert read(written(format, **{name: {"z": 1}}), format, given) == [{name: {"z": 1}}]


@pytest.mark.parametrize("format", TAGGED)
def test_any_of_schemas_allow_types_of_all_branches(format: str) -> None:
    branches = [{"properties": {"a": STRING}}, {"properties": {"a": {"type": "integer"}}}]
    for word in ("anyOf", "oneOf"):
        given = v.Tool("f", "", json.dumps({"type": "object", word: branches}))
        assert read(written(format, a=7), format, given) == [{"a": 7}]


@pytest.mark.parametrize("format", [name for name in WITH_CLOSERS if not formats.get(name).name.startswith("deepseek")])
def test_enum_value_that_looks_like_number_keeps_its_type(format: str) -> None:
    given = tool(a={"enum": ["7", 8]}, b={"enum": ["8", 8]})
    assert read(written(format, a="7", b=8), format, given) == [{"a": "7", "b": 8}]


SECTIONS = [name for name in WITH_CLOSERS if formats.get(name).section[0].strip()]


@pytest.mark.parametrize("format", SECTIONS)
def test_json_calls_in_section_are_read(format: str) -> None:
    opener, closer = (each.strip() for each in formats.get(format).section)
    call = '{"name": "f", "arguments": {"a": "one"}}'
    for text in (f"{opener}\n{call}\n{closer}", f"{opener}[{call}]{closer}"):
        assert read(text, format, tool(a=STRING)) == [{"a": "one"}]
