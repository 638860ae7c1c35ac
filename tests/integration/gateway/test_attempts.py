"""Headers, log and upstream requests tell which upstream answered, after how many attempts, and in which trace.

client ─HTTP→ gateway ─HTTP→ one that fails, one that answers
"""

import asyncio
import json
import logging
from typing import Any

import httpx2
import pytest

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.gateway.gateway import Gateway
from support.fake_upstream import END, FRONTS, HEAD, Play, Server, ask, piece, server, whole
from support.gateway import CHAT, MESSAGES
from support.http_client import http_client
from support.refusing_upstream import COMPLETION
from support.scripted_backend import serving

pytestmark = pytest.mark.asyncio

FAILS = whole(503, '{"error": {"message": "loading"}}', x_request_id="up_0")
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACE = {"traceparent": f"00-{TRACE_ID}-00f067aa0ba902b7-01", "tracestate": "vendor=value"}


def play_stream() -> Play:
    async def play(server: Server, writer: object) -> None:
        head = HEAD.replace(b"connection", b"x-request-id: up_1\r\nconnection")
        writer.write(head + piece({"content": "Hello"}, "stop") + END)  # type: ignore[attr-defined]

    return play


def upstream(name: str, far: Server, model: str = "own", **settings: Any) -> HttpBackend:
    own = {"models": (model,), "max_retries": 0, **settings}
    return HttpBackend(name, HttpConfig(url=f"{far.url}/v1", **own), {})


def told(answer: httpx2.Response) -> dict[str, str]:
    """The headers about the upstream, without their prefix."""
    prefix = "x-dragoman-"
    names = ("upstream", "model", "attempts", "upstream-request-id")
    return {name: answer.headers[prefix + name] for name in names if prefix + name in answer.headers}


def facts(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """The only line of the access log."""
    (line,) = (record.getMessage() for record in caplog.records if record.name == "dragoman.access")
    logged: dict[str, Any] = json.loads(line)
    return logged


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", FRONTS)
async def test_headers_and_log_name_upstream_that_answered(
    path: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    answers = play_stream() if stream else whole(200, COMPLETION, x_request_id="up_1")
    async with server(FAILS) as one, server(answers) as two:
        aliases = {"m": ["a/own", "b/own"]}
        async with serving(Gateway([upstream("a", one), upstream("b", two)], aliases)) as (_, url):
            answer = await ask(url, path, stream, TRACE)
    assert answer.status_code == 200
    assert told(answer) == {"upstream": "b", "model": "own", "attempts": "2", "upstream-request-id": "up_1"}
    assert [{name: asked[1].get(name) for name in TRACE} for asked in two.asked] == [TRACE]
    logged = facts(caplog)
    assert (logged["upstream"], logged["upstream_model"], logged["attempts"]) == ("b", "own", 2)
    assert logged["failed_attempts"] == [{"upstream": "a", "error": "UpstreamError: status 503"}]
    assert (logged["upstream_request_id"], logged["trace_id"]) == ("up_1", TRACE_ID)


@pytest.mark.parametrize("stream", [False, True])
async def test_response_that_is_passed_through_names_upstream(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    answers = play_stream() if stream else whole(200, COMPLETION, x_request_id="up_1")
    async with server(answers) as one:
        backend = upstream("a", one, "m", tool_mode="native", passthrough=True)
        async with serving(Gateway([backend])) as (_, url):
            answer = await ask(url, CHAT, stream, TRACE)
    assert told(answer) == {"upstream": "a", "model": "m", "attempts": "1", "upstream-request-id": "up_1"}
    assert {name: one.asked[0][1].get(name) for name in TRACE} == TRACE
    logged = facts(caplog)
    assert (logged["passthrough"], logged["upstream"], logged["trace_id"]) == (True, "a", TRACE_ID)


async def test_untranslated_request_names_upstream_that_answered(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    async with server(FAILS) as one, server(whole(200, "{}", x_request_id="up_1")) as two:
        gateway = Gateway([upstream("a", one, "m"), upstream("b", two, "m")])
        async with serving(gateway) as (_, url), http_client(url) as client:
            answer = await client.post("/v1/embeddings", json={"model": "m", "input": "hi"}, headers=TRACE)
    assert told(answer) == {"upstream": "b", "model": "m", "attempts": "2", "upstream-request-id": "up_1"}
    assert {name: two.asked[0][1].get(name) for name in TRACE} == TRACE
    logged = facts(caplog)
    assert [each["upstream"] for each in logged["failed_attempts"]] == ["a"]
    assert (logged["upstream"], logged["trace_id"]) == ("b", TRACE_ID)


async def test_retries_at_one_upstream_are_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.backends.http.retry.sleep", no_sleep)
    plays = iter([FAILS, whole(200, COMPLETION)])

    async def play(far: Server, writer: asyncio.StreamWriter) -> None:
        await next(plays)(far, writer)

    async with server(play) as one, serving(Gateway([upstream("a", one, "m", max_retries=1)])) as (_, url):
        answer = await ask(url, MESSAGES, False)
    assert (answer.status_code, told(answer)["attempts"]) == (200, "2")


async def no_sleep(delay_s: float) -> None:
    """Does not wait."""


async def test_request_that_no_upstream_gets_names_none(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    async with server(whole(200, COMPLETION)) as one, serving(Gateway([upstream("a", one, "m")])) as (_, url):
        search = {"type": "web_search_20250305", "name": "web_search"}
        refused = await ask(url, MESSAGES, False, tools=[search])
        unknown = await ask(url, MESSAGES, False, model="absent")
    assert one.asked == []
    assert (told(refused), told(unknown)) == ({}, {})


async def test_error_names_last_upstream() -> None:
    async with server(FAILS) as one, serving(Gateway([upstream("a", one, "m")])) as (_, url):
        answer = await ask(url, CHAT, False)
    assert (answer.headers["x-dragoman-upstream"], answer.headers["x-dragoman-attempts"]) == ("a", "1")
    assert answer.headers["x-dragoman-upstream-request-id"] == "up_0"


async def test_invalid_traceparent_is_dropped() -> None:
    async with server(whole(200, COMPLETION)) as one, serving(Gateway([upstream("a", one, "m")])) as (_, url):
        await ask(url, CHAT, False, {"traceparent": "00-1-2-3", "tracestate": "a=b"})
    assert TRACE.keys().isdisjoint(one.asked[0][1])
