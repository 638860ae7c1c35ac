"""Response templates: detected formats, generated formats, and the same results as with transformers."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dragoman
from dragoman.core.errors import ConfigError, UnsupportedError
from dragoman.core.messages import Reasoning, Text, ToolCall
from dragoman.identify import detect_format
from dragoman.parsing.format import Format

THINK = {"open": "<think>", "close_pattern": r"</think>\s*"}
REST = {"close_pattern": r"<\|im_end\|>\s*|$"}
NAMED = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
WHOLE = {"type": "function", "function": "{content}"}


def spec(tool_calls: Mapping[str, Any], **fields: Mapping[str, Any]) -> dict[str, Any]:
    calls = {"repeats": True, **tool_calls}
    stated = {"tool_calls": calls, "thinking": THINK, "content": REST, **fields}
    return {
        "defaults": {"role": "assistant"},
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {name: field for name, field in stated.items() if field},
    }


XML = {"tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\s*(?P<value>.*?)\s*</parameter>", "value_parser": {"name": "text"}}
GLM = {"tag_pattern": r"<arg_key>(?P<key>[^<]+)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>"}
MARKS = {"string_delims": [['<|"|>', '<|"|>']], "unquoted_keys": True}
KNOWN = {
    "hermes": spec({"open": "<tool_call>", "close": "</tool_call>", "content": "json", "transform": WHOLE}),
    "qwen3_xml": spec(
        {
            "open_pattern": r"<tool_call>\s*<function=(?P<name>[^\n>]+)>",
            "close_pattern": r"</tool_call>\s*",
            "content": "xml-inline",
            "content_args": XML,
            "transform": NAMED,
        }
    ),
    "glm": spec(
        {
            "open_pattern": r"<tool_call>(?P<name>[^\s<]+)\s*",
            "close": "</tool_call>",
            "content": "xml-inline",
            "content_args": GLM,
            "transform": NAMED,
        }
    ),
    "gemma4": spec(
        {
            "open_pattern": r"<\|tool_call>call:(?P<name>\w+)",
            "close": ["<tool_call|>"],
            "content": "json",
            "content_args": MARKS,
            "transform": NAMED,
        },
        thinking={"open": "<|channel>thought\n", "close": "<channel|>"},
    ),
    "cohere": spec(
        {
            "open": "<|START_ACTION|>",
            "close": "<|END_ACTION|>",
            "content": "json",
            "repeats": False,
            "transform_each": True,
            "transform": {"type": "function", "function": {"name": "{tool_name}", "arguments": "{parameters}"}},
        },
        thinking={"open": "<|START_THINKING|>", "close": "<|END_THINKING|>"},
    ),
    "llama3_json": spec(
        {
            "open_pattern": r'\{"name":\s*"(?P<name>[^"]+)",\s*"parameters":\s*',
            "close_pattern": r"\}<\|eot_id\|>\s*",
            "content": "json",
            "transform": NAMED,
        },
        content={"close": "<|eot_id|>"},
        thinking={},
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_response_template_selects_known_format(name: str) -> None:
    found = detect_format("gpt-oss:20b", response_template=KNOWN[name])
    assert (found.format.name, found.by) == (name, "response_template")
    assert found.why == f"the response template reads what {name} writes"


PLAIN = spec({"open": "<act>", "close": "</act>", "content": "json", "transform": WHOLE})
KEYS = {"type": "function", "function": {"name": "{content.tool}", "arguments": "{content.with}"}}
GENERATED = {
    "plain": (
        PLAIN,
        '<think>Hm.</think>\n\nSure.\n<act>{"name": "f", "arguments": {"n": 1.5, "s": "</think>"}}</act>'
        '<act>{"arguments": {}, "name": "g"}</act><|im_end|>\n',
    ),
    "other keys": (
        spec({"open": ["<do>", "<do it>"], "close": "</do>", "content": "json", "transform": KEYS}),
        'Sure.<do it>{"tool": "f", "with": {"a": [1, {"b": null}], "c": "ü\\n"}}</do>',
    ),
    "tags": (
        spec(
            {
                "open_pattern": r"<run\s+(?P<name>\w+)>",
                "close_pattern": r"</run>\s*",
                "content": "xml-inline",
                "content_args": {
                    "tag_pattern": r"<(?P<key>\w+)>(?P<value>.*?)</(?P=key)>",
                    "merge_duplicates": True,
                    "value_parser": {"name": "json", "args": {"allow_non_json": True}},
                },
                "transform": NAMED,
            }
        ),
        "Sure.\n\n<run f><n>3</n><s> a b </s><s>true</s></run>\n<run g></run>",
    ),
    "lines": (
        spec(
            {
                "open_pattern": r"\[(?P<name>\w+)\]\n",
                "close": "[/]",
                "content": "kv-lines",
                "content_args": {"kv_sep": "=", "value_parser": {"name": "int"}},
                "transform": NAMED,
            }
        ),
        "Sure. [1] [f]\nn = 3\n\nm=4 \nx\n[/]",
    ),
    "strings in marks": (
        spec(
            {
                "open_pattern": r"<!(?P<name>\w+)",
                "close": "!>",
                "content": "json",
                "content_args": {"string_delims": [["«", "»"]], "unquoted_keys": True},
                "transform": NAMED,
            }
        ),
        '<!f{s:«a "b", c:1»,o:{n:1,b:[true,«»]}}!>',
    ),
    "a list": (
        spec({"open": "<<", "close": ">>", "content": "json", "repeats": False}),
        '<<[{"type": "function", "function": {"name": "f", "arguments": {"n": 1}}}]>>',
    ),
    "thoughts that nothing opens": (
        spec(
            {"open": "<act>", "close": "</act>", "content": "json", "transform": WHOLE},
            thinking={"open_pattern": r"(?=[\s\S]*?</think>)", "close_pattern": r"</think>\s*"},
        ),
        'Hm.\n</think>\n\nSure.\n<act>{"name": "f", "arguments": {"n": 1}}</act>',
    ),
    "every field opened": (
        spec(
            {"open": "<act>", "close": "</act>", "content": "json", "transform": WHOLE},
            content={"open": "<say>", "close": "</say>"},
        ),
        '<think>Hm.</think>\n<say> Sure. </say>\n<act>{"name": "f", "arguments": {"n": 1}}</act>',
    ),
    "no calls": (PLAIN, "<think>\nHm.\n</think>\n\nSure: <b>.\n"),
}


def as_transformers(reply: dragoman.types.Reply) -> dict[str, Any]:
    """Returns a reply in the shape that transformers uses."""
    texts, thoughts, calls = [], [], []
    for part in reply.parts:
        match part:
            case ToolCall(_, name, arguments):
                calls.append({"name": name, "arguments": json.loads(arguments)})
            case Reasoning(text):
                thoughts.append(text.strip())
            case Text(text):
                texts.append(text.strip())
    return {"content": "".join(texts), "thinking": "".join(thoughts), "tool_calls": calls}


@pytest.mark.parametrize("title", GENERATED)
def test_generated_format_reads_like_transformers(title: str) -> None:
    from transformers.utils import chat_parsing

    template, text = GENERATED[title]
    message = chat_parsing.parse_response(text, template, prefix="")
    calls = [call["function"] for call in message.get("tool_calls", ())]
    read = as_transformers(dragoman.parse(text, detect_format(response_template=template).format))
    assert read == {"content": message.get("content", ""), "thinking": message.get("thinking", ""), "tool_calls": calls}
    assert bool(calls) == (title != "no calls")


@cache
def generated_format(title: str) -> Format:
    found = detect_format(response_template=GENERATED[title][0])
    assert found.why == "the response template describes no known format"
    return found.format


def events(text: str, pieces: list[str], title: str, reason: Literal["stop", "length"]) -> list[Any]:
    reader = dragoman.ToolCallReader(generated_format(title), new_id=lambda: "1")
    found = [event for piece in pieces for event in reader.feed(piece)] + reader.close(reason)
    assert "".join(pieces) == text
    joined: list[Any] = []
    for event in found:
        if (
            joined
            and type(event) is type(joined[-1])
            and isinstance(event, dragoman.TextDelta | dragoman.ReasoningDelta)
        ):
            event = type(event)(joined.pop().text + event.text)
        joined.append(event)
    return joined


@pytest.mark.parametrize("title", GENERATED)
@pytest.mark.parametrize("reason", ["stop", "length"])
def test_chunk_boundaries_do_not_change_events(title: str, reason: Literal["stop", "length"]) -> None:
    text = GENERATED[title][1]
    whole = events(text, [text], title, reason)
    assert events(text, list(text), title, reason) == whole
    for cut in range(1, len(text)):
        assert events(text, [text[:cut], text[cut:]], title, reason) == whole


def test_text_and_reasoning_are_streamed() -> None:
    reader = dragoman.ToolCallReader(generated_format("plain"))
    assert reader.feed("<think>H") == [dragoman.ReasoningDelta("H")]
    assert reader.feed("m.</think>\n\nSure") == [dragoman.ReasoningDelta("m."), dragoman.TextDelta("Sure")]
    assert reader.feed(".\n<act>{") == [dragoman.TextDelta(".")]
    assert reader.feed('"name": "f"}</act>') == [], "calls are emitted at the end of the reply"
    assert [type(event).__name__ for event in reader.close()] == ["ToolCallStart", "ToolCallDelta", "ToolCallEnd"]


def test_reasoning_opened_by_prompt_is_read() -> None:
    format = generated_format("plain")
    reply = dragoman.parse('Hm.</think><act>{"name": "f"}</act>', format, prompt_suffix="<think>")
    assert [type(part).__name__ for part in reply.parts] == ["Reasoning", "ToolCall"]
    format = generated_format("thoughts that nothing opens")
    reply = dragoman.parse('Hm.</think>Sure.<act>{"name": "f"}</act>', format, prompt_suffix="Well. ")
    assert reply.parts[:2] == (Reasoning("Hm."), Text("Sure."))


def test_numbers_are_kept_verbatim() -> None:
    text = '<act>{"name": "f", "arguments": {"a": 1.50, "b": 1e400, "c": 9223372036854775808123, "d": -0.0}}</act>'
    (call,) = dragoman.parse(text, generated_format("plain")).parts
    assert isinstance(call, ToolCall)
    assert call.arguments == '{"a": 1.50, "b": 1e400, "c": 9223372036854775808123, "d": -0.0}'


def test_text_values_have_type_of_schema() -> None:
    template = spec(
        {"open_pattern": r"<run\s+(?P<name>\w+)>", "close": "</run>", "content": "kv-lines", "transform": NAMED}
    )
    tool = dragoman.Tool("f", "", '{"properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}')
    text = "<run f>n: 7\ns: 7\nx: 7</run>"
    format = detect_format(response_template=template).format
    (call,) = dragoman.parse(text, format, [tool]).parts
    assert isinstance(call, ToolCall)
    assert call.arguments == '{"n": 7, "s": "7", "x": "7"}'


@pytest.mark.parametrize(
    ("text", "code", "left"),
    [
        (
            'Sure.<act>{"name": "f", "arguments": {</act> no',
            "malformed_arguments",
            'Sure.<act>{"name": "f", "arguments": {</act>no',
        ),
        ('<act>{"name": 7}</act>', "malformed_arguments", '<act>{"name": 7}</act>'),
        (
            '<act>{"name": "f", "arguments": [1]}</act>',
            "malformed_arguments",
            '<act>{"name": "f", "arguments": [1]}</act>',
        ),
        ('<act>{"name": "h"}</act>', "unknown_tool", '<act>{"name": "h"}</act>'),
    ],
)
def test_invalid_call_is_kept_as_text(text: str, code: str, left: str) -> None:
    reader = dragoman.ToolCallReader(generated_format("plain"), [dragoman.Tool("f")])
    found = [*reader.feed(text), *reader.close()]
    assert [event.code for event in found if isinstance(event, dragoman.Notice)] == [code]
    assert "".join(event.text for event in found if isinstance(event, dragoman.TextDelta)) == left


def test_truncated_call_is_reported_and_dropped() -> None:
    reader = dragoman.ToolCallReader(generated_format("plain"))
    reader.feed('Sure.<act>{"name": "f", "arguments": {}}')
    (warning,) = reader.close("length")
    assert isinstance(warning, dragoman.Notice)
    assert (warning.code, warning.raw) == ("truncated_call", '<act>{"name": "f", "arguments": {}}')


@pytest.mark.parametrize(
    ("text", "number"),
    [("1.50", "1.50"), (" -2e5 ", "-2e5"), ("1e999", "1e999"), (".5", "0.5"), ("1_000", "1000.0"), ("+5", "5.0")],
)
def test_float_parser_writes_json_number(text: str, number: str) -> None:
    assert floats(text) == [f'{{"n": {number}}}']


@pytest.mark.parametrize("text", ["nan", "inf", "-Infinity", "x"])
def test_non_json_float_is_not_a_call(text: str) -> None:
    assert floats(text) == []


def floats(text: str) -> list[str]:
    """Returns the arguments of the calls in a reply with this number."""
    field = {
        "open_pattern": r"\[(?P<name>\w+)\]",
        "close": "[/]",
        "content": "kv-lines",
        "content_args": {"value_parser": {"name": "float"}},
        "transform": NAMED,
    }
    parts = dragoman.parse(f"[f]n:{text}[/]", detect_format(response_template=spec(field)).format).parts
    return [part.arguments for part in parts if isinstance(part, ToolCall)]


def test_too_deep_arguments_raise_no_error() -> None:
    for levels in (300, 600, 3000):
        text = '<act>{"name": "f", "arguments": {"a": ' + "[" * levels + "]" * levels + "}}</act>"
        assert dragoman.parse(text, generated_format("plain")).parts


def test_many_calls_are_read_in_linear_time() -> None:
    """Quadratic work would exceed the test's time limit."""
    assert (
        len(dragoman.parse('<act>{"name": "f", "arguments": {}}</act>\n' * 20_000, generated_format("plain")).parts)
        == 20_000
    )


def test_text_outside_fields_is_reported() -> None:
    reader = dragoman.ToolCallReader(generated_format("every field opened"))
    found = [*reader.feed("So <say>yes</say> it is"), *reader.close()]
    assert dragoman.TextDelta("yes") in found
    (warning,) = [event for event in found if isinstance(event, dragoman.Notice)]
    assert (warning.code, warning.raw) == ("text_between_calls_dropped", "So it is")


def test_simple_generated_format_can_be_written() -> None:
    for title in ("plain", "other keys", "every field opened"):
        format = generated_format(title)
        call = ToolCall("call_1", "f", '{"n": 1.50, "s": "</act>"}')
        written = format.write_call(call)
        assert dragoman.parse(written, format, new_id=lambda: "1").parts == (call,)
        assert dragoman.build_constraint(format, [dragoman.Tool("f")], dragoman.ToolChoice("required")) is not None


@pytest.mark.parametrize("title", ["tags", "lines", "strings in marks", "a list"])
def test_complex_generated_format_is_read_only(title: str) -> None:
    format = generated_format(title)
    with pytest.raises(UnsupportedError, match="can be read, not written"):
        format.write_tools((dragoman.Tool("f"),), dragoman.ToolChoice("auto"))
    with pytest.raises(UnsupportedError, match="can be read, not written"):
        format.write_call(ToolCall("1", "f", "{}"))


def test_known_chat_template_format_is_preferred_to_generated_format() -> None:
    call = "<tool_call>{{ c.function | tojson }}</tool_call>"
    template = "{% for m in messages %}{% for c in m.tool_calls or [] %}" + call + "{% endfor %}{% endfor %}"
    assert detect_format("m", chat_template=template, response_template=PLAIN).format.name == "hermes"
    assert detect_format("qwen3:8b", response_template=PLAIN).by == "response_template"


FIELD = {"open": "<a>", "close": "</a>"}
INNER = {"value_parser": {"name": "xml-inline", "args": {"tag_pattern": "("}}}


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"x-regex": "(?P<content>.*)"}, "of an older kind"),
        (
            {"start_anchor": "a", "fields": {"content": {"opens": "<a>"}}},
            r"unknown field `opens` - at `\$.fields\[...\]`",
        ),
        ({"start_anchor": "a", "fields": {"content": {"content": "yaml"}}}, "Invalid enum value 'yaml'"),
        ({"start_anchor": "a", "fields": {"content": FIELD}, "version": 2}, "Invalid enum value 2"),
        ({"start_anchor": "a", "fields": {}}, "at least one field"),
        ({"fields": {"content": FIELD}}, "start_anchor"),
        ({"start_anchor_pattern": "(", "fields": {"content": FIELD}}, "missing \\)"),
        ({"start_anchor": "a", "fields": {"content": {"open_pattern": "("}}}, "missing \\)"),
        ({"start_anchor": "a", "fields": {"content": {"open": "<a>", "open_pattern": "<a>"}}}, "got both"),
        ({"start_anchor": "a", "fields": {"content": {"open": ""}}}, "at least one character"),
        ({"start_anchor": "a", "fields": {"content": {"close": ["a", ""]}}}, "at least one character"),
        ({"start_anchor": "a", "fields": {"content": {}, "thinking": {}}}, "without opener, got content, thinking"),
        ({"start_anchor": "a", "fields": {"content": {"transform_each": True}}}, "transform_each needs a transform"),
        ({"start_anchor": "a", "fields": {"content": {"join": "x"}}}, "join needs repeats"),
        ({"start_anchor": "a", "fields": {"content": {"content": "xml-inline"}}}, "a group named key"),
        ({"start_anchor": "a", "fields": {"content": {"open_pattern": "(?P<x>a)"}}}, "named groups need a transform"),
        ({"start_anchor": "a", "fields": {"content": FIELD | {"content_args": INNER}}}, "missing \\)"),
    ],
)
def test_invalid_response_template_is_rejected(broken: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        detect_format(response_template=broken)


@given(st.data())
def test_damaged_reply_raises_no_error_for_any_cut(data: st.DataObject) -> None:
    title = data.draw(st.sampled_from(sorted(GENERATED)))
    text = GENERATED[title][1]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 8)))
    damaged = text[:start] + data.draw(st.text('<>{}"/ a', max_size=3)) + text[end:]
    reason: Literal["stop", "length"] = data.draw(st.sampled_from(["stop", "length"]))
    cut = data.draw(st.integers(0, len(damaged)))
    whole = events(damaged, [damaged], title, reason)
    assert events(damaged, [damaged[:cut], damaged[cut:]], title, reason) == whole
