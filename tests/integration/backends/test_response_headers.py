"""Headers of an upstream response that clients receive: retries, rate limits, request id; secrets are redacted.

client ─HTTP→ gateway ─HTTP→ a server with these headers
"""

import base64
import html
import json
from urllib.parse import quote

import httpx2
import pytest

from dragoman.core.errors import UpstreamError
from dragoman.redaction.secret_redactor import SecretRedactor
from dragoman.wire.response_headers import client_error_headers, client_headers
from support.fake_upstream import END, FRONTS, HEAD, Play, ask, gateway, piece, server, told, whole
from support.gateway import CHAT

pytestmark = pytest.mark.asyncio

KEY = 'k3y"/+ü&with=all'
PASSWORD = "urlpassword99"
LIMITS = {"x-ratelimit-remaining-requests": "9", "anthropic-ratelimit-tokens-reset": "2026-11-22T00:00:00Z"}
COMPLETION = json.dumps({"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]})


async def ask_rejecting(status: int, path: str = CHAT, *, stream: bool = False, **headers: str) -> httpx2.Response:
    play = whole(status, '{"error":{"message":"because"}}', **headers)
    async with server(play) as behind, gateway(behind.url) as url:
        return await ask(url, path, stream)


@pytest.mark.parametrize("path", FRONTS)
@pytest.mark.parametrize("status", [307, 400, 401, 402, 403, 404, 405, 422])
async def test_permanent_error_tells_client_not_to_retry(status: int, path: str) -> None:
    answer = await ask_rejecting(status, path, stream=status == 401)
    assert answer.headers["x-should-retry"] == "false"
    assert answer.status_code >= 400


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_temporary_error_has_no_x_should_retry(status: int) -> None:
    assert "x-should-retry" not in (await ask_rejecting(status)).headers


@pytest.mark.parametrize(("status", "says"), [(529, "false"), (401, "true"), (503, "TRUE")])
async def test_upstream_retry_headers_are_forwarded(status: int, says: str) -> None:
    headers = {"x_should_retry": says, "retry_after": "30", "retry_after_ms": "30000", "request_id": "req_7"}
    answer = await ask_rejecting(status, **headers)
    assert answer.headers["x-should-retry"] == says.lower()
    assert (answer.headers["retry-after"], answer.headers["retry-after-ms"]) == ("30", "30000")
    assert answer.headers["x-dragoman-upstream-request-id"] == "req_7"


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("stream", [False, True])
async def test_rate_limit_headers_and_request_id_are_forwarded(stream: bool, trusted: bool) -> None:
    sent = {**LIMITS, "x-request-id": "up_1", "server": "nginx", "set-cookie": "a=b", "x-should-retry": "true"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items()).encode()

    async def play(server: object, writer: object) -> None:
        body = HEAD.replace(b"connection", lines + b"connection") + piece({"content": "Hello"}, "stop") + END
        writer.write(body)  # type: ignore[attr-defined]

    answers: Play = play if stream else whole(200, COMPLETION, **{k.replace("-", "_"): v for k, v in sent.items()})
    async with server(answers) as behind, gateway(behind.url, passthrough=trusted) as url:
        answer = await ask(url, CHAT, stream)
    assert answer.status_code == 200
    assert {name: answer.headers[name] for name in LIMITS} == LIMITS
    assert answer.headers["x-dragoman-upstream-request-id"] == "up_1"
    assert {"set-cookie", "x-should-retry"}.isdisjoint(answer.headers)


async def test_forwarded_headers_are_bounded_and_validated() -> None:
    many = {f"x-ratelimit-{n}": "1" for n in range(100)}
    assert len(client_headers(many)) == 32
    assert client_headers({"x-ratelimit-a": "1\r\nx: y", "x-ratelimit-b": "x" * 300, "request-id": "é"}) == {}
    assert client_error_headers({"x-should-retry": "perhaps", "retry-after-ms": "soon"}) == {}


async def test_redirect_error_names_target_and_setting_without_secrets() -> None:
    play = whole(308, "", location="https://bob:pass@far.test/v1/chat/completions?key=x")
    async with server(play) as behind, gateway(behind.url) as url:
        words = told(CHAT, await ask(url, CHAT, False))
    assert "https://far.test/v1/chat/completions" in words
    assert "upstreams.far.url" in words
    assert "pass@" not in words
    assert "key=x" not in words


def forms(secret: str) -> dict[str, str]:
    data = secret.encode()
    return {
        "raw": secret,
        "base64": base64.b64encode(data).decode(),
        "base64 for URLs": base64.urlsafe_b64encode(data).decode().rstrip("="),
        "URL": quote(secret, safe=""),
        "JSON": json.dumps(secret)[1:-1],
        "JSON in UTF-8": json.dumps(secret, ensure_ascii=False)[1:-1],
        "JSON twice": json.dumps(json.dumps(secret)[1:-1])[1:-1],
        "HTML": html.escape(secret),
        "with a user, in base64": base64.b64encode(f"bob:{secret}".encode()).decode(),
    }


@pytest.mark.parametrize("secret", [KEY, PASSWORD])
@pytest.mark.parametrize("form", forms(""))
async def test_secret_is_redacted_in_every_encoding(form: str, secret: str) -> None:
    written = forms(secret)[form]
    own = (
        SecretRedactor(KEY, f"http://bob:{PASSWORD}@far.test/v1")
        if secret == PASSWORD
        else SecretRedactor(KEY, "http://far.test")
    )
    if form.startswith("with a user") and secret == KEY:
        own = SecretRedactor("", f"http://bob:{quote(KEY, safe='')}@far.test/v1")
    error = UpstreamError(f"bad key {written} here")
    assert own.clean_error(error).message == "bad key … here"
    assert str(error) == error.message
    assert own.hide_bytes(f'{{"got":"{written}"}}'.encode()) == '{"got":"…"}'.encode()


@pytest.mark.parametrize("path", FRONTS)
@pytest.mark.parametrize("status", [400, 401, 200])
async def test_api_key_in_upstream_error_is_redacted(status: int, path: str) -> None:
    theirs = "sk-proj-0123456789abcdefghijklmnop"
    said = json.dumps({"error": {"message": f"got {KEY} and {theirs}", "code": 500}})
    async with server(whole(status, said)) as behind, gateway(behind.url, api_key=KEY) as url:
        for stream in (False, True):
            answer = await ask(url, path, stream)
            assert KEY not in told(path, answer)
            assert theirs not in answer.text


@pytest.mark.parametrize("path", FRONTS)
async def test_api_key_in_streamed_error_is_redacted(path: str) -> None:
    async def play(server: object, writer: object) -> None:
        data = f"data: {json.dumps({'error': {'message': f'bad key {KEY}'}})}\n\n".encode()
        writer.write(HEAD + piece({"content": "It"}) + f"{len(data):x}\r\n".encode() + data + b"\r\n" + END)  # type: ignore[attr-defined]

    async with server(play) as behind, gateway(behind.url, api_key=KEY) as url:
        answer = await ask(url, path, True)
    assert json.dumps(KEY)[1:-1] not in answer.text
    assert "bad key" in answer.text
