"""API-specific parts become text, unknown parts become their JSON, and dropped content is reported."""

import json
from typing import Any

import msgspec
import pytest

from dragoman import dialects, formats
from dragoman.backends.request_limits import prepare_for_server
from dragoman.backends.text_mode.content_fallback import fallback_warnings, with_text_fallbacks
from dragoman.backends.text_mode.request import for_prompted_mode
from dragoman.core import messages as v
from dragoman.core.errors import RequestError, UnsupportedError
from dragoman.prompting.chat_renderer import render_chat

RESULT = {"type": "search_result", "source": "https://x", "title": "T", "content": [{"type": "text", "text": "4711"}]}


def read(dialect: str, *messages: dict[str, Any]) -> v.Request:
    body = {"model": "m", "max_tokens": 9, "messages": messages}
    return with_text_fallbacks(dialects.get(dialect).read_request(json.dumps(body).encode()))


def test_search_result_becomes_document() -> None:
    inside = {"type": "tool_result", "tool_use_id": "t", "content": [RESULT]}
    request = read("anthropic_messages", {"role": "user", "content": [RESULT, inside, {"type": "text", "text": "?"}]})
    first, result, question = request.messages[0].parts
    assert isinstance(result, v.ToolResult)
    for part in (first, *result.parts):
        assert isinstance(part, v.Document)
        assert (part.source, part.title) == (v.MediaSource("text/plain", text="4711"), "T")
    assert question == v.Text("?")


def test_custom_tool_call_becomes_call_with_input_argument() -> None:
    call = {"id": "c", "type": "custom", "custom": {"name": "shell", "input": 'ls "-la"'}}
    request = read("openai_chat", {"role": "assistant", "tool_calls": [call]})
    (made,) = request.messages[0].parts
    assert isinstance(made, v.ToolCall)
    assert (made.id, made.name, json.loads(made.arguments)) == ("c", "shell", {"input": 'ls "-la"'})


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic_messages"])
@pytest.mark.parametrize("role", ["user", "system"])
@pytest.mark.parametrize(("content", "name"), [([{"type": "txt", "a": "b"}], "txt"), ({"a": "b"}, "content")])
def test_unknown_part_and_object_become_their_json(dialect: str, role: str, content: Any, name: str) -> None:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": role, "content": content}]}
    asked = dialects.get(dialect).read_request(json.dumps(body))
    (part,) = with_text_fallbacks(asked).messages[0].parts
    assert isinstance(part, v.Text)
    assert json.loads(part.text) == (content if name == "content" else content[0])
    assert [warning.label for warning in fallback_warnings(asked)] == [f"request_adapted: {name}"]


def test_dropped_reasoning_and_vendor_tools_are_reported() -> None:
    thought = {"role": "assistant", "content": "b", "reasoning_content": "hm"}
    tools = [{"type": "web_search"}, {"type": "function", "function": {"name": "f"}}]
    said = [{"role": "user", "content": "a"}, thought, {"role": "user", "content": "c"}]
    body = {"model": "m", "messages": said, "tools": tools}
    asked = dialects.get("openai_chat").read_request(json.dumps(body))
    assert [w.label for w in fallback_warnings(asked)] == ["content_dropped: web_search", "content_dropped: reasoning"]


def test_unknown_part_in_result_becomes_its_json() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "tool_reference", "tool_name": "f"}]}
    request = read("anthropic_messages", {"role": "user", "content": [result]})
    shown = v.Text('{"type": "tool_reference", "tool_name": "f"}')
    assert request.messages[0].parts == (v.ToolResult("t", (shown,)),)


def test_invalid_search_result_is_rejected() -> None:
    broken = RESULT | {"content": [{"type": "text"}]}
    with pytest.raises(RequestError, match=r"missing required field 'text' - at \$\.messages\[0\]\.content\[0\]"):
        read("anthropic_messages", {"role": "user", "content": [broken]})


def test_vendor_parts_and_unknown_images_are_kept() -> None:
    vendors = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    image = {"type": "image", "source": {"type": "moon"}}
    request = read(
        "anthropic_messages", {"role": "user", "content": [image]}, {"role": "assistant", "content": [vendors]}
    )
    assert [p.type for m in request.messages for p in m.parts if isinstance(p, v.UnknownPart)] == [
        "image",
        "server_tool_use",
    ]


@pytest.mark.parametrize(
    ("dialect", "tool", "choice"),
    [
        ("openai_responses", {"type": "file_search", "vector_store_ids": ["v"]}, {"type": "file_search"}),
        ("anthropic_messages", {"type": "web_search_20250305", "name": "look"}, {"type": "tool", "name": "look"}),
    ],
)
def test_required_vendor_tool_is_rejected(dialect: str, tool: Any, choice: Any) -> None:
    said = {"input" if dialect == "openai_responses" else "messages": [{"role": "user", "content": "hi"}]}
    body = {"model": "m", "max_tokens": 9, **said, "tools": [tool], "tool_choice": choice}
    request = dialects.get(dialect).read_request(json.dumps(body))
    with pytest.raises(UnsupportedError, match="which its vendor runs"):
        with_text_fallbacks(request)
    with pytest.raises(UnsupportedError, match="expected a tool that the client runs, got only"):
        with_text_fallbacks(msgspec.structs.replace(request, tool_choice=v.ToolChoice()))
    with_text_fallbacks(msgspec.structs.replace(request, tool_choice=v.ToolChoice("none")))
    with_text_fallbacks(
        msgspec.structs.replace(request, tool_choice=v.ToolChoice(), tools=(*request.tools, v.Tool("f")))
    )


def test_tool_reference_becomes_schema_without_placeholder() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    tools = [
        {"name": "f", "description": "does", "input_schema": schema, "defer_loading": True},
        {"name": "DeferredToolPlaceholder", "input_schema": {"type": "object"}, "defer_loading": True},
    ]
    found = [{"type": "tool_reference", "tool_name": name} for name in ("f", "g")]
    result = {"type": "tool_result", "tool_use_id": "t", "content": found}
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": [result]}], "tools": tools}
    request = dialects.get("anthropic_messages").read_request(json.dumps(body))
    for_chat = prepare_for_server(request, dialects.get("openai_chat"), "http://127.0.0.1/v1")
    for made in (with_text_fallbacks(request), for_chat):
        (part,) = made.messages[0].parts
        assert isinstance(part, v.ToolResult)
        known, unknown = part.parts
        assert isinstance(known, v.Text)
        assert json.loads(known.text) == {"name": "f", "description": "does", "parameters": schema}
        assert isinstance(unknown, v.UnknownPart | v.Text)
        assert [tool.name for tool in made.tools] == ["f"]
    assert prepare_for_server(request, dialects.get("anthropic_messages"), "http://127.0.0.1/v1").tools == request.tools


def test_content_dropped_in_prompt_mode_is_reported_by_kind() -> None:
    media = v.MediaSource(data="AA==")
    shown = (v.Image(media), v.Audio(media), v.Document(media), v.Document(v.MediaSource(text="seen")), v.Image(media))
    result = v.ToolResult("1", (v.Audio(media),))
    call = v.Message("assistant", (v.ToolCall("1", "a", "{}"),))
    messages = (v.Message("user", shown), call, v.Message("tool", (result,)))
    _, told = for_prompted_mode(v.Request("m", messages), formats.get("hermes"))
    assert [warning.label for warning in told] == [f"content_dropped: {name}" for name in ("images", "audio", "files")]


def test_tool_that_client_has_found_is_not_listed_before_conversation() -> None:
    """As with Claude Code's own search: a found tool must not change the beginning of the prompt."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    asked = [{"role": "user", "content": "Find f."}]
    call = {"type": "tool_use", "id": "t", "name": "ToolSearch", "input": {"query": "f"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "tool_reference", "tool_name": "f"}]}
    answered = [*asked, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    tools = [{"name": "ToolSearch", "input_schema": schema}]
    found = {"name": "f", "description": "does", "input_schema": schema, "defer_loading": True}
    before, after = (
        with_text_fallbacks(
            dialects.get("anthropic_messages").read_request(
                json.dumps({"model": "m", "max_tokens": 9, "messages": messages, "tools": offered})
            )
        )
        for messages, offered in ((asked, tools), (answered, [found, *tools]))
    )
    one, other = ("\n".join(turn.text for turn in render_chat(each, formats.get("hermes"))) for each in (before, after))
    assert other.startswith(one)
    assert [(tool.name, tool.loading) for tool in after.tools] == [("ToolSearch", "listed"), ("f", "found")]
    compacted = dialects.get("anthropic_messages").read_request(
        json.dumps({"model": "m", "max_tokens": 9, "messages": asked, "tools": [found, *tools]})
    )
    assert with_text_fallbacks(compacted).tools[0].loading == "listed"
