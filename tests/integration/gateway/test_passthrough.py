"""Passthrough over HTTP: responses of a trusted server are forwarded unparsed, errors as on the parsed path.

client ─HTTP→ gateway ─HTTP→ a scripted server, or another gateway
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx2
import msgspec
import openai
import pytest
import pytest_asyncio

from dragoman import dialects
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.gateway.gateway import Gateway
from support.fake_upstream import (
    END,
    FRONTS,
    HEAD,
    RESPONSES,
    Server,
    begins,
    dies,
    ends_as_failed,
    gateway,
    piece,
    says_nothing,
    server,
    told,
    whole,
)
from support.gateway import CHAT, DEADLINE_S, MESSAGES, http_request
from support.http_client import http_client
from support.refusing_upstream import COMPLETION
from support.scenarios import DIED, SCENARIOS, WHOLE, expected, play
from support.scripted_backend import IMPATIENT, eventually, served, serving
from support.sdk_calls import CHAT as CHAT_API
from support.sdk_calls import MESSAGES as MESSAGES_API
from support.sdk_calls import RESPONSES as RESPONSES_API
from support.sdk_calls import USER, Api, Ask, Sdk

pytestmark = pytest.mark.asyncio(loop_scope="module")

# The vendors' SDKs, through two gateways: the outer one forwards what the inner one writes


APIS = (CHAT_API, RESPONSES_API, MESSAGES_API)
ASKS = [
    pytest.param(api, ask, id=ask.__name__)
    for api in APIS
    for ask in api.modes
    if not ask.__name__.endswith(("async", "parse"))
]


@dataclass
class Behind:
    url: str
    sdks: dict[str, Sdk]
    asked: list[Any]


@contextlib.asynccontextmanager
async def trusting(url: str, **settings: Any) -> AsyncIterator[str]:
    """The URL of a gateway with passthrough to this server, for every API."""
    backends = [
        HttpBackend(name, HttpConfig(url=url, api=name, models=tuple(SCENARIOS), passthrough=True, max_retries=0), {})
        for name in dialects.names()
    ]
    async with serving(Gateway(backends), **settings) as (_, own):
        yield own


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def behind() -> AsyncIterator[Behind]:
    settings: Any = {"api_key": "k", "max_retries": 0, "timeout": DEADLINE_S}
    async with served(play, names=list(SCENARIOS), **IMPATIENT) as s, trusting(s.url) as url:
        with (
            openai.OpenAI(base_url=f"{url}/v1", **settings) as openais,
            anthropic.Anthropic(base_url=url, **settings) as anthropics,
        ):
            yield Behind(url, {"openai": Sdk(openais, None), "anthropic": Sdk(anthropics, None)}, s.sent)


async def run_sdk(api: Api, ask: Ask, behind: Behind, scenario: str) -> Any:
    name = {id(CHAT_API): "openai_chat", id(RESPONSES_API): "openai_responses"}.get(id(api), "anthropic_messages")
    asks = api.asks([USER], api.tools) | ({"store": False} if api is RESPONSES_API else {})
    return await behind.sdks[api.package].run(ask, model=f"{name}/{scenario}", **asks)


@pytest.mark.parametrize("scenario", WHOLE)
@pytest.mark.parametrize(("api", "ask"), ASKS)
async def test_vendor_sdks_get_same_response_through_passthrough(
    api: Api, ask: Ask, scenario: str, behind: Behind, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="dragoman.access")
    reply = await run_sdk(api, ask, behind, scenario)
    assert api.said(reply)[0] == expected(scenario)
    assert reply.model.endswith(f"/{scenario}")
    await eventually(lambda: len(caplog.messages) == 2)
    inner, outer = sorted((json.loads(m) for m in caplog.messages), key=lambda line: "passthrough" in line)
    assert outer["passthrough"]
    assert {n: outer[n] for n in ("input_tokens", "output_tokens")} == {"input_tokens": 90, "output_tokens": 12}
    assert "calls" in inner
    assert outer["finish"] == ("content_filter" if scenario == "refusal" and api is MESSAGES_API else inner["finish"])


@pytest.mark.parametrize(("api", "ask"), ASKS)
async def test_vendor_sdks_get_upstream_error_through_passthrough(api: Api, ask: Ask, behind: Behind) -> None:
    with pytest.raises(api.error, match=DIED):
        api.said(await run_sdk(api, ask, behind, "broken"))


# Requests that are parsed instead of forwarded


@contextlib.asynccontextmanager
async def trusted(
    play: Callable[[Server, asyncio.StreamWriter], Awaitable[None]], api: str, **more: Any
) -> AsyncIterator[Any]:
    """A scripted server, and the URL of a gateway with passthrough to it."""
    async with server(play) as behind, gateway(behind.url, api=api, passthrough=True, **more) as url:
        yield behind, url


API_OF_PATH = {dialects.get(name).path: name for name in dialects.names()}
SMALL = {
    CHAT: b'{"model": "m",  "messages": [{"role": "user", "content": "hi"}], "x": 1.50',
    MESSAGES: b'{"model": "m",  "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, "x": 1.50',
    RESPONSES: b'{"model": "m",  "input": "hi", "store": false, "x": 1.50',
}


async def post(url: str, path: str, body: bytes) -> httpx2.Response:
    async with http_client(url) as client:
        return await client.post(path, content=body)


def body_of(path: str, more: bytes = b"") -> bytes:
    return SMALL[path] + more + b"}"


@pytest.mark.parametrize("path", FRONTS)
async def test_passthrough_request_is_unchanged_except_model_name(path: str) -> None:
    async with trusted(whole(500, "{}"), API_OF_PATH[path]) as (behind, url):
        await post(url, path, body_of(path))
        await post(url, path, body_of(path).replace(b'"m"', b'"far/m"'))
    assert behind.asked[0][2] == body_of(path)
    assert json.loads(behind.asked[1][2]) == json.loads(body_of(path))
    assert behind.asked[1][2].endswith(b'"x":1.50}')


async def test_usage_is_requested_from_upstream_and_hidden_from_client(caplog: pytest.LogCaptureFixture) -> None:
    """The log contains it; a client that did not request usage gets none."""
    caplog.set_level(logging.INFO, "dragoman.access")
    async with served(play, names=list(SCENARIOS)) as s, trusting(s.url) as url:
        answer = await post(
            url, CHAT, json.dumps({"model": "openai_chat/text", "messages": [USER], "stream": True}).encode()
        )
    assert json.loads(s.sent[-1].body)["stream_options"] == {"include_usage": True}
    assert '"usage":{' not in answer.text
    (facts,) = [json.loads(r.message) for r in caplog.records if '"passthrough":true' in r.message]
    assert facts["output_tokens"] > 0


async def test_lone_surrogate_in_member_name_is_replaced() -> None:
    async with trusted(whole(200, COMPLETION), "openai_chat") as (behind, url):
        answer = await post(url, CHAT, body_of(CHAT, rb', "\ud83d": 1').replace(b'"m"', b'"far/m"'))
    assert answer.json()["choices"][0]["message"]["content"] == "Hello"
    assert json.loads(behind.asked[0][2])["\ufffd"] == 1


PARSED_REQUESTS: list[tuple[str, bytes]] = [
    (CHAT, b', "tools": [{"type": "function", "function": {"name": "f"}}], "parallel_tool_calls": false'),
    (CHAT, b', "messages": [{"role": "tool", "tool_call_id": "c", "content": "late"}]'),
    (CHAT, b', "max_tokens": 900'),
    (RESPONSES, b', "store": true'),
]


@pytest.mark.parametrize(("path", "more"), PARSED_REQUESTS)
async def test_request_to_change_or_store_is_parsed(path: str, more: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="dragoman.access")
    async with trusted(whole(200, COMPLETION), API_OF_PATH[path], max_output_tokens=100) as (behind, url):
        await post(url, path, body_of(path, more))
        assert behind.asked[0][2] != body_of(path, more)
    assert "passthrough" not in json.loads(caplog.messages[-1])


def tool(parameters: str) -> bytes:
    return b', "tools": [{"type": "function", "function": {"name": "f", "parameters": %b}}]' % parameters.encode()


PLAIN = tool('{"type": "object", "properties": {"a": {"type": "string"}}}')
ROOT_UNION = tool('{"anyOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"type": "object"}]}')
NAMED = b', "tool_choice": {"type": "function", "function": {"name": "f"}}'
THOUGHTS = b', "messages": [{"role": "assistant", "content": "Hi", "reasoning_content": "Hm"}]'
PROVIDER_CASES = [
    pytest.param(kind, more, goes, id=f"{kind}, {what}")
    for kind, what, more, goes in (
        ("llama_cpp", "tools", PLAIN, True),
        ("llama_cpp", "a named tool", PLAIN + NAMED, False),
        ("lm_studio", "a named tool", PLAIN + NAMED, False),
        ("openai", "a named tool", PLAIN + NAMED, True),
        ("ollama", "no tool", PLAIN + b', "tool_choice": "none"', False),
        ("ollama", "a union at the root", ROOT_UNION, False),
        ("openai", "a union at the root", ROOT_UNION, False),
        ("vllm", "a union at the root", ROOT_UNION, True),
        ("vllm", "thoughts", THOUGHTS, False),
        ("openai", "thoughts", THOUGHTS, True),
    )
]


@pytest.mark.parametrize(("kind", "more", "goes"), PROVIDER_CASES)
async def test_request_is_adapted_to_provider_if_needed(kind: str, more: bytes, goes: bool) -> None:
    body = body_of(CHAT, more)
    asked = []
    for trusted in (True, False):
        async with (
            server(whole(200, COMPLETION)) as behind,
            gateway(behind.url, provider=kind, passthrough=trusted) as url,
        ):
            await post(url, CHAT, body)
        asked.append(behind.asked[0][2])
    assert (asked[0] == body) is goes
    if not goes:
        assert asked[0] == asked[1]


@pytest.mark.parametrize("path", [front for front in FRONTS if front != CHAT])
async def test_request_for_other_api_is_translated(path: str) -> None:
    async with trusted(whole(200, COMPLETION), "openai_chat") as (_, url):
        answer = await post(url, path, body_of(path))
    assert "Hello" in answer.text
    assert answer.json().keys() != json.loads(COMPLETION).keys()


async def test_openai_provider_uses_passthrough_by_default() -> None:
    async with server(whole(200, COMPLETION)) as behind, gateway(behind.url, provider="openai") as url:
        answer = await post(url, CHAT, body_of(CHAT))
    assert answer.content == COMPLETION.encode()


async def test_response_of_untrusted_server_is_parsed() -> None:
    async with server(whole(200, COMPLETION)) as behind, gateway(behind.url) as url:
        answer = await post(url, CHAT, body_of(CHAT))
    assert answer.json()["object"] == "chat.completion"


async def test_rejected_passthrough_request_is_repaired_and_retried() -> None:
    refusal = json.dumps({"error": {"message": "reasoning_content is not supported"}})

    async def play(server: Server, writer: asyncio.StreamWriter) -> None:
        bad = b"reasoning_content" in server.asked[-1][2]
        await whole(400 if bad else 200, refusal if bad else COMPLETION)(server, writer)

    thoughts = b', "messages": [{"role": "assistant", "content": "Hi", "reasoning_content": "Hm"}]'
    async with trusted(play, "openai_chat") as (behind, url):
        answer = await post(url, CHAT, body_of(CHAT, thoughts))
    assert answer.json()["choices"][0]["message"]["content"] == "Hello"
    assert len(behind.asked) == 3


# Errors


@pytest.mark.parametrize("status", [401, 429, 500])
@pytest.mark.parametrize("path", FRONTS)
async def test_upstream_error_status_has_shape_of_client_api(path: str, status: int) -> None:
    play = whole(status, '{"error": {"message": "because"}}', retry_after="7")
    async with trusted(play, API_OF_PATH[path], max_retries=0) as (behind, url):
        for stream in (b', "stream": true', b""):
            answer = await post(url, path, body_of(path, stream))
            assert answer.status_code == {401: 502, 429: 429, 500: 502}[status]
            assert told(path, answer) == f"the server answered {status}: because"
    assert len(behind.asked) == 2


@pytest.mark.parametrize("path", FRONTS)
@pytest.mark.parametrize("said", ["<html>Welcome</html>", "", '{"error": {"message": "slow down", "code": 429}}'])
async def test_invalid_upstream_response_is_an_error(path: str, said: str) -> None:
    async with trusted(whole(200, said), API_OF_PATH[path]) as (_, url):
        for stream in (b', "stream": true', b""):
            answer = await post(url, path, body_of(path, stream))
            assert answer.status_code == (429 if "429" in said else 502)
            assert told(path, answer)


@pytest.mark.parametrize("stream", [b', "stream": true', b""])
async def test_endless_whitespace_response_is_aborted(stream: bytes) -> None:
    async def blanks(server: Server, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        while not writer.is_closing():
            writer.write(b"4000\r\n" + b" " * 0x4000 + b"\r\n")
            await writer.drain()

    async with trusted(blanks, "openai_chat") as (_, url):
        answer = await post(url, CHAT, body_of(CHAT, stream))
    assert answer.status_code == 502
    assert "of blanks" in told(CHAT, answer)


async def test_leading_whitespace_is_skipped() -> None:
    async with trusted(whole(200, "\n" * 60_000 + COMPLETION), "openai_chat") as (_, url):
        assert (await post(url, CHAT, body_of(CHAT))).content == COMPLETION.encode()


async def test_upstream_disconnect_mid_stream_is_reported() -> None:
    async with trusted(dies, "openai_chat") as (_, url):
        answer = await post(url, CHAT, body_of(CHAT, b', "stream": true'))
    assert "It is" in answer.text
    assert "far closed the connection in the middle" in answer.text
    assert ends_as_failed(CHAT, answer.text)


def response_event(kind: str, number: int, **members: Any) -> bytes:
    data = json.dumps({"type": f"response.{kind}", "sequence_number": number, **members})
    event = f"event: response.{kind}\ndata: {data}\n\n".encode()
    return f"{len(event):x}\r\n".encode() + event + b"\r\n"


async def begins_response(server: Server, writer: asyncio.StreamWriter) -> None:
    response = {"id": "resp_far", "object": "response", "created_at": 5, "status": "in_progress", "model": "m"}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "content": [], "status": "in_progress"}
    words = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    writer.write(
        HEAD
        + response_event("created", 0, response={**response, "output": []})
        + response_event("output_item.added", 1, output_index=0, item=item)
        + b"".join(response_event("output_text.delta", 2 + n, **words, delta="It is ") for n in range(20))
    )
    await writer.drain()


def assert_fails_as_it_began(stream: str, why: str) -> None:
    """The last event fails the same response that the server began."""
    assert ends_as_failed(RESPONSES, stream)
    events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: ")]
    assert [event["sequence_number"] for event in events] == list(range(23))
    failed = events[-1]["response"]
    assert {name: failed[name] for name in ("id", "created_at", "status", "model")} == {
        "id": "resp_far",
        "created_at": 5,
        "status": "failed",
        "model": "far/m",
    }
    assert why in failed["error"]["message"]


STREAM_REQUEST = body_of(RESPONSES, b', "stream": true').replace(b'"m"', b'"far/m"')


async def test_broken_responses_stream_ends_with_failed_event() -> None:
    async def breaks(server: Server, writer: asyncio.StreamWriter) -> None:
        await begins_response(server, writer)
        writer.transport.abort()

    async with trusted(breaks, "openai_responses") as (_, url):
        answer = await post(url, RESPONSES, STREAM_REQUEST)
    assert_fails_as_it_began(answer.text, "far closed the connection in the middle")


async def test_responses_stream_fails_with_same_id_if_gateway_stops() -> None:
    async def pauses(server: Server, writer: asyncio.StreamWriter) -> None:
        await begins_response(server, writer)
        await server.left.wait()

    async with server(pauses) as behind:
        config = HttpConfig(url=behind.url, api="openai_responses", models=("m",), passthrough=True)
        async with (
            serving(Gateway([HttpBackend("far", config, {})])) as (running, url),
            http_client(url) as client,
            client.stream("POST", RESPONSES, content=STREAM_REQUEST) as answer,
        ):
            said = ""
            async for text in answer.aiter_text():
                said += text
                if '"sequence_number": 21' in said and "failed" not in said:
                    for task in running.server_state.tasks:
                        task.cancel()
    assert_fails_as_it_began(said, "is being stopped")


async def test_partial_event_is_dropped_before_error() -> None:
    async def halves(server: Server, writer: asyncio.StreamWriter) -> None:
        await begins(server, writer)
        writer.write(b'8\r\ndata: {"\r\n0\r\n\r\n')

    async with trusted(halves, "openai_chat") as (_, url):
        answer = await post(url, CHAT, body_of(CHAT, b', "stream": true'))
    assert 'data: {"\n' not in answer.text
    assert ends_as_failed(CHAT, answer.text)


async def test_missing_done_event_is_added_after_finish() -> None:
    async def lacks(server: Server, writer: asyncio.StreamWriter) -> None:
        await begins(server, writer)
        writer.write(piece({}, "stop") + b"0\r\n\r\n")

    async with trusted(lacks, "openai_chat") as (_, url):
        answer = await post(url, CHAT, body_of(CHAT, b', "stream": true'))
    assert answer.text.endswith('"finish_reason": "stop"}]}\n\ndata: [DONE]\n\n')


async def test_stream_ends_at_done_though_upstream_keeps_connection_open() -> None:
    async def holds(server: Server, writer: asyncio.StreamWriter) -> None:
        await begins(server, writer)
        writer.write(piece({}, "stop") + END.removesuffix(b"0\r\n\r\n"))
        await server.left.wait()

    async with trusted(holds, "openai_chat") as (behind, url):
        answer = await post(url, CHAT, body_of(CHAT, b', "stream": true'))
        assert answer.text.endswith("data: [DONE]\n\n")
        await behind.left.wait()


async def test_silent_stream_gets_pings_and_idle_timeout() -> None:
    async def pauses(server: Server, writer: asyncio.StreamWriter) -> None:
        await begins(server, writer)
        await server.left.wait()

    config = HttpConfig(url="", models=("m",), passthrough=True, idle_timeout_s=0.3)
    async with server(pauses) as behind:
        backend = HttpBackend("far", msgspec.structs.replace(config, url=behind.url), {})
        async with serving(Gateway([backend]), keepalive_interval_s=0.05) as (_, url):
            answer = await post(url, CHAT, body_of(CHAT, b', "stream": true'))
    assert answer.text.count(": ping\n\n") >= 2
    assert ends_as_failed(CHAT, answer.text)


@pytest.mark.parametrize("stream", [b', "stream": true', b""])
@pytest.mark.parametrize("play", [begins, says_nothing], ids=["streaming", "before the first byte"])
async def test_client_disconnect_closes_upstream_request(
    play: Callable[[Server, asyncio.StreamWriter], Awaitable[None]], stream: bytes
) -> None:
    async def plays(server: Server, writer: asyncio.StreamWriter) -> None:
        await play(server, writer)
        await server.left.wait()

    async with trusted(plays, "openai_chat") as (behind, url):
        host, _, port = url.removeprefix("http://").rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(http_request(CHAT, body_of(CHAT, stream)))
        await eventually(lambda: behind.asked)
        writer.close()
        async with asyncio.timeout(DEADLINE_S):
            await behind.left.wait()
