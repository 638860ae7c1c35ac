"""Token usage that the gateway reports if the backend reports none, a part, or all of it."""

import json
from collections.abc import AsyncGenerator

import anthropic
import msgspec
import pytest

from dragoman.core import messages as v
from dragoman.core.collect import Collector
from dragoman.core.errors import BackendUnavailableError
from dragoman.core.events import (
    AnyEvent,
    Failure,
    Finish,
    Notice,
    ReasoningDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageUpdate,
)
from dragoman.core.token_estimate import GENERIC
from dragoman.gateway.usage import UsageFiller
from support.gateway import CHAT, DEADLINE_S, MESSAGES
from support.scripted_backend import Script, Scripted, body, served

REQUEST = v.Request("m", (v.Message("user", (v.Text("The sea is large. " * 20),)),))
PROMPT = GENERIC.estimate_request(REQUEST)
SAID = "Some words of an answer, and then some more of them."
USAGE = v.Usage(31, 7, 4)


def fill_usage(*events: AnyEvent, early: bool = False) -> list[AnyEvent]:
    filler = UsageFiller(REQUEST, GENERIC, early=early)
    return [out for event in events for out in filler.feed([event])]


def start(tokens: int = 0) -> Start:
    return Start("1", "m", 7, tokens)


def usages(events: list[AnyEvent]) -> list[v.Usage]:
    return [e.usage for e in events if isinstance(e, UsageUpdate)]


def codes(events: list[AnyEvent]) -> list[str]:
    return [e.code for e in events if isinstance(e, Notice)]


@pytest.mark.parametrize("early", [False, True])
def test_reported_usage_is_unchanged(early: bool) -> None:
    events = [start(31), TextDelta(SAID), UsageUpdate(v.Usage(31, 3)), UsageUpdate(USAGE), Finish("stop")]
    assert fill_usage(*events, early=early) == events


def test_start_event_has_estimated_prompt_size_if_early() -> None:
    told = [TextDelta(SAID), UsageUpdate(USAGE), Finish("stop")]
    assert fill_usage(start(), *told) == [start(), *told]
    assert fill_usage(start(), *told, early=True) == [start(PROMPT), *told]
    assert fill_usage(start(31), *told, early=True) == [start(31), *told]


@pytest.mark.parametrize("early", [False, True])
def test_missing_usage_is_estimated_at_end(early: bool) -> None:
    events = fill_usage(start(), TextDelta(SAID[:20]), TextDelta(SAID[20:]), Finish("stop"), early=early)
    assert usages(events) == [v.Usage(PROMPT, GENERIC.estimate(SAID))]
    assert codes(events) == ["estimated_usage"]
    assert isinstance(events[-1], Finish)


def test_reported_prompt_size_is_not_estimated() -> None:
    events = fill_usage(start(31), TextDelta(SAID), Finish("stop"), early=True)
    assert events[0] == start(31)
    assert usages(events) == [v.Usage(31, GENERIC.estimate(SAID))]
    assert codes(events) == ["estimated_usage"]


def test_output_only_usage_is_completed_with_prompt_size() -> None:
    """Some servers stream only the number of output tokens so far."""
    counted = fill_usage(start(31), UsageUpdate(v.Usage(0, 3)), UsageUpdate(v.Usage(0, 7)), Finish("stop"))
    assert usages(counted) == [v.Usage(31, 3), v.Usage(31, 7)]
    assert codes(counted) == []
    unknown = fill_usage(start(), UsageUpdate(v.Usage(0, 7)), Finish("stop"), early=True)
    assert usages(unknown) == [v.Usage(0, 7), v.Usage(PROMPT, 7)]
    assert codes(unknown) == ["estimated_usage"]


def test_reasoning_and_calls_count_as_output_tokens() -> None:
    call = [ToolCallStart(0, "1", "look"), ToolCallDelta(0, '{"at": "'), ToolCallDelta(0, SAID + '"}'), ToolCallEnd(0)]
    events = fill_usage(start(), ReasoningDelta(SAID), *call, Finish("tool_calls"))
    (usage,) = usages(events)
    assert 2 * GENERIC.estimate(SAID) < usage.output_tokens < 2 * GENERIC.estimate(SAID) + 15


def test_a_failure_has_no_usage() -> None:
    events = [start(), TextDelta(SAID), Failure(BackendUnavailableError("gone"))]
    assert fill_usage(*events) == events


def test_collected_usage_is_not_counted_twice() -> None:
    collector = Collector()
    for event in fill_usage(start(), TextDelta(SAID), UsageUpdate(USAGE), Finish("stop"), early=True):
        collector.feed(event)
    assert collector.reply().usage == USAGE


# Over HTTP


async def reports_no_usage(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield TextDelta(SAID)
    yield Finish("stop")


async def reports_usage_at_end(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield TextDelta(SAID)
    yield UsageUpdate(v.Usage(31, 7))
    yield Finish("stop")


async def reports_prompt_size_at_start(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0, 31)
    yield TextDelta(SAID)
    yield UsageUpdate(v.Usage(31, 7))
    yield Finish("stop")


@pytest.mark.parametrize(
    ("script", "first", "last"),
    [
        (reports_no_usage, "estimate", "estimate"),
        (reports_usage_at_end, "estimate", 31),
        (reports_prompt_size_at_start, 31, 31),
    ],
)
async def test_message_start_contains_prompt_size(script: Script, first: object, last: object) -> None:
    """Claude Code reads the prompt size only from `message_start`."""
    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "The sea is large. " * 20}]}
    async with (
        served(script) as s,
        anthropic.AsyncAnthropic(api_key="k", base_url=s.url, max_retries=0, timeout=DEADLINE_S) as sdk,
    ):
        counts = []
        async with sdk.messages.stream(**asked) as events:  # type: ignore[arg-type]
            async for event in events:
                if event.type == "message_start":
                    counts.append(event.message.usage.input_tokens)
            final = await events.get_final_message()
    counts.append(final.usage.input_tokens)
    assert [c if c == 31 else "estimate" for c in counts] == [first, last]
    assert all(c == 31 or abs(c - PROMPT) < 3 for c in counts)
    assert final.usage.output_tokens == (GENERIC.estimate(SAID) if script is reports_no_usage else 7)


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_complete_response_reports_estimated_usage(path: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dragoman.access")
    async with served(reports_no_usage) as s, s.client() as client:
        answer = await client.post(path, json=body(stream=False))
    usage = answer.json()["usage"]
    tokens = usage.get("prompt_tokens", usage.get("input_tokens"))
    assert 5 < tokens < 20
    assert answer.headers["x-dragoman-warnings"] == "estimated_usage"
    facts = msgspec.json.decode(next(r.message for r in caplog.records if r.name == "dragoman.access"))
    assert (facts["input_tokens"], facts["warnings"]) == (tokens, ["estimated_usage"])


async def test_chat_completions_stream_contains_estimated_usage() -> None:
    async with served(reports_no_usage) as s, s.client() as client:
        answer = await client.post(CHAT, json={**body(), "stream_options": {"include_usage": True}})
    usage = json.loads(answer.text.split("\n\n")[-3].removeprefix("data: "))["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["completion_tokens"] == GENERIC.estimate(SAID)
