"""Clients never get a call whose arguments are not JSON: by each API, with each buffering mode, streamed or not."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from dragoman import dialects
from dragoman.api.engine_session import EngineSession
from dragoman.core import messages as v
from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import BackendUnavailableError
from dragoman.core.events import (
    AnyEvent,
    Failure,
    Finish,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallIncomplete,
    ToolCallStart,
)
from dragoman.gateway.gateway import Gateway
from dragoman.guard.policy import BUFFERING_MODES, Buffering, GuardPolicy
from support.events import all_events
from support.scripted_backend import Scripted

INCOMPLETE = '{"city": "Paris", "days": tru'
LONG = '{"city": "' + "x" * 5000
TOOL = v.Tool("get_weather", "", '{"type": "object"}')
APIS = dialects.names()


def script(arguments: str, reason: v.FinishReason) -> Any:
    async def ask(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        yield Start("1", "m", 7)
        yield TextDelta("So.")
        yield ToolCallStart(0, "call_0", "get_weather")
        for at in range(0, len(arguments), 1000):
            yield ToolCallDelta(0, arguments[at : at + 1000])
        yield ToolCallIncomplete(0, arguments)
        yield Finish(reason)

    return ask


async def guarded(arguments: str, policy: GuardPolicy, *, stream: bool, reason: v.FinishReason) -> list[AnyEvent]:
    message = v.Message("user", (v.Text("Weather?"),))
    request = v.Request("m", (message,), (TOOL,), stream=stream)
    gateway = Gateway([Scripted(script(arguments, reason))], policy=policy)
    return await all_events(gateway.generate(request, ExchangeContext("1", 7, lambda: "new")))


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("buffering", BUFFERING_MODES)
@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("reason", ["stop", "length"])
async def test_incomplete_call_becomes_text_or_error(
    api: str, stream: bool, buffering: Buffering, enabled: bool, reason: v.FinishReason
) -> None:
    for arguments in (INCOMPLETE, LONG):
        policy = GuardPolicy(buffering=buffering, enabled=enabled, reask=False)
        events = await guarded(arguments, policy, stream=stream, reason=reason)
        flows = stream and (buffering == "off" or (len(arguments) > 4096 and buffering != "all"))
        began = any(isinstance(event, ToolCallStart) for event in events)
        last = events[-1]
        if began:
            assert isinstance(last, Failure)
            assert flows
            written = b"".join(map(dialects.get(api).writer(v.Request("m", ())).feed, events))
            assert b"error" in written.split(b"\n\n")[-2] + written.split(b"\n\n")[-3]
        else:
            assert isinstance(last, Finish)
            assert last.reason == reason
            assert arguments in "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [True, False])
def test_engine_session_emits_no_incomplete_call(api: str, stream: bool) -> None:
    message = v.Message("user", (v.Text("Weather?"),))
    request = v.Request("m", (message,), (TOOL,), stream=stream, dialect=api)
    answer = EngineSession(request, "hermes", created=7, api=api)
    text = '<tool_call>\n{"name": "get_weather", "arguments": {"city": tru}}\n</tool_call>'
    answer.feed(text)
    answer.close()
    assert [type(part) for part in answer.reply.parts] == [v.Text]
    assert answer.reply.finish_reason == "stop"
    assert "incomplete_call" in {warning.code for warning in answer.warnings}


async def test_upstream_failure_within_call_emits_no_call() -> None:
    async def ask(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        yield Start("1", "m", 7)
        yield ToolCallStart(0, "call_0", "get_weather")
        yield ToolCallDelta(0, '{"city"')
        yield Failure(BackendUnavailableError("gone"))

    request = v.Request("m", (v.Message("user", (v.Text("Weather?"),)),), (TOOL,), stream=True)
    for enabled in (True, False):
        gateway = Gateway([Scripted(ask)], policy=GuardPolicy(enabled=enabled))
        events = await all_events(gateway.generate(request, ExchangeContext("1", 7, lambda: "new")))
        assert not any(isinstance(event, ToolCallStart) for event in events)


def test_arguments_of_repaired_call_are_json() -> None:
    message = v.Message("user", (v.Text("Weather?"),))
    answer = EngineSession(v.Request("m", (message,), (TOOL,), dialect="openai_chat"), "hermes", created=7)
    answer.feed('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"\n</tool_call>')
    body = json.loads(answer.close())
    (call,) = body["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris"}
    assert body["choices"][0]["finish_reason"] == "tool_calls"
