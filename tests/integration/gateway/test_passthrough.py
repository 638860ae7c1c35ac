"""The fast path over HTTP: what a trusted server says passes unread, what goes wrong is told as ever.

client ─HTTP→ gateway ─HTTP→ a server that plays what a test tells it to, or another gateway
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

# The vendors' own packages, through two gateways: the one in front passes on what the other writes


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
    """The URL of a gateway that trusts this one, of whichever API."""
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


async def sdk_says(api: Api, ask: Ask, behind: Behind, scenario: str) -> Any:
    name = {id(CHAT_API): "openai_chat", id(RESPONSES_API): "openai_responses"}.get(id(api), "anthropic_messages")
    asks = api.asks([USER], api.tools) | ({"store": False} if api is RESPONSES_API else {})
    return await behind.sdks[api.package].run(ask, model=f"{name}/{scenario}", **asks)


@pytest.mark.parametrize("scenario", WHOLE)
@pytest.mark.parametrize(("api", "ask"), ASKS)
async def test_the_packages_see_what_they_see_without(
    api: Api, ask: Ask, scenario: str, behind: Behind, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="dragoman.access")
    reply = await sdk_says(api, ask, behind, scenario)
    assert api.said(reply)[0] == expected(scenario)
    assert reply.model.endswith(f"/{scenario}")
    await eventually(lambda: len(caplog.messages) == 2)
    inner, outer = sorted((json.loads(m) for m in caplog.messages), key=lambda line: "passthrough" in line)
    assert outer["passthrough"]
    assert {n: outer[n] for n in ("input_tokens", "output_tokens")} == {"input_tokens": 90, "output_tokens": 12}
    assert "calls" in inner
    assert outer["finish"] == ("content_filter" if scenario == "refusal" and api is MESSAGES_API else inner["finish"])


@pytest.mark.parametrize(("api", "ask"), ASKS)
async def test_the_packages_see_what_broke(api: Api, ask: Ask, behind: Behind) -> None:
    with pytest.raises(api.error, match=DIED):
        api.said(await sdk_says(api, ask, behind, "broken"))


# What does not pass


@contextlib.asynccontextmanager
async def trusted(
    play: Callable[[Server, asyncio.StreamWriter], Awaitable[None]], api: str, **more: Any
) -> AsyncIterator[Any]:
    """A server that plays this, and the URL of a gateway that trusts it."""
    async with server(play) as behind, gateway(behind.url, api=api, passthrough=True, **more) as url:
        yield behind, url


OF_PATH = {dialects.get(name).path: name for name in dialects.names()}
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
async def test_a_request_goes_as_it_came(path: str) -> None:
    async with trusted(whole(500, "{}"), OF_PATH[path]) as (behind, url):
        await post(url, path, body_of(path))
        await post(url, path, body_of(path).replace(b'"m"', b'"far/m"'))
    assert behind.asked[0][2] == body_of(path)
    assert json.loads(behind.asked[1][2]) == json.loads(body_of(path))
    assert behind.asked[1][2].endswith(b'"x":1.50}')


async def test_usage_is_asked_for_where_the_client_has_not(caplog: pytest.LogCaptureFixture) -> None:
    """The log tells it; the client gets none that it did not want."""
    caplog.set_level(logging.INFO, "dragoman.access")
    async with served(play, names=list(SCENARIOS)) as s, trusting(s.url) as url:
        answer = await post(
            url, CHAT, json.dumps({"model": "openai_chat/text", "messages": [USER], "stream": True}).encode()
        )
    assert json.loads(s.sent[-1].body)["stream_options"] == {"include_usage": True}
    assert '"usage":{' not in answer.text
    (facts,) = [json.loads(r.message) for r in caplog.records if '"passthrough":true' in r.message]
    assert facts["output_tokens"] > 0


async def test_half_a_character_in_the_name_of_a_member_does_no_harm() -> None:
    async with trusted(whole(200, COMPLETION), "openai_chat") as (behind, url):
        answer = await post(url, CHAT, body_of(CHAT, rb', "\ud83d": 1').replace(b'"m"', b'"far/m"'))
    assert answer.json()["choices"][0]["message"]["content"] == "Hello"
    assert json.loads(behind.asked[0][2])["\ufffd"] == 1


NOT_PASSED: list[tuple[str, bytes]] = [
    (CHAT, b', "tools": [{"type": "function", "function": {"name": "f"}}], "parallel_tool_calls": false'),
    (CHAT, b', "messages": [{"role": "tool", "tool_call_id": "c", "content": "late"}]'),
    (CHAT, b', "max_tokens": 900'),
    (RESPONSES, b', "store": true'),
]


@pytest.mark.parametrize(("path", "more"), NOT_PASSED)
async def test_what_has_to_be_changed_or_kept_is_read(path: str, more: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="dragoman.access")
    async with trusted(whole(200, COMPLETION), OF_PATH[path], max_output_tokens=100) as (behind, url):
        await post(url, path, body_of(path, more))
        assert behind.asked[0][2] != body_of(path, more)
    assert "passthrough" not in json.loads(caplog.messages[-1])


def tool(parameters: str) -> bytes:
    return b', "tools": [{"type": "function", "function": {"name": "f", "parameters": %b}}]' % parameters.encode()


PLAIN = tool('{"type": "object", "properties": {"a": {"type": "string"}}}')
EITHER = tool('{"anyOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"type": "object"}]}')
NAMED = b', "tool_choice": {"type": "function", "function": {"name": "f"}}'
THOUGHTS = b', "messages": [{"role": "assistant", "content": "Hi", "reasoning_content": "Hm"}]'
OF_KIND = [
    pytest.param(kind, more, goes, id=f"{kind}, {what}")
    for kind, what, more, goes in (
        ("llama_cpp", "tools", PLAIN, True),
        ("llama_cpp", "a named tool", PLAIN + NAMED, False),
        ("lm_studio", "a named tool", PLAIN + NAMED, False),
        ("openai", "a named tool", PLAIN + NAMED, True),
        ("ollama", "no tool", PLAIN + b', "tool_choice": "none"', False),
        ("ollama", "a union at the root", EITHER, False),
        ("openai", "a union at the root", EITHER, False),
        ("vllm", "a union at the root", EITHER, True),
        ("vllm", "thoughts", THOUGHTS, False),
        ("openai", "thoughts", THOUGHTS, True),
    )
]


@pytest.mark.parametrize(("kind", "more", "goes"), OF_KIND)
async def test_what_a_kind_of_server_takes_in_another_way_is_changed(kind: str, more: bytes, goes: bool) -> None:
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
async def test_another_api_behind_is_translated(path: str) -> None:
    async with trusted(whole(200, COMPLETION), "openai_chat") as (_, url):
        answer = await post(url, path, body_of(path))
    assert "Hello" in answer.text
    assert answer.json().keys() != json.loads(COMPLETION).keys()


async def test_some_kinds_of_servers_are_trusted() -> None:
    async with server(whole(200, COMPLETION)) as behind, gateway(behind.url, provider="openai") as url:
        answer = await post(url, CHAT, body_of(CHAT))
    assert answer.content == COMPLETION.encode()


async def test_an_untrusted_server_is_read() -> None:
    async with server(whole(200, COMPLETION)) as behind, gateway(behind.url) as url:
        answer = await post(url, CHAT, body_of(CHAT))
    assert answer.json()["object"] == "chat.completion"


async def test_what_is_refused_is_mended_on_the_other_way() -> None:
    refusal = json.dumps({"error": {"message": "reasoning_content is not supported"}})

    async def play(server: Server, writer: asyncio.StreamWriter) -> None:
        bad = b"reasoning_content" in server.asked[-1][2]
        await whole(400 if bad else 200, refusal if bad else COMPLETION)(server, writer)

    thoughts = b', "messages": [{"role": "assistant", "content": "Hi", "reasoning_content": "Hm"}]'
    async with trusted(play, "openai_chat") as (behind, url):
        answer = await post(url, CHAT, body_of(CHAT, thoughts))
    assert answer.json()["choices"][0]["message"]["content"] == "Hello"
    assert len(behind.asked) == 3


# What goes wrong


@pytest.mark.parametrize("status", [401, 429, 500])
@pytest.mark.parametrize("path", FRONTS)
async def test_a_refusal_is_the_clients_own_error(path: str, status: int) -> None:
    play = whole(status, '{"error": {"message": "because"}}', retry_after="7")
    async with trusted(play, OF_PATH[path], max_retries=0) as (behind, url):
        for stream in (b', "stream": true', b""):
            answer = await post(url, path, body_of(path, stream))
            assert answer.status_code == {401: 502, 429: 429, 500: 502}[status]
            assert told(path, answer) == f"the server answered {status}: because"
    assert len(behind.asked) == 2


@pytest.mark.parametrize("path", FRONTS)
@pytest.mark.parametrize("said", ["<html>Welcome</html>", "", '{"error": {"message": "slow down", "code": 429}}'])
async def test_an_answer_that_is_none_is_an_error(path: str, said: str) -> None:
    async with trusted(whole(200, said), OF_PATH[path]) as (_, url):
        for stream in (b', "stream": true', b""):
            answer = await post(url, path, body_of(path, stream))
            assert answer.status_code == (429 if "429" in said else 502)
            assert told(path, answer)


@pytest.mark.parametrize("stream", [b', "stream": true', b""])
async def test_a_server_that_sends_nothing_but_blanks_is_not_heard_to_the_end(stream: bytes) -> None:
    async def blanks(server: Server, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        while not writer.is_closing():
            writer.write(b"4000\r\n" + b" " * 0x4000 + b"\r\n")
            await writer.drain()

    async with trusted(blanks, "openai_chat") as (_, url):
        answer = await post(url, CHAT, body_of(CHAT, stream))
    assert answer.status_code == 502
    assert "of blanks" in told(CHAT, answer)


async def test_blanks_before_an_answer_are_waited_out() -> None:
    async with trusted(whole(200, "\n" * 60_000 + COMPLETION), "openai_chat") as (_, url):
        assert (await post(url, CHAT, body_of(CHAT))).content == COMPLETION.encode()


async def test_a_server_that_dies_in_mid_stream() -> None:
    async with trusted(dies, "openai_chat") as (_, url):
        answer = await post(url, CHAT, body_of(CHAT, b', "stream": true'))
    assert "It is" in answer.text
    assert "far broke the connection off" in answer.text
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
    """By the last event of the very response that the server began."""
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


ASKED_IN_FULL = body_of(RESPONSES, b', "stream": true').replace(b'"m"', b'"far/m"')


async def test_a_response_fails_as_it_began() -> None:
    async def breaks(server: Server, writer: asyncio.StreamWriter) -> None:
        await begins_response(server, writer)
        writer.transport.abort()

    async with trusted(breaks, "openai_responses") as (_, url):
        answer = await post(url, RESPONSES, ASKED_IN_FULL)
    assert_fails_as_it_began(answer.text, "far broke the connection off")


async def test_so_it_does_where_the_gateway_is_stopped() -> None:
    async def pauses(server: Server, writer: asyncio.StreamWriter) -> None:
        await begins_response(server, writer)
        await server.left.wait()

    async with server(pauses) as behind:
        config = HttpConfig(url=behind.url, api="openai_responses", models=("m",), passthrough=True)
        async with (
            serving(Gateway([HttpBackend("far", config, {})])) as (running, url),
            http_client(url) as client,
            client.stream("POST", RESPONSES, content=ASKED_IN_FULL) as answer,
        ):
            said = ""
            async for text in answer.aiter_text():
                said += text
                if '"sequence_number": 21' in said and "failed" not in said:
                    for task in running.server_state.tasks:
                        task.cancel()
    assert_fails_as_it_began(said, "is being stopped")


async def test_one_that_dies_in_the_middle_of_an_event() -> None:
    async def halves(server: Server, writer: asyncio.StreamWriter) -> None:
        await begins(server, writer)
        writer.write(b'8\r\ndata: {"\r\n0\r\n\r\n')

    async with trusted(halves, "openai_chat") as (_, url):
        answer = await post(url, CHAT, body_of(CHAT, b', "stream": true'))
    assert 'data: {"\n' not in answer.text
    assert ends_as_failed(CHAT, answer.text)


async def test_a_finish_without_the_end_gets_it() -> None:
    async def lacks(server: Server, writer: asyncio.StreamWriter) -> None:
        await begins(server, writer)
        writer.write(piece({}, "stop") + b"0\r\n\r\n")

    async with trusted(lacks, "openai_chat") as (_, url):
        answer = await post(url, CHAT, body_of(CHAT, b', "stream": true'))
    assert answer.text.endswith('"finish_reason": "stop"}]}\n\ndata: [DONE]\n\n')


async def test_a_server_that_holds_the_connection_behind_its_end_holds_up_nobody() -> None:
    async def holds(server: Server, writer: asyncio.StreamWriter) -> None:
        await begins(server, writer)
        writer.write(piece({}, "stop") + END.removesuffix(b"0\r\n\r\n"))
        await server.left.wait()

    async with trusted(holds, "openai_chat") as (behind, url):
        answer = await post(url, CHAT, body_of(CHAT, b', "stream": true'))
        assert answer.text.endswith("data: [DONE]\n\n")
        await behind.left.wait()


async def test_silence_has_its_pings_and_its_limit() -> None:
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
async def test_a_client_that_leaves_leaves_the_server(
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
