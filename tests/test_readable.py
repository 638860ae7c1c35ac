"""Parts that one API knows are shown by their words; what nobody knows is refused by name."""

import json
from typing import Any

import msgspec
import pytest

from dragoman import dialects
from dragoman.backends.readable import readable
from dragoman.core import values as v
from dragoman.core.errors import RequestError, UnsupportedError

RESULT = {"type": "search_result", "source": "https://x", "title": "T", "content": [{"type": "text", "text": "4711"}]}


def read(dialect: str, *messages: dict[str, Any]) -> v.Request:
    body = {"model": "m", "max_tokens": 9, "messages": messages}
    return readable(dialects.get(dialect).read_request(json.dumps(body).encode()))


def test_a_search_result_is_a_document() -> None:
    inside = {"type": "tool_result", "tool_use_id": "t", "content": [RESULT]}
    request = read("anthropic_messages", {"role": "user", "content": [RESULT, inside, {"type": "text", "text": "?"}]})
    first, result, question = request.messages[0].parts
    assert isinstance(result, v.ToolResult)
    for part in (first, *result.parts):
        assert isinstance(part, v.Document)
        assert (part.source, part.title) == (v.Media("text/plain", text="4711"), "T")
    assert question == v.Text("?")


def test_a_call_of_a_tool_that_takes_text_is_a_call() -> None:
    call = {"id": "c", "type": "custom", "custom": {"name": "shell", "input": 'ls "-la"'}}
    request = read("openai_chat", {"role": "assistant", "tool_calls": [call]})
    (made,) = request.messages[0].parts
    assert isinstance(made, v.ToolCall)
    assert (made.id, made.name, json.loads(made.arguments)) == ("c", "shell", {"input": 'ls "-la"'})


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic_messages"])
def test_an_unknown_part_is_refused_by_name_and_place(dialect: str) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "txt", "text": "b"}]}]
    with pytest.raises(RequestError, match=r"unknown content part 'txt'; did you mean 'text'.*search_result") as found:
        read(dialect, *messages)
    assert found.value.path == "$.messages[0].content[1]"


def test_an_unknown_part_in_a_result_is_shown_as_it_came() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "tool_reference", "tool_name": "f"}]}
    request = read("anthropic_messages", {"role": "user", "content": [result]})
    shown = v.Text('{"type": "tool_reference", "tool_name": "f"}')
    assert request.messages[0].parts == (v.ToolResult("t", (shown,)),)


def test_a_search_result_that_is_none_is_refused() -> None:
    broken = RESULT | {"content": [{"type": "text"}]}
    with pytest.raises(RequestError, match=r"missing required field 'text' - at \$\.messages\[0\]\.content\[0\]"):
        read("anthropic_messages", {"role": "user", "content": [broken]})


def test_what_a_vendors_model_wrote_and_images_from_anywhere_stay() -> None:
    vendors = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    image = {"type": "image", "source": {"type": "moon"}}
    request = read(
        "anthropic_messages", {"role": "user", "content": [image]}, {"role": "assistant", "content": [vendors]}
    )
    assert [p.type for m in request.messages for p in m.parts if isinstance(p, v.Opaque)] == [
        "image",
        "server_tool_use",
    ]


@pytest.mark.parametrize(
    ("dialect", "tool", "choice"),
    [
        ("openai_responses", {"type": "file_search", "vector_store_ids": ["v"]}, {"type": "file_search"}),
        ("anthropic_messages", {"type": "web_search_20250305", "name": "look"}, {"type": "tool", "name": "look"}),
        ("openai_chat", {"type": "custom", "custom": {"name": "look"}}, {"type": "custom", "custom": {"name": "look"}}),
    ],
)
def test_a_vendors_tool_cannot_be_made_to_be_called(dialect: str, tool: Any, choice: Any) -> None:
    said = {"input" if dialect == "openai_responses" else "messages": [{"role": "user", "content": "hi"}]}
    body = {"model": "m", "max_tokens": 9, **said, "tools": [tool], "tool_choice": choice}
    request = dialects.get(dialect).read_request(json.dumps(body))
    with pytest.raises(UnsupportedError, match="which its vendor runs"):
        readable(request)
    readable(msgspec.structs.replace(request, tool_choice=v.ToolChoice()))
