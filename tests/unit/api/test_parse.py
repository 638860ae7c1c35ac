"""The public functions of `dragoman`; tests/e2e/docs/test_docs.py runs the examples of docs/library.md."""

import json
import re
from typing import Any

import pytest

import dragoman
from dragoman import dialects, formats
from dragoman.core.errors import RequestError, UsageError
from dragoman.core.events import ToolCallStart

CALL = '<tool_call>{"name": "f", "arguments": {"n": 1.50}}</tool_call>'
OPENAI: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
FLAT: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object"}}
ANTHROPIC: dict[str, Any] = {"name": "f", "input_schema": {"type": "object"}}


def test_all_exported_names_exist() -> None:
    assert all(hasattr(dragoman, name) for name in dragoman.__all__)


@pytest.mark.parametrize(
    "tool", [OPENAI, FLAT, ANTHROPIC, dragoman.Tool("f")], ids=["chat", "responses", "anthropic", "value"]
)
def test_parse_accepts_tools_of_any_api(tool: Any) -> None:
    (call,) = dragoman.parse(CALL, "hermes", [dragoman.Tool("g"), tool], new_id=lambda: "1").parts
    assert call == dragoman.ToolCall("call_1", "f", '{"n": 1.50}')
    (text,) = dragoman.parse(CALL.replace('"f"', '"h"'), "hermes", [tool]).parts
    assert isinstance(text, dragoman.types.Text)


def test_generated_call_ids_are_unique() -> None:
    first, second = dragoman.parse(CALL + CALL, "qwen").parts
    assert isinstance(first, dragoman.ToolCall)
    assert isinstance(second, dragoman.ToolCall)
    assert first.id != second.id


IDS = [
    ('{"id": "my_id", "name": "f", "arguments": {}}', "my_id"),
    ('{"name": "f", "id": "my_id", "arguments": {}}', "my_id"),
    ('{"name": "f", "arguments": {}, "id": "my_id"}', "my_id"),
    ('{"arguments": {}, "id": "my_id", "name": "f"}', "my_id"),
    ('{"name": "f", "arguments": {}, "id": "my id"}', "call_1"),
    ('{"name": "f", "arguments": {}, "id": 7}', "call_1"),
    ('{"id": "early", "name": "f", "arguments": {}, "id": "late"}', "early"),
]


@pytest.mark.parametrize("frame", ["<tool_call>{}</tool_call>", "{}", "```json\n{}\n```"])
@pytest.mark.parametrize(("call", "id"), IDS)
def test_call_id_of_model_is_kept(call: str, id: str, frame: str) -> None:
    text = frame.replace("{}", call)
    reply = dragoman.parse(text, "hermes", [OPENAI], lenient=True, new_id=lambda: "1")
    reader = dragoman.ToolCallReader("hermes", [OPENAI], lenient=True, buffering="all", new_id=lambda: "1")
    started = [e.id for e in [*reader.feed(text), *reader.close()] if isinstance(e, ToolCallStart)]
    assert ([p.id for p in reply.parts if isinstance(p, dragoman.ToolCall)], started) == ([id], [id])


def test_repeated_call_id_is_replaced() -> None:
    call = '<tool_call>{"name": "f", "arguments": {}, "id": "my_id"}</tool_call>'
    reply = dragoman.parse(call + call, "hermes", new_id=iter("ab").__next__)
    assert [p.id for p in reply.parts if isinstance(p, dragoman.ToolCall)] == ["my_id", "call_b"]


def test_untagged_call_is_read_only_if_lenient() -> None:
    bare = json.dumps({"name": "f", "arguments": {}})
    assert dragoman.parse(bare, "hermes", [OPENAI]).parts == (dragoman.types.Text(bare),)
    assert dragoman.parse(bare, "hermes", [OPENAI], lenient=True).finish_reason == "tool_calls"


def test_truncated_call_is_text_with_finish_reason_length() -> None:
    reply = dragoman.parse(CALL[:40], "hermes", finish_reason="length")
    assert reply.finish_reason == "length"
    assert reply.parts == (dragoman.types.Text(CALL[:40]),)


def test_reasoning_opened_by_prompt_suffix_is_read() -> None:
    reply = dragoman.parse("Hm.</think>Yes.", "hermes", prompt_suffix="<think>")
    assert reply.parts == (dragoman.types.Reasoning("Hm."), dragoman.types.Text("Yes."))


@pytest.mark.parametrize(
    ("format", "tools", "message"),
    [
        ("hermess", [], "unknown format 'hermess'; did you mean 'hermes'?"),
        ("hermes", ["f"], r"expected object, got string - at \$\[0\]"),
        ("hermes", [OPENAI, {"type": "function", "function": {}}], r"missing required field 'name' - at \$\[1\]"),
        ("hermes", OPENAI, "expected a list of tools, got dict - at tools"),
        ("hermes", "f", "expected a list of tools, got str - at tools"),
        ("hermes", 5, "expected a list of tools, got int - at tools"),
        ("hermes", [{"name": "f", "parameters": {}}], r"missing required field 'type'; a tool is .* - at \$\[0\]"),
        ("hermes", [{"type": "function", "name": "f"}], r"field 'function'; a tool is .*\"input_schema\": .* \$\[0\]"),
        ("hermes", [dragoman.Tool("f", "", {})], r"got dict; write it with json.dumps - at tools\[0\].parameters"),  # type: ignore[arg-type]
        ("hermes", [OPENAI, dragoman.Tool(5)], r"expected str, got int - at tools\[1\].name"),  # type: ignore[arg-type]
        (None, [], "expected a format or its name, got NoneType - at format"),
        (dragoman.detect_format("Qwen3-8B"), [], "got FormatMatch; take its `format` - at format"),
        ("hermes", [len], "expected tools as an API's JSON has them: .* - at tools"),
    ],
)
def test_invalid_reader_arguments_are_reported(format: Any, tools: Any, message: str) -> None:
    with pytest.raises(dragoman.DragomanError, match=message):
        dragoman.ToolCallReader(format, tools)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("required", r"expected a ToolChoice such as ToolChoice('auto'), got str - at choice"),
        (dragoman.ToolChoice("any"), "unknown mode 'any'; expected 'auto', 'none', 'required', 'named' - at"),  # type: ignore[arg-type]
        (dragoman.ToolChoice("named", "ff"), "unknown tool 'ff'; did you mean 'f'? - at choice.name"),
    ],
)
def test_invalid_tool_choice_is_rejected(choice: Any, message: str) -> None:
    """An invalid choice is not treated as "auto"."""
    for held in (
        lambda: dragoman.build_constraint("hermes", [OPENAI], choice),
        lambda: dragoman.to_json_schema([OPENAI], choice),
    ):
        with pytest.raises(UsageError, match=re.escape(message)):
            held()


def test_missing_constraint_is_rejected_by_writers() -> None:
    nothing: Any = dragoman.build_constraint("hermes", [OPENAI], dragoman.ToolChoice("none"))
    assert nothing is None
    for write in (dragoman.to_gbnf, dragoman.to_structural_tag):
        with pytest.raises(UsageError, match="got NoneType; where `build_constraint` returns None"):
            write(nothing)


def test_bytes_are_rejected() -> None:
    text: Any = b"Hi."
    for read in (dragoman.parse, dragoman.explain):
        with pytest.raises(UsageError, match="expected str, got bytes; decode it"):
            read(text, "hermes")


def test_render_messages_accepts_request_in_any_form() -> None:
    value = {"messages": [{"role": "user", "content": "hi"}], "tools": [OPENAI]}
    messages = dragoman.render_messages(value, "hermes")
    assert [m["role"] for m in messages] == ["system", "user"]
    body = json.dumps({"model": "m", **value}, separators=(",", ":")).encode()
    assert dragoman.render_messages(body, "hermes") == messages
    request = dialects.get("openai_chat").read_request(body)
    assert dragoman.render_messages(request, formats.get("hermes")) == messages
    anthropic = {"messages": value["messages"], "tools": [{"name": "f", "input_schema": {}}], "system": "Be kind."}
    assert dragoman.render_messages(anthropic, "hermes", api="anthropic_messages")[0]["content"].startswith(
        "Be kind.\n\n# Tools"
    )


@pytest.mark.parametrize(
    ("request_", "error", "says"),
    [
        ([], UsageError, "expected a request's body, got list - at request"),
        ({"messages": [object()]}, UsageError, "expected a request as an API's JSON has it"),
        ({"messages": 1}, RequestError, "expected array, got number - at $.messages"),
        (
            {"messages": [], "tools": [ANTHROPIC]},
            RequestError,
            "missing required field 'type'; with api='openai_chat' tools are as that API has them - at $.tools[0]",
        ),
        ({"messages": [], "tools": [{**OPENAI, "type": 1}]}, RequestError, "got number - at $.tools[0].type"),
        (b"{", RequestError, "expected"),
    ],
)
def test_render_messages_rejects_invalid_request(request_: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=re.escape(says)):
        dragoman.render_messages(request_, "hermes")
