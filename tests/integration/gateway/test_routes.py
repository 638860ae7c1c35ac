"""Routes through real HTTP: which of several upstreams gets a request, in each API.

client ─HTTP→ gateway with routes ─HTTP→ several upstreams
"""

import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from dragoman.config.routes import take_routes
from dragoman.core.errors import ConfigError
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.routing.route import Routes
from support.fake_upstream import FRONTS, Server, ask, server, whole
from support.gateway import CHAT, MESSAGES
from support.http_client import http_client
from support.refusing_upstream import COMPLETION
from support.scripted_backend import serving
from support.upstreams import upstream

pytestmark = pytest.mark.asyncio

CLAUDE = {"user-agent": "claude-cli/2.1.329 (external, cli)", "x-claude-code-session-id": "s1"}
SUBAGENT = {**CLAUDE, "x-claude-code-agent-id": "a1"}
ANSWERS, FAILS = whole(200, COMPLETION), whole(503, '{"error": {"message": "loading"}}')


@contextlib.asynccontextmanager
async def routed(
    *tables: dict[str, Any], fails: str = "", aliases: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[tuple[str, dict[str, Server]]]:
    """A gateway with the upstreams a, b and c, whose models have the same names; the model m is of a."""
    async with contextlib.AsyncExitStack() as stack:
        far = {name: await stack.enter_async_context(server(FAILS if name in fails else ANSWERS)) for name in "abc"}
        backends = [upstream(name, far[name], name, **settings) for name in far]
        rules = Routes(take_routes({"routes": list(tables)}, "file"))
        gateway = Gateway(backends, {"m": "a", **(aliases or {})}, rules=rules)
        _, url = await stack.enter_async_context(serving(gateway))
        yield url, far


@contextlib.asynccontextmanager
async def closing(gateway: Gateway) -> AsyncIterator[Gateway]:
    try:
        yield gateway
    finally:
        await gateway.close()


def who(answer: httpx2.Response) -> str:
    assert answer.status_code == 200, answer.text
    return answer.headers["x-dragoman-upstream"]


@pytest.mark.parametrize("path", FRONTS)
async def test_role_of_agent_selects_upstream(path: str) -> None:
    async with routed({"role": "subagent", "use": "b"}, {"agent": "claude-code", "use": "c"}) as (url, far):
        answers = [await ask(url, path, False, headers) for headers in ({}, CLAUDE, SUBAGENT)]
    assert [who(each) for each in answers] == ["a", "c", "b"]
    assert [json.loads(far[name].asked[0][2])["model"] for name in "acb"] == ["a", "c", "b"]


async def test_model_that_no_upstream_has_is_routed() -> None:
    async with routed({"model": "claude-haiku-*", "use": "small"}, aliases={"small": ["b", "c"]}, fails="b") as (
        url,
        _,
    ):
        answer = await ask(url, MESSAGES, False, model="claude-haiku-4-5")
        unknown = await ask(url, MESSAGES, False, model="claude-opus-9")
    assert who(answer) == "c"
    assert answer.headers["x-dragoman-warnings"].startswith("failed_over: b > c")
    assert unknown.status_code == 404


async def test_next_model_of_route_is_used_where_one_fails() -> None:
    async with routed({"use": ["b", "a"]}, fails="b") as (url, far):
        assert who(await ask(url, CHAT, False)) == "a"
    assert [len(far[name].asked) for name in "abc"] == [1, 1, 0]


@pytest.mark.parametrize("passthrough", [False, True])
async def test_weights_split_requests(passthrough: bool) -> None:
    settings = {"tool_mode": "native", "passthrough": passthrough}
    async with routed({"use": {"b": 3, "c": 1}}, **settings) as (url, _):
        shares = Counter([who(await ask(url, CHAT, False)) for _ in range(40)])
    assert set(shares) == {"b", "c"}
    assert shares["b"] > shares["c"]


async def test_session_stays_at_its_upstream_until_that_fails() -> None:
    async with routed({"use": ["a", "b", "c"], "balance": "sticky"}) as (url, _):
        by_session = {
            n: {who(await ask(url, MESSAGES, False, {**CLAUDE, "x-claude-code-session-id": f"s{n}"})) for _ in "12"}
            for n in range(12)
        }
    assert all(len(upstreams) == 1 for upstreams in by_session.values())
    assert {name for upstreams in by_session.values() for name in upstreams} == set("abc")
    first = next(iter(by_session[0]))
    async with routed({"use": ["a", "b", "c"], "balance": "sticky"}, fails=first) as (url, _):
        others = {who(await ask(url, MESSAGES, False, {**CLAUDE, "x-claude-code-session-id": "s0"})) for _ in "12"}
    assert len(others) == 1
    assert others != {first}


async def test_request_is_passed_through_by_its_route() -> None:
    settings = {"tool_mode": "native", "passthrough": True}
    async with routed({"model": "m", "use": "b"}, **settings) as (url, far):
        answer = await ask(url, CHAT, False)
    assert who(answer) == "b"
    assert json.loads(far["b"].asked[0][2])["model"] == "b"


async def test_other_apis_ignore_routes() -> None:
    async with routed({"use": "b"}) as (url, far), http_client(url) as client:
        answer = await client.post("/v1/embeddings", json={"model": "m", "input": "hi"})
    assert (answer.headers["x-dragoman-upstream"], len(far["b"].asked)) == ("a", 0)


@pytest.mark.parametrize("setting", ["use", "describe_images"])
async def test_route_with_unknown_model_is_rejected_at_start(setting: str) -> None:
    rules = Routes(take_routes({"routes": [{"use": "a"}, {setting: "d"}]}, "file"))
    async with server(ANSWERS) as far, closing(Gateway([upstream("a", far, "a")], rules=rules)) as gateway:
        with pytest.raises(ConfigError, match=rf"no backend serves 'd'.* - at routes\[2\]\.{setting}"):
            await gateway.start()
