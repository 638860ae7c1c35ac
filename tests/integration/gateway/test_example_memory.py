"""Whose examples are stored, how long, and what a conversation keeps of them."""

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import pytest

from dragoman.backends.http.config import HttpConfig
from dragoman.compose.examples import remember_examples
from dragoman.config import Config
from dragoman.config.keys import KeyConfig
from dragoman.core.client import ClientFacts
from dragoman.core.messages import Message, Request, Text, Tool, ToolCall, ToolResult
from dragoman.gateway.examples.config import ExamplesConfig
from dragoman.gateway.examples.memory import ExampleMemory
from dragoman.gateway.gateway import Gateway
from dragoman.guard import verdict
from dragoman.redaction.redact import Redactor
from dragoman.state.memory_store import MemoryStateStore
from dragoman.state.store import StateKind
from support.gateway import DEADLINE_S
from support.text_upstream import SCHEMA, WEATHER

T = TypeVar("T")
ALICE, BOB = ClientFacts(key="alice"), ClientFacts(key="bob")
WIND = Tool("get_wind", parameters=SCHEMA)


def opening(text: str, *tools: Tool) -> Request:
    """The first request of a conversation."""
    return Request("m", (Message("user", (Text(text),)),), tools or (WEATHER,), max_tokens=100)


def worked(first: Request, *cities: str) -> Request:
    """The second request of a conversation: with calls of its first tool, and their results."""
    calls = tuple(
        ToolCall(f"call_{number}", first.tools[0].name, json.dumps({"city": city}))
        for number, city in enumerate(cities)
    )
    results = tuple(ToolResult(call.id, (Text("sunny"),)) for call in calls)
    return msgspec.structs.replace(
        first, messages=(*first.messages, Message("assistant", calls), Message("tool", results))
    )


class Learning:
    """Examples with a clock that the test moves."""

    def __init__(self, store: MemoryStateStore | None = None, **settings: Any) -> None:
        self.now_s = 1_000_000.0
        self.threads: list[int] = []
        self.store = store or MemoryStateStore()
        config = ExamplesConfig(enabled=True, upstreams=("far",), **settings)
        self.memory = ExampleMemory(config, self.store, Redactor(), self._now_s)

    def _now_s(self) -> float:
        self.threads.append(threading.get_ident())
        return self.now_s

    async def ask(self, request: Request, client: ClientFacts = ALICE, is_large: bool = False) -> list[str]:
        """Returns the cities of the examples in the prompt."""
        self.now_s += 1.0
        prompt = await self.memory.apply(request, client, "far", is_large=is_large)
        return [json.loads(text)["city"] for tool in prompt.tools for text in tool.examples]


async def test_later_examples_replace_the_oldest_in_new_conversations_only() -> None:
    it = Learning(max_per_tool=1)
    await it.ask(worked(opening("one"), "forged"))
    assert await it.ask(opening("two")) == ["forged"]
    await it.ask(worked(opening("three"), "Rome"))
    assert await it.ask(opening("four")) == ["Rome"]
    assert await it.ask(worked(opening("two"), "Oslo")) == ["forged"]


async def test_conversation_keeps_examples_that_other_tools_displace() -> None:
    it = Learning(max_tools=1)
    await it.ask(worked(opening("one"), "Rome"))
    assert await it.ask(opening("two")) == ["Rome"]
    await it.ask(worked(opening("three", WIND), "Oslo"))
    assert await it.ask(worked(opening("two"), "Paris")) == ["Rome"]


async def test_conversation_keeps_examples_that_are_too_old_for_a_new_one() -> None:
    it = Learning(ttl_s=60.0)
    await it.ask(worked(opening("one"), "Rome"))
    it.now_s += 50.0
    assert await it.ask(opening("two")) == ["Rome"]
    it.now_s += 20.0
    await it.ask(worked(opening("three"), "Oslo"))
    assert await it.ask(worked(opening("two"), "Paris")) == ["Rome"]
    assert await it.ask(opening("four")) == ["Oslo", "Paris"]


async def test_conversation_with_the_text_of_an_earlier_one_gets_later_examples() -> None:
    it = Learning(ttl_s=60.0)
    same = opening("The report of today.")
    assert await it.ask(same) == []
    assert await it.ask(worked(same, "Rome")) == []
    assert await it.ask(same) == ["Rome"]
    await it.ask(worked(opening("other"), "Oslo"))
    assert await it.ask(same) == ["Rome"], "a conversation that still runs may have this text"
    it.now_s += 57.0
    assert await it.ask(same) == ["Oslo"]


async def test_deletion_holds_for_running_conversations_and_for_later_examples_not() -> None:
    it = Learning()
    await it.ask(worked(opening("one"), "Rome"))
    assert await it.ask(opening("two")) == ["Rome"]
    assert it.memory.delete(ALICE).count == 1
    assert await it.ask(worked(opening("two"), "Oslo")) == []
    assert await it.ask(opening("three")) == ["Oslo"]


async def test_example_that_another_process_stores_after_its_deletion_is_not_used() -> None:
    store = Hooked()
    it, other = Learning(store), Learning(store)
    await it.ask(worked(opening("one"), "Rome"))
    store.before_put = lambda: other.memory.delete(ALICE)
    other.now_s = it.now_s + 10.0
    await it.ask(worked(opening("two"), "Oslo"))
    assert it.memory.usage(ALICE).count == other.memory.usage(ALICE).count == 0
    it.now_s += 20.0
    assert await it.ask(opening("three")) == []
    await it.ask(worked(opening("four"), "Paris"))
    assert await it.ask(opening("five")) == ["Paris"]


async def test_slow_store_delays_no_other_key() -> None:
    store = Hooked()
    it, go, waiting = Learning(store), threading.Event(), threading.Event()

    def wait() -> None:
        waiting.set()
        go.wait(DEADLINE_S)

    store.before_put = wait
    try:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(it.memory.learn, worked(opening("one"), "Rome"), ALICE))
            await asyncio.to_thread(waiting.wait, DEADLINE_S)
            await asyncio.to_thread(it.memory.learn, worked(opening("one"), "Oslo"), BOB)
            await asyncio.to_thread(it.memory.learn, worked(opening("one"), "Paris"), ALICE)
            assert it.memory.usage(BOB).count == 1
            go.set()
    finally:
        go.set()
    assert it.memory.usage(ALICE).count == 1, "a key that is just stored learns from a later call"


async def test_large_requests_do_not_block_the_event_loop() -> None:
    it = Learning()
    await it.ask(worked(opening("one"), "Rome"))
    assert set(it.threads) == {threading.get_ident()}
    it.threads.clear()
    assert await it.ask(opening("two"), is_large=True) == ["Rome"]
    assert threading.get_ident() not in it.threads


async def test_calls_that_are_not_stored_are_not_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []
    judge = verdict.judge_call

    def count(tool: Tool, text: str, enabled: Sequence[str]) -> verdict.Verdict:
        judged.append(text)
        return judge(tool, text, enabled)

    monkeypatch.setattr(verdict, "judge_call", count)
    it = Learning(max_per_tool=2, max_chars=100)
    await it.ask(worked(opening("one"), "P" * 100, "Rome", "Oslo", "Paris"))
    assert [json.loads(text)["city"] for text in judged] == ["Rome", "Oslo"]
    assert it.memory.usage(ALICE).count == 2


async def test_secrets_of_named_keys_and_of_the_environment_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = ["a long plain sentence", "another plain sentence", "words of a variable"]
    monkeypatch.setenv("OWN_GATEWAY_VALUE", secrets[1])
    monkeypatch.setenv("WEATHER_API_KEY", secrets[2])
    config = Config(
        upstreams={"far": HttpConfig("http://127.0.0.1:9/v1", models=("m",))},
        keys={"alice": KeyConfig(secret=secrets[0]), "bob": KeyConfig(secret_env="OWN_GATEWAY_VALUE")},
        examples=ExamplesConfig(enabled=True),
    )
    gateway = Gateway([])
    remember_examples(gateway, config, None)
    assert gateway.examples is not None
    owner = ClientFacts(key="owner-of-secrets")
    gateway.examples.delete(owner)
    for secret in secrets:
        gateway.examples.learn(worked(opening("one"), secret), owner)
        assert gateway.examples.usage(owner).count == 0
    gateway.examples.learn(worked(opening("one"), "Rome"), owner)
    assert gateway.examples.usage(owner).count == 1


class Hooked(MemoryStateStore):
    """A store that first calls a function, once, when examples are stored."""

    before_put: Callable[[], object] | None = None

    def put(self, kind: StateKind[T], key: str, value: T, size_bytes: int, then_used: Sequence[str] = ()) -> None:
        hook, self.before_put = (self.before_put, None) if kind.name == "examples" else (None, self.before_put)
        if hook is not None:
            hook()
        super().put(kind, key, value, size_bytes, then_used)
