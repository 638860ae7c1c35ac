"""How large a request is: asked over HTTP, by the vendors' SDKs, and of the gateway."""

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


def test_each_path_has_its_own_tests() -> None:
    assert {counting.path for counting in countings()} == set(BODIES)


@EACH
async def test_what_the_backend_counts_is_told(path: str) -> None:
    async with served(plain) as s, s.client() as client:
        s.backend.tokens = 31
        answer = await client.post(path, json=BODIES[path])
    assert answer.status_code == 200
    assert answer.json()["input_tokens"] == 31
    assert "x-dragoman-token-count" not in answer.headers
    assert not s.backend.begun.is_set()


@EACH
async def test_an_estimate_says_that_it_is_one(path: str) -> None:
    async with served(plain) as s, s.client() as client:
        answer = await client.post(path, json=BODIES[path])
    assert 5 < answer.json()["input_tokens"] < 20
    assert answer.headers["x-dragoman-token-count"] == "estimated"


@EACH
async def test_errors_are_in_the_callers_own_shape(path: str) -> None:
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


async def test_the_log_tells_what_was_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dragoman.access")
    async with served(plain) as s, s.client() as client:
        s.backend.tokens = 31
        await client.post(MESSAGES, json=BODIES[MESSAGES])
    (line,) = [r.message for r in caplog.records if r.name == "dragoman.access"]
    facts = msgspec.json.decode(line)
    assert (facts["path"], facts["status"], facts["input_tokens"]) == (MESSAGES, 200, 31)
    assert "Bern" not in line


async def test_the_anthropic_package_counts() -> None:
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


async def test_the_openai_package_counts() -> None:
    async with (
        served(plain) as s,
        openai.AsyncOpenAI(api_key="k", base_url=f"{s.url}/v1", max_retries=0, timeout=DEADLINE_S) as sdk,
    ):
        s.backend.tokens = 31
        counted = await sdk.responses.input_tokens.count(model="m", input="Weather in Bern?")
        assert (counted.input_tokens, counted.object) == (31, "response.input_tokens")
        alone = await sdk.responses.input_tokens.count(input="Weather in Bern?")
        assert 5 < alone.input_tokens < 20


async def test_what_is_gone_on_from_is_counted_too() -> None:
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


# Servers behind

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
async def test_a_server_behind_is_asked_where_its_api_counts(api: str) -> None:
    async with served(plain) as far, behind(far.url, api) as backend:
        assert await backend.count_tokens(REQUEST) is None  # an estimate is as good here
        far.backend.tokens = 31
        assert await backend.count_tokens(REQUEST) == 31
        assert not far.backend.begun.is_set()
        assert await backend.count_tokens(msgspec.structs.replace(REQUEST, model="unknown")) is None


async def test_an_api_that_does_not_count_is_not_asked() -> None:
    async with behind("http://127.0.0.1:9", "openai_chat") as backend:
        assert await backend.count_tokens(REQUEST) is None


@APIS
async def test_a_server_that_is_gone_is_no_reason_to_fail(api: str, caplog: pytest.LogCaptureFixture) -> None:
    async with served(plain) as far:
        pass
    async with behind(far.url, api) as backend:
        assert await backend.count_tokens(REQUEST) is None
    assert "far does not count tokens" in caplog.text


@pytest.mark.parametrize("answer", [b"{}", b"no", b'{"input_tokens":"7"}', b'{"input_tokens":-1}'])
@APIS
async def test_an_answer_that_tells_no_count(api: str, answer: bytes) -> None:
    async def told(_: web.Request) -> web.Response:
        return web.Response(body=answer)

    app = web.Application()
    app.router.add_post("/{path:.*}", told)
    async with test_utils.TestServer(app) as server, behind(str(server.make_url("/")), api) as backend:
        assert await backend.count_tokens(REQUEST) is None


@pytest.mark.parametrize("api", ["anthropic_messages", "openai_responses"])
def test_a_server_is_asked_with_what_the_vendors_package_may_ask(api: str) -> None:
    from anthropic.types.beta.message_count_tokens_params import MessageCountTokensParams
    from openai.types.responses.input_token_count_params import InputTokenCountParams

    known: type = MessageCountTokensParams if api == "anthropic_messages" else InputTokenCountParams
    counting = dialects.get(api).token_counting
    assert counting is not None
    assert counting.forwarded_fields <= set(known.__annotations__)
    body = dialects.get(api).write_request(REQUEST, "m").body
    asked = set(msgspec.json.decode(body))
    assert {"model", "tools"} < asked & counting.forwarded_fields < asked


async def test_a_request_is_counted_under_the_models_own_name() -> None:
    words = Message("user", (Text("static const int MAX_LINES = 100; /* of a file */\n" * 50),))
    gateway = Gateway([Scripted(plain, ["claude-opus-4-8"])], {"fast": "claude-opus-4-8"})
    asked = Request("fast", (words,))
    count = await gateway.count_tokens(asked)
    assert count == TokenCount(tokenizers.find("claude-opus-4-8").estimate_request(asked), estimated=True)
    assert count.tokens > 1.3 * GENERIC.estimate_request(asked)
