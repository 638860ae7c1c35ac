"""A text whose server fails is continued by another server, or by the same one, without a trace for the client."""

import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman import dialects
from dragoman.backends import continuation
from dragoman.backends.http import circuit_breaker
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.gateway.gateway import Gateway
from support.continuing_upstream import BREAKS, writes_rest
from support.fake_upstream import HEAD, Play, Server, ends_as_failed, piece, server, whole
from support.fake_upstream import ask as upstream_ask
from support.gateway import CHAT
from support.http_client import http_client
from support.refusing_upstream import COMPLETION
from support.sampling import positions
from support.scripted_backend import serving
from support.text_upstream import ARGUMENTS, ASKED, FRONTS, Answer, ask

pytestmark = pytest.mark.asyncio

CALL = f'<tool_call>\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n</tool_call>'
TEXT = f"<think>\nWhich city? Päris 🌦.\n</think>\n\nI will look < there.\n{CALL}\n{CALL.replace('Paris', 'Bern')}"
PLAIN = "It is sunny in Päris, END and so on."
"""`END` is a stop string of the requests that have one."""


@contextlib.asynccontextmanager
async def gateway(*plays: Play, **settings: Any) -> AsyncIterator[tuple[str, list[Server]]]:
    """The URL of a gateway with a server for each play, named `a`, `b`, …; each has the model `m`."""
    config = {"models": ("m",), "endpoint": "completions", "max_retries": 0, **settings}
    async with contextlib.AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(server(play)) for play in plays]
        backends = [
            HttpBackend(name, HttpConfig(url=f"{each.url}/v1", **config), {})
            for name, each in zip("abc", servers, strict=False)
        ]
        _, url = await stack.enter_async_context(serving(Gateway(backends)))
        yield url, servers


def parts(answer: Answer) -> list[Any]:
    """What the client got: reasoning, text and calls in order, without ids; finish reason and usage."""
    reply = answer.reply
    shown = [(type(part).__name__, getattr(part, "text", ""), getattr(part, "arguments", "")) for part in reply.parts]
    return [*shown, reply.finish_reason, reply.stop_sequence, reply.usage.input_tokens, reply.usage.output_tokens]


@pytest.fixture(autouse=True)
def open_circuit_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circuit_breaker, "FAILURE_THRESHOLD", 10_000)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("text", [TEXT, PLAIN], ids=["calls", "text"])
async def test_text_cut_at_any_position_is_continued(front: str, stream: bool, text: str) -> None:
    request = replace(ASKED, stream=stream, stream_usage=True, max_tokens=999, stop=("END",) if text is PLAIN else ())
    if text is PLAIN:
        request = replace(request, tools=())
    async with gateway(writes_rest(text)) as (url, _):
        expected = await ask(url, front, request)
    assert "continued" not in expected.warnings
    async with gateway(writes_rest(text), writes_rest(text)) as (url, (first, _)):
        for position in positions(text, len(text)):
            first.play = writes_rest(text, position)
            answer = await ask(url, front, request)
            assert parts(answer) == parts(expected), position
            is_complete = text is PLAIN and position >= text.index("END") + len("END")
            warning = "" if is_complete else "continued" if position else "failed_over"
            assert warning in [*answer.warnings, ""], (position, answer.warnings)


@pytest.mark.parametrize("front", FRONTS)
async def test_token_limit_is_that_of_the_whole_response(front: str) -> None:
    request = replace(ASKED, stream=True, stream_usage=True, max_tokens=30, tools=())
    async with gateway(writes_rest(PLAIN)) as (url, _):
        expected = await ask(url, front, request)
    async with gateway(writes_rest(PLAIN), writes_rest(PLAIN)) as (url, (first, second)):
        for position in (1, 28, 29):
            first.play = writes_rest(PLAIN, position)
            assert parts(await ask(url, front, request)) == parts(expected), position
            assert json.loads(second.asked[-1][2])["max_tokens"] == 30 - position
    assert expected.reply.finish_reason == "length"


@pytest.mark.parametrize("how", BREAKS)
async def test_each_kind_of_failure_is_continued(how: str) -> None:
    request = replace(ASKED, stream=True, max_tokens=999)
    plays = (writes_rest(TEXT, 20, BREAKS[how]), writes_rest(TEXT, 120, BREAKS[how]), writes_rest(TEXT))
    async with gateway(*plays, idle_timeout_s=0.3) as (url, servers):
        answer = await ask(url, "openai_chat", request)
    assert [city["city"] for _, city in answer.calls] == ["Paris", "Bern"]
    assert answer.warnings.count("continued") == 2
    assert [len(each.asked) for each in servers] == [3, 2, 2]  # one for the chat template each


async def test_same_server_continues_once_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continuation, "FIRST_DELAY_S", 0.01)
    plays = [writes_rest(TEXT, 30), whole(503, "{}"), whole(503, "{}"), writes_rest(TEXT, 60), writes_rest(TEXT)]

    async def play(far: Any, writer: Any) -> None:
        is_props = far.asked[-1][0].startswith("GET")
        await (plays[-1] if is_props else plays.pop(0))(far, writer)

    async with gateway(play) as (url, _):
        answer = await ask(url, "anthropic_messages", replace(ASKED, stream=True, max_tokens=999))
    assert len(answer.calls) == 2
    assert answer.warnings.count("continued") == 2
    assert not plays[1:]


async def test_continuations_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    plays = itertools.count(20)

    async def play(far: Any, writer: Any) -> None:
        await writes_rest(TEXT, next(plays))(far, writer)

    async with gateway(play) as (url, (far,)), http_client(url) as client:
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        answer = await client.post("/v1/chat/completions", json=body)
    assert "closed the connection in the middle of its response" in answer.text
    assert len([line for line, _, _ in far.asked if line.startswith("POST")]) == 1 + continuation.MAX_CONTINUATIONS


@pytest.mark.parametrize("front", FRONTS)
async def test_native_server_does_not_continue(front: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continuation, "PATIENCE_S", 0.0)
    path = dialects.get(front).path
    async with server(writes_rest(PLAIN, 5)) as first, server(whole(200, "{}")) as second:
        config = {"models": ("m",), "max_retries": 0}
        one = HttpBackend("a", HttpConfig(url=f"{first.url}/v1", endpoint="completions", **config), {})
        two = HttpBackend("b", HttpConfig(url=f"{second.url}/v1", tool_mode="native", **config), {})
        async with serving(Gateway([one, two])) as (_, url):
            answer = await upstream_ask(url, path, True)
    assert ends_as_failed(path, answer.text)
    assert second.asked == []


async def test_other_format_does_not_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continuation, "PATIENCE_S", 0.0)
    async with server(writes_rest(PLAIN, 5)) as first, server(writes_rest(TEXT)) as second:
        config = {"models": ("m",), "max_retries": 0, "endpoint": "completions"}
        one = HttpBackend("a", HttpConfig(url=f"{first.url}/v1", call_format="hermes", **config), {})
        two = HttpBackend("b", HttpConfig(url=f"{second.url}/v1", call_format="mistral", **config), {})
        async with serving(Gateway([one, two])) as (_, url):
            answer = await upstream_ask(url, CHAT, True)
    assert ends_as_failed(CHAT, answer.text)
    assert [line.split()[0] for line, _, _ in second.asked] == ["GET"]


# Before the first content


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("way", BREAKS)
async def test_native_response_without_content_fails_over(way: str, front: str, stream: bool) -> None:
    async def play(far: Any, writer: Any) -> None:
        writer.write(HEAD + piece({"role": "assistant", "content": ""}))
        await BREAKS[way](far, writer)

    path = dialects.get(front).path
    async with server(play) as first, server(whole(200, COMPLETION)) as second:
        config = {"models": ("m",), "max_retries": 0, "tool_mode": "native", "idle_timeout_s": 0.2}
        backends = [
            HttpBackend(name, HttpConfig(url=f"{each.url}/v1", **config), {})
            for name, each in (("a", first), ("b", second))
        ]
        async with serving(Gateway(backends)) as (_, url):
            answer = await upstream_ask(url, path, stream)
    assert (answer.status_code, "Hello" in answer.text) == (200, True)
    assert "failed_over: a > b" in answer.headers["x-dragoman-warnings"]


@pytest.mark.parametrize(
    ("position", "is_constrained"), [(0, True), (20, True), (TEXT.index("<tool_call>") + 14, False)]
)
async def test_grammar_is_sent_again_until_a_call_begins(position: int, is_constrained: bool) -> None:
    request = replace(ASKED, stream=True, max_tokens=999)
    async with gateway(writes_rest(TEXT, position), writes_rest(TEXT), provider="llama_cpp") as (url, servers):
        answer = await ask(url, "openai_chat", request)
    assert len(answer.calls) == 2
    assert "grammar" in json.loads(servers[0].asked[-1][2])
    assert ("grammar" in json.loads(servers[1].asked[-1][2])) == is_constrained
