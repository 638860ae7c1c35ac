"""Found tools behind llama.cpp in native mode: they are not sent, so its prompt cache holds; calls are read here."""

import itertools
import json
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.core.backend import ExchangeContext
from dragoman.core.collect import collect
from dragoman.core.messages import Request, Tool, ToolCall, ToolChoice
from support.events import all_events
from support.fake_upstream import Play, server
from support.text_upstream import ARGUMENTS, PING, QUESTION, WEATHER, cut, writes

SEARCH = Tool(
    "tool_search", "Finds tools.", '{"type":"object","properties":{"query":{"type":"string"}}}', loading="search"
)
FOUND = replace(WEATHER, loading="found")
ASKED = Request("qwen2.5-coder", (QUESTION,), (SEARCH, FOUND, replace(PING, loading="deferred")), max_tokens=200)
CALL = f'<tool_call>\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n</tool_call>'


async def ask(request: Request, play: Play, **settings: Any) -> tuple[dict[str, Any], list[ToolCall]]:
    """The body that the server got, and the calls of the response."""
    given = {"provider": "llama_cpp", "tool_mode": "native", "models": (request.model,), **settings}
    async with server(play) as behind:
        backend = HttpBackend("far", HttpConfig(url=f"{behind.url}/v1", **given), {})
        await backend.start()
        try:
            ids = itertools.count()
            context = ExchangeContext("1", 0, lambda: f"{next(ids):024}")
            reply = collect(await all_events(backend.generate(request, context)))
        finally:
            await backend.close()
    return json.loads(behind.asked[-1][2]), [part for part in reply.parts if isinstance(part, ToolCall)]


def names(body: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in body["tools"]]


@pytest.mark.parametrize("mode", ["native", "parse"])
async def test_call_of_found_tool_is_read_from_the_text(mode: str) -> None:
    body, calls = await ask(ASKED, writes(*cut(CALL)), tool_mode=mode)
    assert (names(body), body["tool_choice"]) == (["tool_search"], "none")
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [("get_weather", json.loads(ARGUMENTS))]


@pytest.mark.parametrize(
    ("request_fields", "settings"),
    [
        ({}, {"provider": "vllm"}),
        ({}, {"provider": ""}),
        ({"model": "an-unknown-model"}, {}),
        ({"tool_choice": ToolChoice("required")}, {}),
        ({"response_schema": '{"type":"object"}'}, {}),
    ],
    ids=["other server", "unknown server", "unknown format", "required call", "response schema"],
)
async def test_other_requests_contain_found_tools(request_fields: dict[str, Any], settings: dict[str, str]) -> None:
    body, _ = await ask(replace(ASKED, **request_fields), writes("Sunny."), **settings)
    assert names(body) == ["tool_search", "get_weather"]
    assert body.get("tool_choice") != "none"


async def test_request_without_found_tools_stays_native() -> None:
    body, _ = await ask(replace(ASKED, tools=(SEARCH, WEATHER)), writes("Sunny."))
    assert names(body) == ["tool_search", "get_weather"]
    assert body.get("tool_choice") != "none"
