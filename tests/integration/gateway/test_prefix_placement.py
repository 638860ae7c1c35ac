"""Prefix-affine routing through real HTTP: each conversation stays at the upstream that has read it.

client ─HTTP→ gateway with a rule of the balance `prefix` ─HTTP→ several upstreams with the same model
"""

import asyncio
import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from dragoman.config.routes import take_routes
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.routing.route import Routes
from dragoman.state.memory_store import MemoryStateStore
from support.fake_upstream import FRONTS, RESPONSES, Play, Server, server, whole
from support.gateway import CHAT, DEADLINE_S, MESSAGES
from support.http_client import http_client
from support.refusing_upstream import COMPLETION
from support.scripted_backend import serving
from support.upstreams import upstream

pytestmark = pytest.mark.asyncio

ANSWERS, FAILS = whole(200, COMPLETION), whole(503, '{"error": {"message": "loading"}}')
PREFIX = {"balance": "prefix"}


@contextlib.asynccontextmanager
async def replicated(
    *tables: dict[str, Any], play: Play = ANSWERS, aliases: dict[str, Any] | None = None
) -> AsyncIterator[tuple[httpx2.AsyncClient, dict[str, Server]]]:
    """A client of a gateway with the upstreams a and b, which both have the model m."""
    async with contextlib.AsyncExitStack() as stack:
        far = {name: await stack.enter_async_context(server(play)) for name in "ab"}
        rules = Routes(take_routes({"routes": list(tables)}, "file"))
        gateway = Gateway([upstream(name, far[name], "m") for name in far], aliases, rules=rules)
        _, url = await stack.enter_async_context(serving(gateway))
        yield await stack.enter_async_context(http_client(url)), far


def body(path: str, *turns: str, **more: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": text * 50} for number, text in enumerate(turns)]
    limit = {"max_tokens": 9} if path == MESSAGES else {}
    return {"model": "m", "input" if path == RESPONSES else "messages": messages, **limit, **more}


async def ask(client: httpx2.AsyncClient, path: str, *turns: str, **more: Any) -> httpx2.Response:
    answer = await client.post(path, json=body(path, *turns, **more))
    assert answer.status_code == 200, answer.text
    return answer


def who(answer: httpx2.Response) -> str:
    return answer.headers["x-dragoman-upstream"]


@pytest.mark.parametrize("path", FRONTS)
async def test_each_conversation_stays_at_one_of_the_replicas(path: str) -> None:
    turns = ["one ", "two ", "three ", "four ", "five "]
    at = defaultdict[int, set[str]](set)
    async with replicated(PREFIX) as (client, far):
        for count in (1, 3, 5):
            for agent in range(8):
                at[agent].add(who(await ask(client, path, f"{agent} ", *turns[: count - 1])))
    assert all(len(upstreams) == 1 for upstreams in at.values())
    assert {len(each.asked) for each in far.values()} == {12}


@pytest.mark.parametrize(
    ("rule", "aliases"),
    [
        ({"model": "x", "use": ["a/m", "b/m"]}, {}),
        ({"model": "x", "use": "m"}, {}),
        ({"use": "both"}, {"both": ["a/m", "b/m"]}),
        ({"model": "x"}, {"x": ["a/m", "b/m"]}),
    ],
)
async def test_replicas_are_models_of_the_rule_or_upstreams_of_the_requested_model(
    rule: dict[str, Any], aliases: dict[str, Any]
) -> None:
    async with replicated({**rule, **PREFIX}, aliases=aliases) as (client, _):
        found = Counter([who(await ask(client, CHAT, f"{n} ", model="x")) for n in range(8)])
    assert found == {"a": 4, "b": 4}


async def test_other_requests_are_not_placed() -> None:
    async with replicated({"model": "other-*", **PREFIX}) as (client, _):
        assert {who(await ask(client, CHAT, f"{n} ")) for n in range(8)} == {"a"}


async def test_response_is_continued_at_its_replica() -> None:
    async with replicated(PREFIX) as (client, _):
        first = [await ask(client, RESPONSES, f"{n} ", store=True) for n in range(8)]
        more = [await ask(client, RESPONSES, "go on", previous_response_id=each.json()["id"]) for each in first]
    assert list(map(who, first)) == list(map(who, more))


async def test_conversation_moves_from_a_replica_that_fails_and_stays() -> None:
    async with replicated(PREFIX) as (client, far):
        first = who(await ask(client, CHAT, "one "))
        other = "b" if first == "a" else "a"
        far[first].play = FAILS
        moved = [await ask(client, CHAT, "one ", "two ", "three ") for _ in range(3)]
        far[first].play = ANSWERS
        assert who(await ask(client, CHAT, "one ", "two ", "three ")) == other
    assert list(map(who, moved)) == [other] * 3
    assert [each.headers["x-dragoman-attempts"] for each in moved] == ["2", "1", "1"]


async def test_prefix_spreads_when_its_replica_is_busy() -> None:
    async def waits(far: Server, writer: asyncio.StreamWriter) -> None:
        await far.go.wait()
        await ANSWERS(far, writer)

    async with replicated(PREFIX) as (client, far):
        await ask(client, CHAT, "same ")
        for each in far.values():
            each.play = waits
        tasks = [asyncio.create_task(ask(client, CHAT, "same ")) for _ in range(20)]
        while sum(len(each.asked) for each in far.values()) < 21:
            await asyncio.sleep(0)
        for each in far.values():
            each.go.set()
        found = Counter(map(who, await asyncio.gather(*tasks)))
    assert found == {"a": 10, "b": 10}


async def test_reason_of_the_choice_is_counted() -> None:
    async with replicated(PREFIX) as (client, _):
        first = who(await ask(client, CHAT, "one "))
        await ask(client, CHAT, "one ", "two ", "three ")
        metrics = (await client.get("/metrics")).text
    for reason in ("new", "prefix"):
        assert f'dragoman_placements_total{{reason="{reason}",upstream="{first}"}} 1.0' in metrics


async def test_gateway_learns_what_another_placed_before_its_first_request() -> None:
    async with contextlib.AsyncExitStack() as stack:
        far = {name: await stack.enter_async_context(server(ANSWERS)) for name in "ab"}
        store, clients = MemoryStateStore(), []
        for _ in range(2):
            rules = Routes(take_routes({"routes": [PREFIX]}, "file"))
            gateway = Gateway([upstream(name, far[name], "m") for name in far], rules=rules)
            assert gateway.placer is not None
            gateway.placer.share(store)
            _, url = await stack.enter_async_context(serving(gateway))
            clients.append(await stack.enter_async_context(http_client(url)))
        position = store.read_log("prefixes").position
        first = [who(await ask(clients[0], CHAT, f"{n} ")) for n in range(16)]
        async with asyncio.timeout(DEADLINE_S):
            while sum(value.count(b"/m") for value in store.read_log("prefixes", position).values) < 16:
                await asyncio.sleep(0.01)
        second = [who(await ask(clients[1], CHAT, f"{n} ", "ok ", "more ")) for n in reversed(range(16))]
    assert second[::-1] == first


async def test_body_is_sent_unchanged() -> None:
    async with replicated(PREFIX) as (client, far):
        await ask(client, CHAT, "one ")
    sent = [json.loads(data) for each in far.values() for _, _, data in each.asked]
    assert [(each["model"], each["messages"]) for each in sent] == [("m", body(CHAT, "one ")["messages"])]
