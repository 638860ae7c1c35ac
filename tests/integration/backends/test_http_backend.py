"""Upstream servers that reject, disconnect, stall or are unreachable, and clients that disconnect, over real HTTP.

client ─HTTP→ gateway ─HTTP→ a server scripted by the test
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
        patched.setattr(circuit_breaker, "FAILURE_THRESHOLD", 10**6)  # so that the failures of all tests do not open it
        async with server(says_nothing) as behind, gateway(behind.url) as behind.gateway:
            yield behind


@pytest.fixture
def far(shared: Server) -> Server:
    """A Chat Completions server with a gateway in front of it; tests set its `play`."""
    shared.asked = []
    return shared


# Rejected requests

TOO_LONG = "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it"
"""The message of llama.cpp; tests/unit/wire/test_upstream_errors.py has those of other servers."""


@pytest.mark.parametrize("path", FRONTS)
async def test_context_length_error_has_the_form_of_the_clients_api(path: str, far: Server) -> None:
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


STATUS_MAP: list[tuple[int, int, int, str]] = [
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
"""Upstream status, status for clients of OpenAI's APIs, status and error type for clients of Anthropic's API."""


@pytest.mark.parametrize("path", FRONTS)
async def test_upstream_error_status_is_mapped_to_client_error(path: str, far: Server) -> None:
    for status, openais, anthropics, kind in STATUS_MAP:
        far.play = whole(status, '{"error": {"message": "because"}}', retry_after="7")
        for stream in (False, True):
            answer = await ask(far.gateway, path, stream)
            assert answer.status_code == (anthropics if path == MESSAGES else openais)
            assert answer.headers["retry-after"] == "7"
            error = shape_of(path, answer.json())
            assert error["message"] == f"the server answered {status}: because"
            assert path != MESSAGES or error["type"] == kind
    assert len(far.asked) == 2 * len(STATUS_MAP), "no refusal is asked again"


@pytest.mark.parametrize("path", FRONTS)
async def test_html_error_page_is_reported_as_text(path: str, far: Server) -> None:
    page = "<html><style>b {}</style><h1>502 Bad Gateway</h1><hr>nginx</html>"
    far.play = whole(502, page, "text/html")
    answer = await ask(far.gateway, path, True)
    assert (answer.status_code, told(path, answer)) == (502, "the server answered 502: 502 Bad Gateway nginx")


@pytest.mark.parametrize("path", FRONTS)
async def test_html_page_with_status_200_is_an_error(path: str, far: Server) -> None:
    far.play = whole(200, "<html>Welcome</html>", "text/html")
    answer = await ask(far.gateway, path, True)
    assert answer.status_code == 502
    assert "expected JSON from the server" in told(path, answer)


@pytest.mark.parametrize("path", FRONTS)
async def test_error_body_with_status_200_is_an_error(path: str, far: Server) -> None:
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


async def test_rejected_parameters_are_dropped_for_chat_completions() -> None:
    async with server(picky(COMPLETION)) as behind, gateway(behind.url) as url:
        answer = await ask(url, MESSAGES, False, **SETTINGS)
    assert answer.json()["content"] == [{"type": "text", "text": "Hello"}]
    dropped = ", ".join(f"content_dropped: {name}" for name in ("temperature", "top_k", "reasoning_effort"))
    assert answer.headers["x-dragoman-warnings"] == f"{dropped}, estimated_usage"
    (first, *_, last) = [json.loads(body) for _, _, body in behind.asked]
    assert first.keys() - last.keys() == {"temperature", "max_tokens", "top_k", "reasoning_effort"}
    assert last["max_completion_tokens"] == first["max_tokens"] == 9
    assert len(behind.asked) == 5


async def test_rejected_parameters_are_dropped_for_responses() -> None:
    play = picky(RESPONSE)
    async with server(play) as behind, gateway(behind.url, api="openai_responses") as url:
        answer = await ask(url, MESSAGES, False, **SETTINGS)
    assert answer.json()["content"] == [{"type": "text", "text": "Hello"}]
    (first, *_, last) = [json.loads(body) for _, _, body in behind.asked]
    assert first.keys() - last.keys() == {"temperature", "reasoning", "include"}


async def test_rejected_parameter_is_reported_to_client_of_same_api(far: Server) -> None:
    far.play = picky(COMPLETION)
    answer = await ask(far.gateway, CHAT, False, temperature=0.2)
    assert answer.status_code == 400
    assert SAID_NO["temperature"] in told(CHAT, answer)
    assert len(far.asked) == 1


async def test_rejected_messages_field_is_never_dropped(far: Server) -> None:
    far.play = whole(400, json.dumps({"error": {"message": "Unrecognized request argument supplied: messages"}}))
    answer = await ask(far.gateway, MESSAGES, False)
    assert answer.status_code == 400
    assert len(far.asked) == 1


# Broken connections and timeouts


@pytest.mark.parametrize("path", FRONTS)
async def test_disconnect_in_mid_stream_is_reported(path: str, far: Server) -> None:
    far.play = dies
    streamed = await ask(far.gateway, path, True)
    at_once = await ask(far.gateway, path, False)
    assert streamed.status_code == 200
    assert "It is" in streamed.text
    assert "far closed the connection in the middle" in streamed.text
    assert ends_as_failed(path, streamed.text)
    assert at_once.status_code == (529 if path == MESSAGES else 503)


@pytest.mark.parametrize("path", FRONTS)
async def test_stream_without_final_event_is_an_error(path: str, far: Server) -> None:
    async def ends(server: Server, writer: asyncio.StreamWriter) -> None:
        await begins(server, writer)
        writer.write(b"0\r\n\r\n")

    far.play = ends
    answer = await ask(far.gateway, path, True)
    assert "the stream of the server ended before it was complete" in answer.text
    assert ends_as_failed(path, answer.text)


async def test_stalled_stream_ends_with_idle_timeout_error() -> None:
    async with server(falls_silent) as behind, gateway(behind.url, idle_timeout_s=0.2) as url:
        for path in FRONTS:
            answer = await ask(url, path, True)
            await soon(behind.left)
            assert "far sent nothing for 0.2 s (setting idle_timeout_s)" in answer.text
            assert ends_as_failed(path, answer.text)


async def test_silent_server_ends_with_first_byte_timeout_504() -> None:
    async with server(says_nothing) as behind, gateway(behind.url, first_byte_timeout_s=0.2) as url:
        for path in FRONTS:
            answer = await ask(url, path, False)
            words = "far sent no response within 0.2 s (setting first_byte_timeout_s)"
            assert (answer.status_code, told(path, answer)) == (504, words)


async def test_unreachable_server_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
    async with gateway(nobody) as url:
        for path in FRONTS:
            answer = await ask(url, path, True)
            assert answer.status_code == (529 if path == MESSAGES else 503)
            assert told(path, answer).startswith(f"far cannot be reached at {nobody}: ")


# Model list

MODEL_LIST = '{"object": "list", "data": [{"id": "one", "object": "model"}, {"id": "two"}]}'


async def list_models(url: str, **settings: Any) -> list[str]:
    backend = HttpBackend("far", HttpConfig(url=url, **settings), {})
    await backend.start()
    await backend.close()
    return [model.id for model in backend.models()]


async def test_model_list_is_fetched_with_api_key() -> None:
    async with server(whole(200, MODEL_LIST)) as behind:
        assert await list_models(behind.url, api_key="secret") == ["one", "two"]
        assert await list_models(f"{behind.url}/v1/", models=("mine",)) == ["mine"]
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
async def test_invalid_model_list_is_logged(play: Play, words: str, caplog: pytest.LogCaptureFixture) -> None:
    async with server(play) as behind:
        with caplog.at_level(logging.WARNING, "dragoman.backends.http"):
            assert await list_models(behind.url) == []
    (record,) = caplog.records
    assert words in record.getMessage()
    assert "set upstreams.far.models" in record.getMessage()


# Forwarded headers, stop strings, disconnects


@pytest.mark.parametrize(("api", "goes"), [("anthropic_messages", True), ("openai_chat", False)])
async def test_anthropic_headers_are_forwarded_only_to_anthropic_api(api: str, goes: bool) -> None:
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


async def test_stop_string_closes_upstream_connection(far: Server) -> None:
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
async def test_client_disconnect_closes_upstream_connection(play: Play, path: str, far: Server) -> None:
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
