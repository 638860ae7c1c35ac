"""Stored responses of replicas that share Redis, which is killed or frozen meanwhile.

clients ─HTTP→ 2 × Gateway ─→ Debian's redis-server
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dragoman.core import messages as v
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.storage.response_store import ResponseStore
from dragoman.state.redis_store import RedisStateStore
from support import redis_server
from support.gateway import DEADLINE_S
from support.scripted_backend import Scripted, serving

pytestmark = pytest.mark.skipif(redis_server.PROGRAM is None, reason="redis-server is not installed")
STREAMS = 30
PATHS = {"openai_chat": "/v1/chat/completions", "anthropic_messages": "/v1/messages"}


async def echo(backend: Scripted, request: v.Request) -> AsyncIterator[AnyEvent]:
    """Returns the texts of the user."""
    yield Start("", "", 0)
    texts = [part.text for m in request.messages if m.role == "user" for part in m.parts if isinstance(part, v.Text)]
    yield TextDelta("+".join(texts))
    yield Finish("stop")


class Replica:
    def __init__(self, gateway: Gateway, client: httpx2.AsyncClient) -> None:
        self.gateway, self._client = gateway, client

    async def post(self, path: str, **fields: object) -> httpx2.Response:
        return await self._client.post(path, json={"model": "m", **fields})

    async def ask(self, text: str, before: str | None = None, **fields: object) -> httpx2.Response:
        return await self.post("/v1/responses", input=text, previous_response_id=before, **fields)

    async def ask_again(self, text: str, before: str) -> httpx2.Response:
        """Retries until the replica uses the store again."""
        end = time.monotonic() + DEADLINE_S
        while (response := await self.ask(text, before)).status_code == 503:
            assert time.monotonic() < end
            await asyncio.sleep(0.05)
        return response

    async def delete(self, id: str) -> int:
        return (await self._client.delete(f"/v1/responses/{id}")).status_code

    @property
    def waiting(self) -> int:
        outbox = self.gateway.response_store.outbox
        assert outbox is not None
        return len(outbox)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[redis_server.RedisServer]:
    with redis_server.running("--dir", str(tmp_path), "--appendonly", "yes", "--appendfsync", "no") as server:
        yield server


@pytest.fixture
async def replicas(redis: redis_server.RedisServer) -> AsyncIterator[list[Replica]]:
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(2):
            gateway = Gateway([Scripted(echo)], response_store=ResponseStore(RedisStateStore(redis.url)))
            _, url = await stack.enter_async_context(serving(gateway))
            client = httpx2.AsyncClient(base_url=url, timeout=DEADLINE_S)
            made.append(Replica(gateway, await stack.enter_async_context(client)))
        yield made


def text_of(response: httpx2.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()["output"][0]["content"][0]["text"]


async def until_stored(replica: Replica) -> None:
    end = time.monotonic() + DEADLINE_S
    while replica.waiting:
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


async def test_any_replica_continues_a_response(replicas: list[Replica]) -> None:
    id, texts = None, []
    for turn in range(40):
        response = await replicas[turn % 2].ask(str(turn), id)
        texts.append(str(turn))
        assert text_of(response) == "+".join(texts)
        id = response.json()["id"]
    assert await replicas[0].delete(id) == 200
    refused = await replicas[1].ask("more", id)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "previous_response_not_found")


async def test_outage_delays_the_storing_of_responses(
    replicas: list[Replica], redis: redis_server.RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = replicas
    stored = (await one.ask("stored")).json()["id"]
    redis.kill()
    first = (await one.ask("one")).json()["id"]
    second = await one.ask("two", first)
    assert text_of(second) == "one+two", "this replica has it"
    refused = await two.ask("more", stored)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert refused.json()["error"]["type"] == "server_error"
    assert (await two.delete(stored)) == 503
    for name, path in PATHS.items():
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
        assert (await two.post(path, **body)).status_code == 200, name
    assert (await two.ask("no state", store=False)).status_code == 200
    assert one.waiting == 2
    redis.start()
    await until_stored(one)
    assert text_of(await two.ask_again("three", second.json()["id"])) == "one+two+three"
    assert text_of(await two.ask_again("more", stored)) == "stored+more"
    texts = [record.getMessage() for record in caplog.records if record.name.startswith("dragoman.gateway.storage")]
    assert len(texts) == 2
    assert "responses stay in memory until they can be stored" in texts[0]
    assert texts[1] == "all responses are stored again"


async def test_frozen_server_does_not_delay_streams(replicas: list[Replica], redis: redis_server.RedisServer) -> None:
    one, two = replicas
    await one.ask("first")
    redis.freeze()
    began_s = time.monotonic()
    streams = await asyncio.gather(*(one.ask(f"stream {number}", stream=True) for number in range(STREAMS)))
    assert time.monotonic() - began_s < 5, "they wait together for one time limit, not one after the other"
    assert all("event: response.completed" in stream.text for stream in streams)
    began_s = time.monotonic()
    later = [await one.ask(f"later {number}") for number in range(10)]
    assert time.monotonic() - began_s < 5, "a store that has failed is not waited for"
    assert one.waiting == STREAMS + len(later)
    redis.unfreeze()
    await until_stored(one)
    for response in later:
        assert text_of(await two.ask_again("more", response.json()["id"])).endswith("+more")
