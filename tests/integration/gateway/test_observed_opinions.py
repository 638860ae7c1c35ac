"""Hooks decide about the calls of second opinions, and spans record who was asked."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dragoman.core.messages import Request, ToolCall
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.hooks.hook import Hook
from dragoman.gateway.hooks.hook_runner import HookRunner
from dragoman.gateway.hooks.hooked_gateway import HookedGateway
from dragoman.guard.policy import GuardPolicy
from dragoman.tracing.exchange import Tracing
from support.fake_upstream import Play, Server, server, whole
from support.scripted_backend import serving
from support.text_upstream import ask, writes
from support.upstreams import upstream

pytestmark = pytest.mark.asyncio


def call(city: Any) -> str:
    return f'<tool_call>\n{{"name": "get_weather", "arguments": {json.dumps({"city": city})}}}\n</tool_call>'


INVALID, PARIS, ROME = call({"name": "?"}), call("Paris"), call("Rome")
FAILS = whole(503, '{"error": {"message": "loading"}}')


def in_turn(*texts: str) -> Play:
    async def play(far: Server, writer: Any) -> None:
        await writes(texts[len(far.asked) - 1])(far, writer)

    return play


@asynccontextmanager
async def two_models(a: Play, b: Play, policy: GuardPolicy, *hooks: Hook, **more: Any) -> AsyncIterator[str]:
    text_mode = {"tool_mode": "prompt", "call_format": "hermes"}
    async with AsyncExitStack() as stack:
        far = [await stack.enter_async_context(server(play)) for play in (a, b)]
        backends = [upstream("a", far[0], "m", **text_mode), upstream("b", far[1], "big", **text_mode)]
        runner = HookRunner(hooks, 5, fail_closed=True)
        gateway = HookedGateway(runner, backends, policy=policy) if hooks else Gateway(backends, policy=policy)
        yield (await stack.enter_async_context(serving(gateway, **more)))[1]


def no_paris(call: ToolCall, request: Request) -> str:
    return "not Paris" if "Paris" in call.arguments else ""


@pytest.mark.parametrize(("second", "cities"), [(ROME, ["Rome"]), (PARIS, [])])
async def test_hook_decides_about_calls_of_the_other_model(second: str, cities: list[str]) -> None:
    hook = Hook("no_paris", {"on_tool_call": no_paris})
    async with two_models(in_turn(INVALID), in_turn(second), GuardPolicy(second_opinion="big"), hook) as url:
        answer = await ask(url, "openai_chat")
    assert [arguments["city"] for _, arguments in answer.calls] == cities
    assert "second_opinion" in answer.warnings


async def test_refused_calls_of_samples_have_no_vote() -> None:
    hook = Hook("no_paris", {"on_tool_call": no_paris})
    texts = in_turn(INVALID, PARIS, ROME, PARIS)
    async with two_models(texts, FAILS, GuardPolicy(samples=3), hook) as url:
        answer = await ask(url, "openai_chat")
    assert [arguments["city"] for _, arguments in answer.calls] == ["Rome"]
    assert "samples_disagreed" in answer.warnings


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.parametrize(
    ("first", "second", "policy", "asked"),
    [
        ((INVALID,), in_turn(PARIS), GuardPolicy(second_opinion="big"), [("a", 1), ("b", 2)]),
        ((INVALID, PARIS), FAILS, GuardPolicy(second_opinion="big"), [("a", 1), ("b", 2), ("a", 3)]),
        ((INVALID, PARIS, INVALID, PARIS), FAILS, GuardPolicy(samples=3), [("a", number) for number in range(1, 5)]),
    ],
)
async def test_each_request_has_its_own_span(
    first: tuple[str, ...], second: Play, policy: GuardPolicy, asked: list[tuple[str, int]]
) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(provider.get_tracer("dragoman"))
    async with two_models(in_turn(*first), second, policy, tracing=tracing) as url:
        assert (await ask(url, "openai_chat")).calls
    spans = [attributes(each) for each in exporter.get_finished_spans()]
    attempts = [each for each in spans if "dragoman.attempt" in each]
    assert [(each["dragoman.upstream"], each["dragoman.attempt"]) for each in attempts] == asked
    (root,) = (each for each in spans if "dragoman.attempts" in each)
    assert (root["dragoman.upstream"], root["dragoman.attempts"]) == asked[-1]
