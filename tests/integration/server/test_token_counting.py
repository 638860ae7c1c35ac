"""Token counting: over HTTP, with the vendors' SDKs, and by `Gateway.count_tokens`."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import msgspec
import openai
import pytest
from aiohttp import test_utils, web

from dragoman import dialects
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.catalog import tokenizers
from dragoman.core.messages import Message, Request, Sampling, Text, Tool
from dragoman.core.token_estimate import GENERIC
from dragoman.gateway.gateway import Gateway, TokenCount
from dragoman.wire.dialect import TokenCounting
from support.gateway import DEADLINE_S, shape_of
from support.scripted_backend import Scripted, plain, served

MESSAGES, RESPONSES = "/v1/messages/count_tokens", "/v1/responses/input_tokens"
TOOL: Any = {"name": "weather", "description": "Weather in a city.", "input_schema": {"type": "object"}}
ASKED: Any = [{"role": "user", "content": "Weather in Bern?"}]
BODIES: dict[str, dict[str, Any]] = {
    MESSAGES: {"model": "n", "messages": ASKED},
    RESPONSES: {"model": "n", "input": "Weather in Bern?"},
}
EACH = pytest.mark.parametrize("path", BODIES)


def countings() -> Iterator[TokenCounting]:
    for dialect in map(dialects.get, dialects.names()):
        if dialect.token_counting:
            yield dialect.token_counting


def test_every_token_counting_path_is_tested() -> None:
    assert {counting.path for counting in countings()} == set(BODIES)


@EACH
async def test_token_count_of_backend_is_returned(path: str) -> None:
    async with served(plain) as s, s.client() as client:
        s.backend.tokens = 31
        answer = await client.post(path, json=BODIES[path])
    assert answer.status_code == 200
    assert answer.json()["input_tokens"] == 31
    assert "x-dragoman-token-count" not in answer.headers
    assert not s.backend.begun.is_set()


@EACH
async def test_estimated_token_count_has_header(path: str) -> None:
    async with served(plain) as s, s.client() as client:
        answer = await client.post(path, json=BODIES[path])
    assert 5 < answer.json()["input_tokens"] < 20
    assert answer.headers["x-dragoman-token-count"] == "estimated"


@EACH
async def test_token_counting_errors_have_shape_of_client_api(path: str) -> None:
    async with served(plain, api_keys=("k",), max_body_bytes=500) as s, s.client() as client:
        known = {"x-api-key": "k"}
        answers = [
            (401, await client.post(path, json=BODIES[path])),
            (404, await client.post(path, json={**BODIES[path], "model": "none"}, headers=known)),
            (400, await client.post(path, json={**BODIES[path], "tools": 3}, headers=known)),
            (400, await client.post(path, content=b"{", headers=known)),
            (413, await client.post(path, json={**BODIES[path], "metadata": {"x": "y" * 500}}, headers=known)),
            (405, await client.get(path, headers=known)),
        ]
    for status, answer in answers:
        assert answer.status_code == status
        assert shape_of("/v1/messages" if path == MESSAGES else "/v1/responses", answer.json())["message"]


async def test_counted_tokens_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dragoman.access")
    async with served(plain) as s, s.client() as client:
        s.backend.tokens = 31
        await client.post(MESSAGES, json=BODIES[MESSAGES])
    (line,) = [r.message for r in caplog.records if r.name == "dragoman.access"]
    facts = msgspec.json.decode(line)
    assert (facts["path"], facts["status"], facts["input_tokens"]) == (MESSAGES, 200, 31)
    assert "Bern" not in line


async def test_anthropic_sdk_counts_tokens() -> None:
    async with (
        served(plain) as s,
        anthropic.AsyncAnthropic(api_key="k", base_url=s.url, max_retries=0, timeout=DEADLINE_S) as sdk,
    ):
        little = (await sdk.messages.count_tokens(model="m", messages=ASKED)).input_tokens
        more = (
            await sdk.messages.count_tokens(model="m", messages=ASKED, tools=[TOOL], system="Be brief.")
        ).input_tokens
        assert 0 < little < more - 100
        s.backend.tokens = 31
        many = await asyncio.gather(*(sdk.beta.messages.count_tokens(model="m", messages=ASKED) for _ in range(26)))
        assert [one.input_tokens for one in many] == [31] * 26


async def test_openai_sdk_counts_tokens() -> None:
    async with (
        served(plain) as s,
        openai.AsyncOpenAI(api_key="k", base_url=f"{s.url}/v1", max_retries=0, timeout=DEADLINE_S) as sdk,
    ):
        s.backend.tokens = 31
        counted = await sdk.responses.input_tokens.count(model="m", input="Weather in Bern?")
        assert (counted.input_tokens, counted.object) == (31, "response.input_tokens")
        alone = await sdk.responses.input_tokens.count(input="Weather in Bern?")
        assert 5 < alone.input_tokens < 20


async def test_token_count_includes_continued_conversation() -> None:
    async with (
        served(plain) as s,
        openai.AsyncOpenAI(api_key="k", base_url=f"{s.url}/v1", max_retries=0, timeout=DEADLINE_S) as sdk,
    ):
        first = await sdk.responses.create(model="m", input="word " * 500)
        alone = await sdk.responses.input_tokens.count(model="m", input="Go on.")
        counted = await sdk.responses.input_tokens.count(model="m", input="Go on.", previous_response_id=first.id)
        assert counted.input_tokens > alone.input_tokens + 400
        with pytest.raises(openai.BadRequestError, match="answer 'none' not found"):
            await sdk.responses.input_tokens.count(model="m", input="Go on.", previous_response_id="resp_none")


# Upstream servers

APIS = pytest.mark.parametrize("api", ["anthropic_messages", "openai_responses"])
REQUEST = Request(
    "m",
    (Message("system", (Text("Be brief."),)), Message("user", (Text("Weather in Bern?"),))),
    (Tool("weather", "Weather in a city."),),
    max_tokens=100,
    sampling=Sampling(temperature=0.5),
    stop=("x",),
    stream=True,
)


@contextlib.asynccontextmanager
async def behind(url: str, api: str) -> AsyncIterator[HttpBackend]:
    backend = HttpBackend("far", HttpConfig(url=url, api=api, models=("m",)), {})
    await backend.start()
    try:
        yield backend
    finally:
        await backend.close()


@APIS
async def test_upstream_counts_tokens_if_its_api_can(api: str) -> None:
    async with served(plain) as far, behind(far.url, api) as backend:
        assert await backend.count_tokens(REQUEST) is None  # the upstream only has an estimate too
        far.backend.tokens = 31
        assert await backend.count_tokens(REQUEST) == 31
        assert not far.backend.begun.is_set()
        assert await backend.count_tokens(msgspec.structs.replace(REQUEST, model="unknown")) is None


async def test_api_without_token_counting_gets_no_request() -> None:
    async with behind("http://127.0.0.1:9", "openai_chat") as backend:
        assert await backend.count_tokens(REQUEST) is None


@APIS
async def test_unreachable_upstream_falls_back_to_estimate(api: str, caplog: pytest.LogCaptureFixture) -> None:
    async with served(plain) as far:
        pass
    async with behind(far.url, api) as backend:
        assert await backend.count_tokens(REQUEST) is None
    assert "far does not count tokens" in caplog.text


@pytest.mark.parametrize("answer", [b"{}", b"no", b'{"input_tokens":"7"}', b'{"input_tokens":-1}'])
@APIS
async def test_invalid_token_count_response_is_ignored(api: str, answer: bytes) -> None:
    async def told(_: web.Request) -> web.Response:
        return web.Response(body=answer)

    app = web.Application()
    app.router.add_post("/{path:.*}", told)
    async with test_utils.TestServer(app) as server, behind(str(server.make_url("/")), api) as backend:
        assert await backend.count_tokens(REQUEST) is None


@pytest.mark.parametrize("api", ["anthropic_messages", "openai_responses"])
def test_forwarded_fields_are_those_of_vendor_sdk(api: str) -> None:
    from anthropic.types.beta.message_count_tokens_params import MessageCountTokensParams
    from openai.types.responses.input_token_count_params import InputTokenCountParams

    known: type = MessageCountTokensParams if api == "anthropic_messages" else InputTokenCountParams
    counting = dialects.get(api).token_counting
    assert counting is not None
    assert counting.forwarded_fields <= set(known.__annotations__)
    body = dialects.get(api).write_request(REQUEST, "m").body
    asked = set(msgspec.json.decode(body))
    assert {"model", "tools"} < asked & counting.forwarded_fields < asked


async def test_alias_is_counted_with_tokenizer_of_its_model() -> None:
    words = Message("user", (Text("static const int MAX_LINES = 100; /* of a file */\n" * 50),))
    gateway = Gateway([Scripted(plain, ["claude-opus-4-8"])], {"fast": "claude-opus-4-8"})
    asked = Request("fast", (words,))
    count = await gateway.count_tokens(asked)
    assert count == TokenCount(tokenizers.find("claude-opus-4-8").estimate_request(asked), estimated=True)
    assert count.tokens > 1.3 * GENERIC.estimate_request(asked)
