"""Vendor-run tools that the gateway cannot run: an honest error in the API's own form, never results of the model."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any, Final

import pytest

from dragoman import dialects
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.core import messages as v
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta
from dragoman.gateway.gateway import Gateway
from support.fake_upstream import Server, server
from support.fake_upstream import whole as whole_body
from support.http_client import http_client
from support.scenarios import call
from support.scripted_backend import Scripted, serving
from support.vendor_tools import ONLY, OWN, QUESTION, asking, body, items, messages, scripted, whole

INVENTED: Final = "1. Example Domain - https://example.com"
each_stream = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


async def inventing(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield TextDelta(INVENTED)
    yield Finish("stop")


@each_stream
@pytest.mark.parametrize("choice", [{}, {"tool_choice": {"type": "tool", "name": "web_search"}}])
async def test_messages_search_alone_gets_error_block(stream: bool, choice: dict[str, Any]) -> None:
    async with asking(inventing) as http:
        (use, result, text), reason = await messages(http, stream, **ONLY["anthropic_messages"], **choice)
    assert (use["type"], use["name"], use["input"]) == ("server_tool_use", "web_search", {"query": QUESTION})
    assert (result["type"], result["tool_use_id"]) == ("web_search_tool_result", use["id"])
    assert result["content"] == {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    assert "This gateway has no web search" in text["text"]
    assert "[tools.web_search]" in text["text"]
    assert reason == "end_turn"


@each_stream
@pytest.mark.parametrize(
    ("type", "name", "kind"),
    [
        ("web_fetch_20250910", "web_fetch", "web_fetch"),
        ("code_execution_20250825", "code_execution", "code_execution"),
    ],
)
async def test_other_messages_tools_get_error_blocks(stream: bool, type: str, name: str, kind: str) -> None:
    async with asking(inventing) as http:
        (use, result, text), _ = await messages(http, stream, tools=[{"type": type, "name": name}])
    assert (use["name"], result["type"]) == (name, f"{kind}_tool_result")
    assert result["content"]["error_code"] == "unavailable"
    assert type in text["text"]


@each_stream
@pytest.mark.parametrize("choice", ["auto", "required", {"type": "web_search_preview"}])
async def test_responses_search_alone_gets_failed_call(stream: bool, choice: object) -> None:
    tools = [{"type": "web_search_preview"}]
    async with asking(inventing) as http:
        (call_item, message), names = await items(http, stream, tools=tools, tool_choice=choice)
    assert (call_item["type"], call_item["status"]) == ("web_search_call", "failed")
    assert call_item["action"]["query"] == QUESTION
    assert "This gateway has no web search" in message["content"][0]["text"]
    if stream:
        at = names.index("response.web_search_call.in_progress")
        assert names[at - 1 : at + 3] == [
            "response.output_item.added",
            "response.web_search_call.in_progress",
            "response.web_search_call.searching",
            "response.output_item.done",
        ]
        assert "response.web_search_call.completed" not in names


@each_stream
@pytest.mark.parametrize(
    ("tool", "type"),
    [
        ({"type": "code_interpreter", "container": {"type": "auto"}}, "code_interpreter_call"),
        ({"type": "file_search", "vector_store_ids": ["v"]}, "file_search_call"),
        ({"type": "image_generation"}, "image_generation_call"),
        ({"type": "mcp", "server_label": "docs", "server_url": "https://example.com"}, "mcp_list_tools"),
    ],
)
async def test_other_responses_tools_get_failed_items(stream: bool, tool: dict[str, Any], type: str) -> None:
    async with asking(inventing) as http:
        (item, message), names = await items(http, stream, tools=[tool])
    assert item["type"] == type
    assert item.get("status", "failed") == "failed"
    assert type != "mcp_list_tools" or item["error"]
    assert tool["type"] in message["content"][0]["text"]
    assert not stream or (f"response.{type}.failed" in names) == (type == "mcp_list_tools")


@each_stream
@pytest.mark.parametrize(
    ("dialect", "fields", "name"),
    [
        ("openai_chat", ONLY["openai_chat"], "web_search_options"),
        ("anthropic_messages", {"mcp_servers": [{"type": "url", "url": "https://x", "name": "x"}]}, "mcp_servers"),
    ],
)
async def test_tools_without_error_block_are_rejected(
    stream: bool, dialect: str, fields: dict[str, Any], name: str
) -> None:
    async with asking(inventing) as http:
        answer = await http.post(dialects.get(dialect).path, json=body(dialect, stream, **fields))
    assert answer.status_code == 400
    assert name in answer.json()["error"]["message"]


@each_stream
async def test_model_that_calls_unavailable_messages_tool_reads_error(stream: bool) -> None:
    asked: list[v.Request] = []
    script = scripted(call(0, "web_search", query="x"), [TextDelta("I could not search.")], asked=asked)
    tools = [*ONLY["anthropic_messages"]["tools"], OWN["anthropic_messages"]]
    async with asking(script) as http:
        (use, result, text), reason = await messages(http, stream, tools=tools)
    assert (use["input"], result["content"]["error_code"]) == ({"query": "x"}, "unavailable")
    assert (text["text"], reason) == ("I could not search.", "end_turn")
    answered = asked[1].messages[-1].parts[0]
    assert isinstance(answered, v.ToolResult)
    assert answered.is_error


@each_stream
async def test_model_that_calls_unavailable_responses_tool_reads_error(stream: bool) -> None:
    asked: list[v.Request] = []
    script = scripted(call(0, "web_search", query="x"), [TextDelta("I could not search.")], asked=asked)
    tools = [*ONLY["openai_responses"]["tools"], OWN["openai_responses"]]
    async with asking(script) as http:
        (call_item, message), _ = await items(http, stream, tools=tools)
    assert (call_item["type"], call_item["status"]) == ("web_search_call", "failed")
    assert message["content"][0]["text"] == "I could not search."
    assert len(asked) == 2


@each_stream
@pytest.mark.parametrize("dialect", sorted(OWN))
async def test_vendor_tool_next_to_own_tools_is_left_out(dialect: str, stream: bool) -> None:
    """As Codex and Claude Code send it; the client's own calls are not changed."""
    asked: list[v.Request] = []
    script = scripted(call(0, "read", path="a"), asked=asked)
    async with asking(script) as http:
        reply = await whole(http, dialect, body(dialect, stream, tools=[*ONLY[dialect]["tools"], OWN[dialect]]))
    assert "call_0" in json.dumps(reply)
    assert len(asked) == 1


@each_stream
@pytest.mark.parametrize("mode", ["native", "parse", "prompt"])
@pytest.mark.parametrize("dialect", sorted(OWN))
async def test_call_of_unavailable_tool_in_text_reads_error(dialect: str, mode: str, stream: bool) -> None:
    """The call does not stay in the text, in any tool mode."""
    called = '<tool_call>\n{"name": "web_search", "arguments": {"query": "x"}}\n</tool_call>'

    async def play(far: Server, writer: asyncio.StreamWriter) -> None:
        content = called if len(far.asked) == 1 else "I could not search."
        choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
        await whole_body(200, json.dumps({"id": "x", "choices": [choice]}))(far, writer)

    tools = [*ONLY[dialect]["tools"], OWN[dialect]]
    async with server(play) as far:
        config = HttpConfig(
            f"{far.url}/v1", models=("m",), tool_mode=mode, call_format="hermes", max_retries=0, auto_probe=False
        )
        gateway = Gateway([HttpBackend("far", config, {})])
        async with serving(gateway) as (_, url), http_client(url) as http:
            reply = await whole(http, dialect, body(dialect, stream, tools=tools))
        sent = [json.loads(request) for _, _, request in far.asked]
    written = json.dumps(reply)
    assert len(sent) == 2
    assert "<tool_call>" not in written
    assert "I could not search." in written
    assert "not available" in json.dumps(sent[1]["messages"])


async def test_client_function_of_same_name_is_not_vendor_tool() -> None:
    asked: list[v.Request] = []
    script = scripted(call(0, "web_search", path="a"), asked=asked)
    tools = [*ONLY["openai_responses"]["tools"], {**OWN["openai_responses"], "name": "web_search"}]
    async with asking(script) as http:
        (item,), _ = await items(http, stream=False, tools=tools)
    assert (item["type"], item["name"]) == ("function_call", "web_search")
