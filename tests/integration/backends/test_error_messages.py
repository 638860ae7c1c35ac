"""Errors of upstream servers: rejected parameters, chunked errors, secrets in errors and URLs; and base URLs."""

import asyncio
import json
from typing import Any

import pytest

from support.fake_upstream import RESPONSES, Play, Server, ask, gateway, server, told, whole
from support.gateway import CHAT, DEADLINE_S, MESSAGES
from support.http_client import http_client
from support.refusing_upstream import COMPLETION, RESPONSE

pytestmark = pytest.mark.asyncio(loop_scope="module")

USER = {"role": "user", "content": "hi"}
MESSAGE = json.dumps({"type": "message", "content": [{"type": "text", "text": "Hello"}], "stop_reason": "end_turn"})


def rejects_params(good: str, words: str, *names: str) -> Play:
    """Responds with 400 and this message while a request has one of these parameters, then with `good`."""

    async def play(server: Server, writer: asyncio.StreamWriter) -> None:
        asked = json.loads(server.asked[-1][2])
        refused = any(asked.get(name) is not None for name in names)
        await whole(400 if refused else 200, json.dumps({"error": {"message": words}}) if refused else good)(
            server, writer
        )

    return play


REFUSALS: list[tuple[str, str, str, dict[str, Any], str]] = [
    (
        "anthropic_messages",
        CHAT,
        "adaptive thinking is not supported on this model",
        {"reasoning_effort": "low"},
        "thinking",
    ),
    (
        "anthropic_messages",
        CHAT,
        "This model does not support the effort parameter.",
        {"reasoning_effort": "low"},
        "thinking",
    ),
    ("anthropic_messages", CHAT, "`temperature` is deprecated for this model.", {"temperature": 0.5}, "temperature"),
    (
        "anthropic_messages",
        CHAT,
        "`temperature` and `top_p` cannot both be specified for this model.",
        {"temperature": 0.5, "top_p": 0.5},
        "top_p",
    ),
    (
        "openai_chat",
        RESPONSES,
        '"granite4:3b" does not support thinking',
        {"reasoning": {"effort": "high"}},
        "reasoning_effort",
    ),
    (
        "openai_chat",
        RESPONSES,
        "[{'type': 'literal_error', 'loc': ('body', 'reasoning_effort'), 'msg': \"Input should be 'low'\"}]",
        {"reasoning": {"effort": "xhigh"}},
        "reasoning_effort",
    ),
]


@pytest.mark.parametrize(("api", "path", "words", "asked", "name"), REFUSALS, ids=[r[2][:40] for r in REFUSALS])
async def test_rejected_parameter_is_dropped_and_reported(
    api: str, path: str, words: str, asked: dict[str, Any], name: str
) -> None:
    good = MESSAGE if api == "anthropic_messages" else COMPLETION
    async with server(rejects_params(good, words, name)) as behind, gateway(behind.url, api=api) as url:
        answer = await ask(url, path, False, **asked)
    assert answer.status_code == 200
    assert "content_dropped" in answer.headers["x-dragoman-warnings"]
    first, last = (json.loads(body) for _, _, body in behind.asked)
    assert name in first
    assert name not in last
    assert "effort" not in last.get("output_config", {})


async def test_error_in_two_chunks_is_read_completely() -> None:
    words = "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens."
    body = json.dumps({"error": {"message": words}}).encode()

    async def play(server: Server, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body))
        for piece in (body[:40], body[40:]):
            writer.write(piece)
            for _ in range(50):  # the gateway runs in the same event loop and reads the first piece alone
                await asyncio.sleep(0)

    async with server(play) as behind, gateway(behind.url) as url:
        answer = await ask(url, MESSAGES, False)
    assert told(MESSAGES, answer) == "prompt is too long: 5000 tokens > 4096 maximum"


@pytest.mark.parametrize(
    "body",
    [
        '[{"error": {"message": "no such thing", "code": 400}}]',
        '{"message": "no such thing", "type": "x", "code": "y"}',
    ],
    ids=["in a list", "side by side"],
)
async def test_error_of_unusual_shape_is_forwarded(body: str) -> None:
    async with server(whole(400, body)) as behind, gateway(behind.url) as url:
        answer = await ask(url, CHAT, False)
    assert (answer.status_code, told(CHAT, answer)) == (400, "the server answered 400: no such thing")


async def test_api_key_in_upstream_error_is_redacted() -> None:
    words = json.dumps({"error": {"message": "Incorrect API key provided: sk-secret."}})
    async with server(whole(401, words)) as behind, gateway(behind.url, api_key="sk-secret") as url:
        answer = await ask(url, CHAT, False)
    assert "sk-secret" not in answer.text
    assert "Incorrect API key provided: …." in told(CHAT, answer)


async def test_upstream_cookies_are_not_sent_back() -> None:
    play = whole(200, COMPLETION, set_cookie="session=1; Path=/")
    async with server(play) as behind, gateway(behind.url.replace("127.0.0.1", "localhost")) as url:
        for _ in range(2):
            assert (await ask(url, CHAT, False)).status_code == 200
    assert all("cookie" not in headers for _, headers, _ in behind.asked)


async def test_stream_with_finish_but_without_done_is_complete() -> None:
    async def play(server: Server, writer: asyncio.StreamWriter) -> None:
        chunk = b'data: {"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":"stop"}]}\n\n'
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        await writer.drain()

    async with server(play) as behind, gateway(behind.url) as url:
        answer = await ask(url, MESSAGES, True)
    assert '"text":"Hello"' in answer.text
    assert "event: message_stop" in answer.text


async def test_max_tokens_defaults_to_max_output_tokens() -> None:
    async with (
        server(whole(200, MESSAGE)) as behind,
        gateway(behind.url, api="anthropic_messages", max_output_tokens=4096) as url,
    ):
        assert (await ask(url, RESPONSES, False)).status_code == 200
    (body,) = (json.loads(body) for _, _, body in behind.asked)
    assert body["max_tokens"] == 4096


@pytest.mark.parametrize(
    ("api", "base", "line"),
    [
        ("openai_chat", "", "/v1/chat/completions"),
        ("openai_chat", "/v1", "/v1/chat/completions"),
        ("openai_chat", "/v1beta/openai/", "/v1beta/openai/chat/completions"),
        ("openai_responses", "/api/paas/v4", "/api/paas/v4/responses"),
        ("anthropic_messages", "", "/v1/messages"),
        ("anthropic_messages", "/anthropic", "/anthropic/v1/messages"),
        ("anthropic_messages", "/anthropic/v1", "/anthropic/v1/messages"),
    ],
)
async def test_base_url_is_joined_with_api_path(api: str, base: str, line: str) -> None:
    async with server(whole(500, "{}")) as behind, gateway(behind.url, base, api=api) as url:
        await ask(url, CHAT, False)
    assert behind.asked[0][0] == f"POST {line} HTTP/1.1"


async def test_request_is_retried_after_connection_closes_without_response() -> None:
    async def play(server: Server, writer: asyncio.StreamWriter) -> None:
        if len(server.asked) > 1:
            await whole(200, COMPLETION)(server, writer)

    async with server(play) as behind, gateway(behind.url) as url:
        assert (await ask(url, CHAT, False)).status_code == 200
    assert len(behind.asked) == 2


async def test_upstream_error_text_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    words = json.dumps({"detail": [{"msg": "wrong", "input": "words of the user"}]})
    with caplog.at_level("INFO"):
        async with server(whole(422, words)) as behind, gateway(behind.url) as url:
            assert (await ask(url, CHAT, False)).status_code == 400
    assert "UpstreamError: status 422" in caplog.text
    assert "words of the user" not in caplog.text


async def test_password_in_url_is_not_shown_by_health() -> None:
    async with server(whole(200, COMPLETION)) as behind:
        secret = behind.url.replace("://", "://user:password@")
        async with gateway(secret) as url, http_client() as client:
            told = (await client.get(f"{url}/health")).text
    assert behind.url in told
    assert "password" not in told


async def test_plain_text_error_is_mapped_to_context_length_exceeded() -> None:
    play = whole(400, "prompt is too long: 5000 tokens > 4096 maximum", "text/plain")
    async with server(play) as behind, gateway(behind.url) as url:
        answer = await ask(url, CHAT, False)
    assert answer.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("api", "status", "words", "mark"),
    [
        ("openai_chat", 400, "property 'reasoning_content' is unsupported", b"reasoning_content"),
        ("openai_responses", 404, "Item with id 'rs_0a18166210d72b5e0069fd938e' not found.", b"rs_0a18"),
        ("anthropic_messages", 400, "messages.1.content.0: Invalid `data` in `redacted_thinking` block", b'"thinking"'),
    ],
)
async def test_rejected_reasoning_is_dropped_and_request_is_retried(
    api: str, status: int, words: str, mark: bytes
) -> None:
    good = {"openai_chat": COMPLETION, "openai_responses": RESPONSE, "anthropic_messages": MESSAGE}[api]

    async def play(server: Server, writer: asyncio.StreamWriter) -> None:
        refused = mark in server.asked[-1][2]
        body = json.dumps({"error": {"message": words}}) if refused else good
        await whole(status if refused else 200, body)(server, writer)

    thoughts = {"type": "thinking", "thinking": "hm", "signature": "rs_0a18166210d72b5e0069fd938e:gAAAAAB=="}
    words_of = {"role": "assistant", "content": [thoughts, {"type": "text", "text": "a"}]}
    asked = {"model": "m", "max_tokens": 9, "messages": [USER, words_of, USER]}
    async with (
        server(play) as behind,
        gateway(behind.url, api=api) as url,
        http_client() as client,
    ):
        answer = await client.post(url + MESSAGES, json=asked, timeout=DEADLINE_S)
    assert answer.status_code == 200
    assert [mark in body for _, _, body in behind.asked] == [True, False]
