"""Variations of client requests: query strings, methods, headers, and repeated requests."""

from typing import Any

import httpx2
import pytest

from support.gateway import CHAT, MESSAGES
from support.scripted_backend import body, plain, served

RESPONSES = "/v1/responses"


async def ask(method: str, path: str, headers: dict[str, str] | None = None, **settings: Any) -> httpx2.Response:
    async with served(plain, **settings) as s, s.client() as client:
        return await client.request(method, path, headers=headers, json=body(False) if method == "POST" else None)


@pytest.mark.parametrize("query", ["?beta=true", "?", "?api-version=2026-01-01&x=%2F"])
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_query_string_is_ignored(path: str, query: str) -> None:
    answer = await ask("POST", path + query)
    assert answer.status_code == 200
    assert "Hello" in answer.text


@pytest.mark.parametrize(
    ("path", "status"), [("/", 200), ("/health", 200), ("/v1/models", 200), ("/v1/models/m", 200), ("/api/hello", 404)]
)
async def test_head_request_has_status_and_no_body(path: str, status: int) -> None:
    """Claude Code sends `HEAD /api/hello` first and takes any status."""
    answer = await ask("HEAD", path)
    assert (answer.status_code, answer.content) == (status, b"")
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES, "/v1/models", "/v1/models/m", "/health"])
async def test_options_request_lists_methods_without_key(path: str) -> None:
    answer = await ask("OPTIONS", path, api_keys=("k",))
    assert (answer.status_code, answer.content) == (204, b"")
    assert "OPTIONS" in answer.headers["allow"]


@pytest.mark.parametrize(
    "headers",
    [
        {"x-api-key": "k"},
        {"authorization": "Bearer k"},
        {"x-api-key": "k", "authorization": "Bearer k"},
        {"x-api-key": "k", "authorization": "Bearer of-another-service"},
    ],
)
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_api_key_is_accepted_in_either_or_both_headers(path: str, headers: dict[str, str]) -> None:
    assert (await ask("POST", path, headers, api_keys=("k",))).status_code == 200


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_repeated_request_is_answered_again(path: str) -> None:
    """`Idempotency-Key` is ignored, as by the vendors; see docs/errors.md."""
    async with served(plain) as s, s.client() as client:
        again = [await client.post(path, json=body(False), headers={"idempotency-key": "1"}) for _ in range(2)]
        assert s.backend.sent == 2 * 4
    first, second = (answer.json() for answer in again)
    assert first["id"] != second["id"]
