"""The context of an exchange as the console's API answers with it."""

import asyncio
import json
from typing import Any

import pytest

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.gateway.gateway import Gateway
from support.capturing import TOOLS
from support.console import ServedConsole, served_console
from support.fake_upstream import ask, says_nothing, server, whole
from support.gateway import CHAT, MESSAGES
from support.scripted_backend import eventually

ANSWER = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "ok"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 100, "cache_read_input_tokens": 900, "output_tokens": 2},
}


async def context_of(console: ServedConsole, id: str, query: str = "") -> dict[str, Any]:
    response = await console.get(f"/exchanges/{id}/context{query}")
    assert response.status_code == 200, response.text
    use: dict[str, Any] = response.json()
    return use


async def captured_context(console: ServedConsole, id: str) -> dict[str, Any]:
    """The context, once the exchange is stored, which it is after its response."""
    while not (use := await context_of(console, id))["is_captured"]:
        await asyncio.sleep(0)
    return use


async def test_context_of_a_captured_exchange_and_of_one_that_is_not() -> None:
    answer = json.dumps({**ANSWER, "input_tokens": 4321})  # of the count, in the same server
    async with server(whole(200, answer)) as behind:
        config = HttpConfig(url=behind.url, api="anthropic_messages", models=("m",), context_window=8192)
        gateway = Gateway([HttpBackend("far", config, {})])
        async with served_console(gateway, upstreams={"far": config}) as console:
            before = (await ask(console.url, MESSAGES, False)).headers["x-request-id"]
            await console.capture()
            id = (await ask(console.url, CHAT, False, tools=TOOLS)).headers["x-request-id"]
            use = await captured_context(console, id)
            assert not (await context_of(console, before))["is_captured"]
            assert (use["tokens"], use["counting"], use["usage"]["cached_tokens"]) == (1000, "reported", 900)
            assert use["parts"][0]["name"] == "tool get_weather"
            assert use["context_window"] == 8192
            assert (use["trim_setting"], use["can_count"]) == ("upstreams.far.prompt_trim", True)
            exact = await context_of(console, id, "?count=exact")
            assert (exact["tokens"], exact["counting"]) == (4321, "exact")
            wrong = await console.get(f"/exchanges/{id}/context?count=all")
            assert wrong.status_code == 400
            assert "expected the count `exact`" in wrong.json()["error"]["message"]
            await console.capture(False)
            assert not (await context_of(console, id))["is_captured"]


STREAMED = (
    {"type": "message_start", "message": {**ANSWER, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ok"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_response_that_was_passed_through_has_its_usage(is_streamed: bool) -> None:
    events = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in STREAMED)
    play = whole(200, events, "text/event-stream") if is_streamed else whole(200, json.dumps(ANSWER))
    async with server(play) as behind:
        config = HttpConfig(url=behind.url, api="anthropic_messages", models=("m",), passthrough=True)
        async with served_console(Gateway([HttpBackend("far", config, {})]), upstreams={"far": config}) as console:
            await console.capture()
            id = (await ask(console.url, MESSAGES, is_streamed)).headers["x-request-id"]
            use = await captured_context(console, id)
    assert (use["tokens"], use["counting"]) == (1000, "reported")
    assert (use["usage"]["cached_tokens"], use["usage"]["output_tokens"]) == (900, 2)
    assert use["turns"][0]["usage"] == use["usage"]


async def test_running_exchange_has_its_context_too() -> None:
    async with server(says_nothing) as behind:
        config = HttpConfig(url=f"{behind.url}/v1", models=("m",))
        gateway = Gateway([HttpBackend("far", config, {})])
        async with served_console(gateway, upstreams={"far": config}) as console:
            await console.capture()
            asking = asyncio.ensure_future(ask(console.url, CHAT, True, tools=TOOLS))
            await eventually(lambda: behind.asked)
            async for _, rows in console.events("/traffic/stream"):
                if rows:
                    break
            use = await captured_context(console, rows[0]["id"])
            asking.cancel()
            await asyncio.wait([asking])
    assert (use["counting"], use["upstream"], use["turns"][0]["is_current"]) == ("estimated", "far", True)
    assert use["tokens"] == sum(part["tokens"] for part in use["parts"]) > 0
