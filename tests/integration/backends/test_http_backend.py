"""A server behind that refuses, breaks off, is silent or is not there, and a client that leaves: all over real HTTP.

client ─HTTP→ gateway ─HTTP→ a server that plays what a test tells it to
"""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from dragoman import dialects
from dragoman.backends.http import circuit_breaker
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from support.fake_upstream import (
    FRONTS,
    HEAD,
    Play,
    Server,
    ask,
    begins,
    dies,
    ends_as_failed,
    falls_silent,
    gateway,
    piece,
    says_nothing,
    server,
    soon,
    told,
    whole,
)
from support.gateway import CHAT, DEADLINE_S, MESSAGES, http_request, shape_of
from support.refusing_upstream import COMPLETION, RESPONSE, SAID_NO, picky
from support.scripted_backend import body, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared() -> AsyncIterator[Server]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(circuit_breaker, "FAILURE_THRESHOLD", 10**6)  # it serves the failures of all tests
        async with server(says_nothing) as behind, gateway(behind.url) as behind.gateway:
            yield behind


@pytest.fixture
def far(shared: Server) -> Server:
    """One that speaks Chat Completions, with a gateway in front; tests say what it plays."""
    shared.asked = []
    return shared


# What it refuses

TOO_LONG = "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it"
"""As llama.cpp has it; tests/unit/wire/test_upstream_errors.py has the words of others."""


@pytest.mark.parametrize("path", FRONTS)
async def test_a_conversation_that_is_too_long_is_told_in_the_clients_words(path: str, far: Server) -> None:
    far.play = whole(400, json.dumps({"error": {"message": TOO_LONG}}))
    for stream in (False, True):
        answer = await ask(far.gateway, path, stream)
        assert answer.status_code == 400
        error = shape_of(path, answer.json())
        if path == MESSAGES:
            assert error["message"] == "prompt is too long: 5000 tokens > 4096 maximum"
        else:
            assert error["code"] == "context_length_exceeded"
            assert "maximum context length is 4096 tokens" in error["message"]


REFUSED: list[tuple[int, int, int, str]] = [
    (400, 400, 400, "invalid_request_error"),
    (401, 502, 502, "api_error"),
    (403, 502, 502, "api_error"),
    (404, 502, 502, "api_error"),
    (413, 413, 413, "request_too_large"),
    (422, 400, 400, "invalid_request_error"),
    (429, 429, 429, "rate_limit_error"),
    (500, 502, 502, "api_error"),
    (503, 503, 529, "overloaded_error"),
    (529, 503, 529, "overloaded_error"),
]
"""The server's status, that for clients of OpenAI's APIs, and that of Anthropic's with its type."""


@pytest.mark.parametrize("path", FRONTS)
async def test_a_refusal_is_the_clients_own_error(path: str, far: Server) -> None:
    for status, openais, anthropics, kind in REFUSED:
        far.play = whole(status, '{"error": {"message": "because"}}', retry_after="7")
        for stream in (False, True):
            answer = await ask(far.gateway, path, stream)
            assert answer.status_code == (anthropics if path == MESSAGES else openais)
            assert answer.headers["retry-after"] == "7"
            error = shape_of(path, answer.json())
            assert error["message"] == f"the server answered {status}: because"
            assert path != MESSAGES or error["type"] == kind
    assert len(far.asked) == 2 * len(REFUSED), "no refusal is asked again"


@pytest.mark.parametrize("path", FRONTS)
async def test_a_page_of_html_is_told_in_its_words(path: str, far: Server) -> None:
    page = "<html><style>b {}</style><h1>502 Bad Gateway</h1><hr>nginx</html>"
    far.play = whole(502, page, "text/html")
    answer = await ask(far.gateway, path, True)
    assert (answer.status_code, told(path, answer)) == (502, "the server answered 502: 502 Bad Gateway nginx")


@pytest.mark.parametrize("path", FRONTS)
async def test_a_page_of_html_for_an_answer_is_no_answer(path: str, far: Server) -> None:
    far.play = whole(200, "<html>Welcome</html>", "text/html")
    answer = await ask(far.gateway, path, True)
    assert answer.status_code == 502
    assert "expected JSON of the server" in told(path, answer)


@pytest.mark.parametrize("path", FRONTS)
async def test_an_error_under_a_good_status_is_one(path: str, far: Server) -> None:
    far.play = whole(200, '{"error": {"message": "slow down", "code": 429}}')
    answer = await ask(far.gateway, path, False)
    assert (answer.status_code, told(path, answer)) == (429, "slow down")


MOVED = (
    "the server answered {}: it has moved to {}/v1/chat/completions; redirects are not followed, so set "
    "upstreams.far.url to the new URL"
)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    async with server(whole(200, "{}")) as elsewhere:
        play = whole(status, "", location=f"{elsewhere.url}/v1/chat/completions")
        async with server(play) as behind, gateway(behind.url, api_key="secret") as url:
            answer = await ask(url, CHAT, False)
    assert (answer.status_code, told(CHAT, answer)) == (502, MOVED.format(status, elsewhere.url))
    assert len(behind.asked) == 1
    assert elsewhere.asked == []


SETTINGS = {"temperature": 0.2, "top_k": 5, "thinking": {"type": "enabled", "budget_tokens": 2000}}


async def test_a_setting_that_is_refused_is_left_out() -> None:
    async with server(picky(COMPLETION)) as behind, gateway(behind.url) as url:
        answer = await ask(url, MESSAGES, False, **SETTINGS)
    assert answer.json()["content"] == [{"type": "text", "text": "Hello"}]
    dropped = ", ".join(f"content_dropped: {name}" for name in ("temperature", "top_k", "reasoning_effort"))
    assert answer.headers["x-dragoman-warnings"] == f"{dropped}, estimated_usage"
    (first, *_, last) = [json.loads(body) for _, _, body in behind.asked]
    assert first.keys() - last.keys() == {"temperature", "max_tokens", "top_k", "reasoning_effort"}
    assert last["max_completion_tokens"] == first["max_tokens"] == 9
    assert len(behind.asked) == 5


async def test_so_it_is_where_responses_are_asked_for() -> None:
    play = picky(RESPONSE)
    async with server(play) as behind, gateway(behind.url, api="openai_responses") as url:
        answer = await ask(url, MESSAGES, False, **SETTINGS)
    assert answer.json()["content"] == [{"type": "text", "text": "Hello"}]
    (first, *_, last) = [json.loads(body) for _, _, body in behind.asked]
    assert first.keys() - last.keys() == {"temperature", "reasoning", "include"}


async def test_a_client_of_the_servers_own_api_is_told_what_it_refuses(far: Server) -> None:
    far.play = picky(COMPLETION)
    answer = await ask(far.gateway, CHAT, False, temperature=0.2)
    assert answer.status_code == 400
    assert SAID_NO["temperature"] in told(CHAT, answer)
    assert len(far.asked) == 1


async def test_what_the_answer_hangs_on_is_not_left_out(far: Server) -> None:
    far.play = whole(400, json.dumps({"error": {"message": "Unrecognized request argument supplied: messages"}}))
    answer = await ask(far.gateway, MESSAGES, False)
    assert answer.status_code == 400
    assert len(far.asked) == 1


# Where it breaks


@pytest.mark.parametrize("path", FRONTS)
async def test_a_server_that_dies_in_mid_stream(path: str, far: Server) -> None:
    far.play = dies
    streamed = await ask(far.gateway, path, True)
    at_once = await ask(far.gateway, path, False)
    assert streamed.status_code == 200
    assert "It is" in streamed.text
    assert "far broke the connection off" in streamed.text
    assert ends_as_failed(path, streamed.text)
    assert at_once.status_code == (529 if path == MESSAGES else 503)


@pytest.mark.parametrize("path", FRONTS)
async def test_a_stream_that_ends_without_its_end_is_no_answer(path: str, far: Server) -> None:
    async def ends(server: Server, writer: asyncio.StreamWriter) -> None:
        await begins(server, writer)
        writer.write(b"0\r\n\r\n")

    far.play = ends
    answer = await ask(far.gateway, path, True)
    assert "the server's stream broke off before its end" in answer.text
    assert ends_as_failed(path, answer.text)


async def test_a_server_that_falls_silent() -> None:
    async with server(falls_silent) as behind, gateway(behind.url, idle_timeout_s=0.2) as url:
        for path in FRONTS:
            answer = await ask(url, path, True)
            await soon(behind.left)
            assert "far fell silent for 0.2 s (setting idle_timeout_s)" in answer.text
            assert ends_as_failed(path, answer.text)


async def test_a_server_that_never_says_anything() -> None:
    async with server(says_nothing) as behind, gateway(behind.url, first_byte_timeout_s=0.2) as url:
        for path in FRONTS:
            answer = await ask(url, path, False)
            words = "far said nothing for 0.2 s after it was asked (setting first_byte_timeout_s)"
            assert (answer.status_code, told(path, answer)) == (504, words)


async def test_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
    async with gateway(nobody) as url:
        for path in FRONTS:
            answer = await ask(url, path, True)
            assert answer.status_code == (529 if path == MESSAGES else 503)
            assert told(path, answer).startswith(f"far cannot be reached at {nobody}: ")


# Its list of models

LIST = '{"object": "list", "data": [{"id": "one", "object": "model"}, {"id": "two"}]}'


async def listed(url: str, **settings: Any) -> list[str]:
    backend = HttpBackend("far", HttpConfig(url=url, **settings), {})
    await backend.start()
    await backend.close()
    return [model.id for model in backend.models()]


async def test_it_is_asked_for_its_models() -> None:
    async with server(whole(200, LIST)) as behind:
        assert await listed(behind.url, api_key="secret") == ["one", "two"]
        assert await listed(f"{behind.url}/v1/", models=("mine",)) == ["mine"]
    ((line, headers, _),) = behind.asked
    assert line == "GET /v1/models HTTP/1.1"
    assert headers["authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("play", "words"),
    [
        (whole(401, '{"error": {"message": "bad key"}}'), "the server answered 401: bad key"),
        (whole(307, "", location="http://127.0.0.1:1/"), "the server answered 307"),
        (whole(200, "<html>"), "expected JSON"),
        (whole(200, '{"data": [{}]}'), "missing required field 'id'"),
    ],
    ids=["a wrong key", "a redirect", "a page", "no ids"],
)
async def test_a_list_that_is_none_is_told(play: Play, words: str, caplog: pytest.LogCaptureFixture) -> None:
    async with server(play) as behind:
        with caplog.at_level(logging.WARNING, "dragoman.backends.http"):
            assert await listed(behind.url) == []
    (record,) = caplog.records
    assert words in record.getMessage()
    assert "set upstreams.far.models" in record.getMessage()


# What goes along, and what is looked for on the way


@pytest.mark.parametrize(("api", "goes"), [("anthropic_messages", True), ("openai_chat", False)])
async def test_what_headers_ask_goes_to_the_same_api_as_it_came(api: str, goes: bool) -> None:
    betas = "context-management-2025-06-27,interleaved-thinking-2025-05-14"
    headers = [("anthropic-beta", betas), ("anthropic-beta", "effort-2025-11-24")]
    headers += [("anthropic-version", "2026-10-21"), ("x-api-key", "the clients own")]
    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    async with server(whole(400, "{}")) as behind, gateway(behind.url, api=api, api_key="secret") as url:
        await ask(url, MESSAGES, False, headers, context_management=edits)
    ((line, sent, said),) = behind.asked
    assert line == f"POST {dialects.get(api).path} HTTP/1.1"
    assert sent.get("anthropic-beta") == (f"{betas}, effort-2025-11-24" if goes else None)
    assert sent.get("anthropic-version") == ("2026-10-21" if goes else None)
    assert json.loads(said).get("context_management") == (edits if goes else None)
    assert "the clients own" not in str(sent)


async def test_a_stop_string_ends_the_asking(far: Server) -> None:
    async def goes_on(server: Server, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + piece({"content": "one E"}) + piece({"content": "ND two"}))
        await server.left.wait()

    far.play = goes_on
    answer = (await ask(far.gateway, MESSAGES, False, stop_sequences=["END"])).json()
    await soon(far.left)
    assert answer["content"] == [{"type": "text", "text": "one "}]
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "END")
    assert "stop" not in json.loads(far.asked[0][2])


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@pytest.mark.parametrize("play", [falls_silent, says_nothing])
async def test_a_client_that_leaves_ends_the_asking(play: Play, path: str, far: Server) -> None:
    far.play = play
    host, _, port = far.gateway.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(http_request(path, json.dumps({**body(), "model": "m"}).encode()))
    async with asyncio.timeout(DEADLINE_S):
        if play is falls_silent:
            await reader.readuntil(b"It is")
    await eventually(lambda: far.asked)
    assert not far.left.is_set()
    writer.close()
    await soon(far.left)
