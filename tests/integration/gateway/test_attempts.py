"""Headers, log and upstream requests tell which upstream answered, after how many attempts, and in which trace.

client ─HTTP→ gateway ─HTTP→ one that fails, one that answers
"""

import json
import logging

import pytest

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.gateway.gateway import Gateway
from support.fake_upstream import END, FRONTS, HEAD, Play, Server, ask, piece, server, whole
from support.gateway import CHAT
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


def upstream(name: str, far: Server, model: str = "own") -> HttpBackend:
    return HttpBackend(name, HttpConfig(url=f"{far.url}/v1", models=(model,), max_retries=0), {})


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
    told = {name: answer.headers[f"x-dragoman-{name}"] for name in ("upstream", "model", "attempts")}
    assert told == {"upstream": "b", "model": "own", "attempts": "2"}
    assert answer.headers["x-dragoman-upstream-request-id"] == "up_1"
    assert [{name: asked[1].get(name) for name in TRACE} for asked in two.asked] == [TRACE]
    facts = next(json.loads(r.getMessage()) for r in caplog.records if r.name == "dragoman.access")
    assert (facts["upstream"], facts["upstream_model"], facts["attempts"]) == ("b", "own", 2)
    assert facts["failed_attempts"] == [{"upstream": "a", "error": "UpstreamError: status 503"}]
    assert (facts["upstream_request_id"], facts["trace_id"]) == ("up_1", TRACE_ID)


async def test_error_names_last_upstream() -> None:
    async with server(FAILS) as one, serving(Gateway([upstream("a", one, "m")])) as (_, url):
        answer = await ask(url, CHAT, False)
    assert (answer.headers["x-dragoman-upstream"], answer.headers["x-dragoman-attempts"]) == ("a", "1")
    assert answer.headers["x-dragoman-upstream-request-id"] == "up_0"


async def test_invalid_traceparent_is_dropped() -> None:
    async with server(whole(200, COMPLETION)) as one, serving(Gateway([upstream("a", one, "m")])) as (_, url):
        await ask(url, CHAT, False, {"traceparent": "00-1-2-3", "tracestate": "a=b"})
    assert TRACE.keys().isdisjoint(one.asked[0][1])
