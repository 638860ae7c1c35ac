"""Calls that worked become examples of the same API key, through the gateway and over all APIs."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from dragoman import compose, dialects
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.cli.models.examples import ExampleCounts, request_examples
from dragoman.cli.models.loaded import GatewayAddress
from dragoman.compose.reload import rebuild_gateway
from dragoman.config import Config
from dragoman.config.keys import KeyConfig
from dragoman.core.client import ClientFacts
from dragoman.core.errors import BackendUnavailableError, ConfigError
from dragoman.core.messages import Message, Request, Text, Tool, ToolCall, ToolResult
from dragoman.gateway.examples.config import ExamplesConfig
from dragoman.gateway.examples.memory import ExampleMemory
from dragoman.gateway.gateway import Gateway
from dragoman.prompting.example_calls import EXAMPLES_HEAD
from dragoman.redaction.redact import Redactor
from dragoman.server.keys.ring import KeyRing
from dragoman.state.memory_store import MemoryStateStore
from dragoman.state.sqlite_store import SqliteStateStore
from support.fake_upstream import Server, server
from support.scripted_backend import serving
from support.text_upstream import ARGUMENTS, PING, SCHEMA, WEATHER, writes

FRONTS = dialects.names()
ALICE = ClientFacts(key="alice")
FIRST = Request("m", (Message("user", (Text("Weather in Oslo?"),)),), (WEATHER, PING), max_tokens=100)
LATER = msgspec.structs.replace(FIRST, messages=(Message("user", (Text("And in Rome?"),)),))
EXAMPLE = '"city": "Paris"'


def after_call(
    first: Request = FIRST, arguments: str = ARGUMENTS, result: str = "sunny", tool: str = "get_weather"
) -> Request:
    """The second request of a conversation: with a call and its result."""
    call = Message("assistant", (ToolCall("call_1", tool, arguments),))
    answer = Message("tool", (ToolResult("call_1", (Text(result),)),))
    return msgspec.structs.replace(first, messages=(*first.messages, call, answer))


def memory(**settings: Any) -> ExampleMemory:
    config = ExamplesConfig(enabled=True, upstreams=("far",), **settings)
    return ExampleMemory(config, MemoryStateStore(), Redactor())


class Clients:
    """Clients of a gateway whose only upstream gets its tools in the prompt."""

    def __init__(self, url: str, upstream: Server, gateway: Gateway, http: httpx2.AsyncClient) -> None:
        self.url, self._upstream, self.gateway, self._http = url, upstream, gateway, http

    async def ask(self, request: Request, front: str = "openai_chat", key: str = "alice") -> str:
        """Returns the system text of the prompt that the upstream got."""
        dialect = dialects.get(front)
        body = dialect.write_request(request, request.model).body
        answer = await self._request("POST", dialect.path, key, body)
        assert answer.status_code == 200, answer.text
        first = json.loads(self._upstream.asked[-1][2])["messages"][0]
        assert first["role"] == "system"
        return str(first["content"])

    async def examples(self, method: str = "GET", key: str = "alice") -> dict[str, Any]:
        answer = await self._request(method, "/v1/examples", key)
        return {"status": answer.status_code, **answer.json()}

    async def _request(self, method: str, path: str, key: str, body: bytes | None = None) -> httpx2.Response:
        headers = {"authorization": f"Bearer the-secret-of-{key}", "content-type": "application/json"}
        return await self._http.request(method, self.url + path, content=body, headers=headers)


@asynccontextmanager
async def clients(learned: ExampleMemory | None, keys: KeyRing | None = None) -> AsyncIterator[Clients]:
    ring = keys or KeyRing({name: KeyConfig(secret=f"the-secret-of-{name}") for name in ("alice", "bob")}, ())
    async with server(writes("Fine.")) as upstream:
        settings = HttpConfig(url=f"{upstream.url}/v1", models=("m",), tool_mode="prompt")
        gateway = Gateway([HttpBackend("far", settings, {})])
        gateway.examples = learned
        async with serving(gateway, keys=ring) as (_, url), httpx2.AsyncClient() as http:
            yield Clients(url, upstream, gateway, http)


@pytest.mark.parametrize("front", FRONTS)
async def test_call_that_worked_is_an_example_in_later_conversations_only(front: str) -> None:
    async with clients(memory()) as it:
        begin = await it.ask(FIRST, front)
        assert EXAMPLES_HEAD not in begin
        assert await it.ask(after_call(), front) == begin, "the beginning of a conversation's prompt stays"
        later = await it.ask(LATER, front)
        assert later.startswith(begin)
        assert EXAMPLES_HEAD in later
        assert later.count(EXAMPLE) == 1
        assert await it.ask(after_call(), front) == begin
        assert await it.ask(after_call(LATER, '{"city": "Rome"}'), front) == later


@pytest.mark.parametrize(
    "keys", [None, KeyRing({}, ["the-secret-of-alice", "the-secret-of-bob"])], ids=["named", "unnamed"]
)
async def test_examples_of_one_key_never_reach_another(keys: KeyRing | None) -> None:
    async with clients(memory(), *([keys] if keys else [])) as it:
        begin = await it.ask(FIRST)
        await it.ask(after_call())
        assert await it.ask(LATER, key="bob") == begin
        assert (await it.examples(key="bob"))["examples"] == 0
        assert (await it.examples("DELETE", key="bob"))["examples"] == 0
        assert (await it.examples(key="alice"))["examples"] == 1
        assert EXAMPLE in await it.ask(LATER, key="alice")


async def test_gateway_without_keys_learns_examples() -> None:
    async with clients(memory(), KeyRing({})) as it:
        await it.ask(after_call())
        assert EXAMPLE in await it.ask(LATER)


async def test_without_the_setting_nothing_is_learned_and_the_path_reports_that() -> None:
    async with clients(None) as it:
        begin = await it.ask(FIRST)
        await it.ask(after_call())
        assert await it.ask(LATER) == begin
        answer = await it.examples()
        assert answer["status"] == 404
        assert "examples.enabled = false" in answer["error"]["message"]


async def test_deleted_examples_leave_the_prompts_of_running_conversations() -> None:
    async with clients(memory()) as it:
        begin = await it.ask(FIRST)
        await it.ask(after_call())
        assert EXAMPLE in await it.ask(LATER)
        counts = {"object": "examples", "tools": 1, "examples": 1, "chars": len(ARGUMENTS), "status": 200}
        assert await it.examples() == counts | {"deleted": False}
        assert await it.examples("DELETE") == counts | {"deleted": True}
        assert (await it.examples())["examples"] == 0
        assert await it.ask(LATER) == begin


async def test_command_counts_and_deletes_examples() -> None:
    async with clients(memory()) as it:
        await it.ask(after_call())
        address = GatewayAddress(it.url, "the-secret-of-alice")
        assert await request_examples(address, delete=False) == ExampleCounts(1, 1, len(ARGUMENTS))
        assert await request_examples(address, delete=True) == ExampleCounts(1, 1, len(ARGUMENTS))
        assert await request_examples(address, delete=False) == ExampleCounts(0, 0, 0)
        it.gateway.examples = None
        with pytest.raises(ConfigError, match=r"examples\.enabled = false - from the gateway at"):
            await request_examples(address, delete=False)


async def test_other_processes_get_the_examples_of_a_shared_store(tmp_path: Path) -> None:
    config = ExamplesConfig(enabled=True, upstreams=("far",))
    one, other = (
        ExampleMemory(config, SqliteStateStore(tmp_path / "state.sqlite", survives_power_loss=False), Redactor())
        for _ in range(2)
    )
    begin = await one.apply(FIRST, ALICE, "far")
    await one.apply(after_call(), ALICE, "far")
    later = await other.apply(LATER, ALICE, "far")
    assert [tool.examples for tool in later.tools] == [(ARGUMENTS,), ()]
    assert await one.apply(LATER, ALICE, "far") == later
    assert (await other.apply(after_call(), ALICE, "far")).tools == begin.tools == FIRST.tools


async def test_old_examples_are_not_used() -> None:
    now_s = [1000.0]
    config = ExamplesConfig(enabled=True, upstreams=("far",), ttl_s=60.0)
    learned = ExampleMemory(config, MemoryStateStore(), Redactor(), lambda: now_s[0])
    await learned.apply(after_call(), ALICE, "far")
    assert learned.usage(ALICE).count == 1
    now_s[0] += 61.0
    assert learned.usage(ALICE).count == 0
    assert (await learned.apply(LATER, ALICE, "far")).tools == LATER.tools


async def test_store_that_cannot_be_used_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStateStore()

    def fail(*_: object) -> None:
        raise BackendUnavailableError("the store is down")

    monkeypatch.setattr(store, "get_many", fail)
    learned = ExampleMemory(ExamplesConfig(enabled=True, upstreams=("far",)), store, Redactor())
    assert await learned.apply(after_call(), ALICE, "far") == after_call()


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (after_call(result="Error: no such city"), "the result is an error"),
        (after_call(arguments='{"days": 3}'), "the arguments do not match the schema"),
        (after_call(tool="other"), "the tool was not offered"),
        (after_call(arguments='{"city": "sk-live-0123456789abcdef0123"}'), "a value looks like a key"),
        (after_call(arguments='{"city": "Paris", "password": "x"}'), "a name is that of a secret"),
        (after_call(arguments='{"city": "Paris", "more": [{"api_key": 1}]}'), "an inner name is that of a secret"),
        (after_call(arguments=json.dumps({"city": "P" * 400})), "the arguments are too long"),
    ],
)
async def test_other_calls_are_not_stored(request_: Request, why: str) -> None:
    async with clients(memory()) as it:
        await it.ask(request_)
        assert (await it.examples())["examples"] == 0, why


async def test_tool_with_other_parameters_is_another_tool() -> None:
    async with clients(memory()) as it:
        await it.ask(after_call())
        other = Tool("get_weather", parameters=SCHEMA.replace("days", "hours"))
        assert EXAMPLE not in await it.ask(msgspec.structs.replace(LATER, tools=(other, PING)))


async def test_numbers_and_sizes_are_bounded() -> None:
    async with clients(memory(max_per_tool=2, max_prompt_chars=100, max_tools=2)) as it:
        for number in range(5):
            opening = msgspec.structs.replace(FIRST, messages=(Message("user", (Text(f"{number}"),)),))
            await it.ask(after_call(opening, json.dumps({"city": f"city {number} {'x' * 60}"})))
        counts = await it.examples()
        assert (counts["tools"], counts["examples"]) == (1, 2)
        prompt = await it.ask(LATER)
        assert "city 4" in prompt, "the latest examples stay"
        assert "city 3" not in prompt, "of both, one is within the limit of a prompt"
        for number in range(5):
            tool = Tool(f"tool{number}", parameters=SCHEMA)
            offering = msgspec.structs.replace(FIRST, tools=(tool,))
            await it.ask(after_call(offering, tool=tool.name))
        assert (await it.examples())["tools"] == 2


async def test_upstreams_that_are_not_named_get_no_examples() -> None:
    named = ExampleMemory(ExamplesConfig(enabled=True), MemoryStateStore(), Redactor())
    async with clients(named) as it:
        await it.ask(after_call())
        assert (await it.examples())["examples"] == 1
        assert EXAMPLE not in await it.ask(LATER)


async def test_reload_switches_examples(tmp_path: Path) -> None:
    off = Config(upstreams={"far": HttpConfig("http://127.0.0.1:9/v1", models=("m",))})
    on = msgspec.structs.replace(off, examples=ExamplesConfig(enabled=True, upstreams=("far",)))
    gateway = compose.build_gateway(off, embedded=False)
    assert gateway.examples is None
    second = rebuild_gateway(on, gateway, off)
    assert second.examples is not None
    assert rebuild_gateway(off, second, on).examples is None
