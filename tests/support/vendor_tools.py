"""Requests with vendor-run tools to a gateway with a scripted model, and the strictly validated responses."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2

from dragoman import dialects
from dragoman.core import messages as v
from dragoman.core.events import AnyEvent, Finish, Start
from dragoman.gateway.gateway import NO_VENDOR_TOOLS, Gateway
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from support.http_client import http_client
from support.scripted_backend import Script, Scripted, serving
from support.vendor_types import checked, frames, types_of

QUESTION: Final = "Perform a web search for the query: dragoman 1.0"
FUNCTION: Final[dict[str, Any]] = {"type": "object", "properties": {"path": {"type": "string"}}}
ONLY: Final[dict[str, dict[str, Any]]] = {
    "anthropic_messages": {"tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}]},
    "openai_responses": {"tools": [{"type": "web_search"}]},
    "openai_chat": {"web_search_options": {}},
}
OWN: Final[dict[str, dict[str, Any]]] = {
    "anthropic_messages": {"name": "read", "input_schema": FUNCTION},
    "openai_responses": {"type": "function", "name": "read", "parameters": FUNCTION},
}
EXTRA: Final = {"store", "annotations"}
"""Members beyond the types: a field of a response, and sources in a chunk, as the API itself sends them."""


def body(dialect: str, stream: bool, **fields: Any) -> dict[str, Any]:
    question = [{"role": "user", "content": QUESTION}]
    asked = {"input": question} if dialect == "openai_responses" else {"messages": question}
    limit = {"max_tokens": 99} if dialect == "anthropic_messages" else {}
    return {"model": "m", "stream": stream, **asked, **limit, **fields}


@asynccontextmanager
async def asking(script: Script, runner: VendorToolRunner = NO_VENDOR_TOOLS) -> AsyncIterator[httpx2.AsyncClient]:
    gateway = Gateway([Scripted(script)], vendor_tools=runner)
    async with serving(gateway) as (_, url), http_client(url) as http:
        yield http


def scripted(*rounds: Sequence[AnyEvent], asked: list[v.Request]) -> Script:
    """A model with these responses, one for each request."""

    async def script(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        asked.append(request)
        yield Start("", "", 0)
        for event in rounds[len(asked) - 1]:
            yield event
        yield Finish("stop")

    return script


async def whole(http: httpx2.AsyncClient, dialect: str, asked: dict[str, Any]) -> Any:
    """The complete response, or the one that ends the stream, strictly validated."""
    answer = await http.post(dialects.get(dialect).path, json=asked)
    assert answer.status_code == 200, answer.text
    event_type, whole_type = types_of(dialect)
    if not asked["stream"]:
        checked(whole_type, answer.text, EXTRA)
        return json.loads(answer.text)
    events = [data for _, data in frames(answer.text) if data != "[DONE]"]
    for data in events:
        checked(event_type, data, EXTRA)
    return [json.loads(data) for data in events]


def blocks(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The content blocks of a Messages stream, joined."""
    content: list[dict[str, Any]] = []
    for event in events:
        if event["type"] == "content_block_start":
            content.append({**event["content_block"], "json": ""})
        elif event["type"] == "content_block_delta":
            content[event["index"]].setdefault("text", "")
            content[event["index"]]["text"] += event["delta"].get("text", "")
            content[event["index"]]["json"] += event["delta"].get("partial_json", "")
    for block in content:
        if written := block.pop("json"):
            block["input"] = json.loads(written)
        if block["type"] != "text":
            block.pop("text", None)
    return content


async def messages(http: httpx2.AsyncClient, stream: bool, **fields: Any) -> tuple[list[dict[str, Any]], str]:
    """The content blocks and the stop reason."""
    reply = await whole(http, "anthropic_messages", body("anthropic_messages", stream, **fields))
    if not stream:
        return reply["content"], reply["stop_reason"]
    return blocks(reply), next(event["delta"]["stop_reason"] for event in reply if event["type"] == "message_delta")


async def items(http: httpx2.AsyncClient, stream: bool, **fields: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The items, and the names of all events."""
    reply = await whole(http, "openai_responses", body("openai_responses", stream, **fields))
    if not stream:
        return reply["output"], []
    return reply[-1]["response"]["output"], [event["type"] for event in reply]
