"""What the gateway tells of tokens where the backend tells nothing, a part, or all."""

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


def passed(*events: AnyEvent, early: bool = False) -> list[AnyEvent]:
    filler = UsageFiller(REQUEST, GENERIC, early=early)
    return [out for event in events for out in filler.feed(event)]


def start(tokens: int = 0) -> Start:
    return Start("1", "m", 7, tokens)


def usages(events: list[AnyEvent]) -> list[v.Usage]:
    return [e.usage for e in events if isinstance(e, UsageUpdate)]


def codes(events: list[AnyEvent]) -> list[str]:
    return [e.code for e in events if isinstance(e, Notice)]


@pytest.mark.parametrize("early", [False, True])
def test_what_is_told_is_passed_on_as_it_is(early: bool) -> None:
    events = [start(31), TextDelta(SAID), UsageUpdate(v.Usage(31, 3)), UsageUpdate(USAGE), Finish("stop")]
    assert passed(*events, early=early) == events


def test_the_beginning_has_an_estimate_where_it_is_looked_for() -> None:
    told = [TextDelta(SAID), UsageUpdate(USAGE), Finish("stop")]
    assert passed(start(), *told) == [start(), *told]
    assert passed(start(), *told, early=True) == [start(PROMPT), *told]
    assert passed(start(31), *told, early=True) == [start(31), *told]


@pytest.mark.parametrize("early", [False, True])
def test_nothing_told_is_estimated_at_the_end(early: bool) -> None:
    events = passed(start(), TextDelta(SAID[:20]), TextDelta(SAID[20:]), Finish("stop"), early=early)
    assert usages(events) == [v.Usage(PROMPT, GENERIC.estimate(SAID))]
    assert codes(events) == ["estimated_usage"]
    assert isinstance(events[-1], Finish)


def test_a_prompt_that_was_counted_is_not_estimated() -> None:
    events = passed(start(31), TextDelta(SAID), Finish("stop"), early=True)
    assert events[0] == start(31)
    assert usages(events) == [v.Usage(31, GENERIC.estimate(SAID))]
    assert codes(events) == ["estimated_usage"]


def test_a_server_that_tells_of_its_answer_alone() -> None:
    """Some stream only what they have written so far."""
    counted = passed(start(31), UsageUpdate(v.Usage(0, 3)), UsageUpdate(v.Usage(0, 7)), Finish("stop"))
    assert usages(counted) == [v.Usage(31, 3), v.Usage(31, 7)]
    assert codes(counted) == []
    unknown = passed(start(), UsageUpdate(v.Usage(0, 7)), Finish("stop"), early=True)
    assert usages(unknown) == [v.Usage(0, 7), v.Usage(PROMPT, 7)]
    assert codes(unknown) == ["estimated_usage"]


def test_thoughts_and_calls_are_tokens_too() -> None:
    call = [ToolCallStart(0, "1", "look"), ToolCallDelta(0, '{"at": "'), ToolCallDelta(0, SAID + '"}'), ToolCallEnd(0)]
    events = passed(start(), ReasoningDelta(SAID), *call, Finish("tool_calls"))
    (usage,) = usages(events)
    assert 2 * GENERIC.estimate(SAID) < usage.output_tokens < 2 * GENERIC.estimate(SAID) + 15


def test_a_failure_has_no_usage() -> None:
    events = [start(), TextDelta(SAID), Failure(BackendUnavailableError("gone"))]
    assert passed(*events) == events


def test_what_is_collected_counts_nothing_twice() -> None:
    collector = Collector()
    for event in passed(start(), TextDelta(SAID), UsageUpdate(USAGE), Finish("stop"), early=True):
        collector.feed(event)
    assert collector.reply().usage == USAGE


# Over HTTP


async def telling_nothing(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield TextDelta(SAID)
    yield Finish("stop")


async def telling_at_the_end(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield TextDelta(SAID)
    yield UsageUpdate(v.Usage(31, 7))
    yield Finish("stop")


async def telling_at_once(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0, 31)
    yield TextDelta(SAID)
    yield UsageUpdate(v.Usage(31, 7))
    yield Finish("stop")


@pytest.mark.parametrize(
    ("script", "first", "last"),
    [(telling_nothing, "estimate", "estimate"), (telling_at_the_end, "estimate", 31), (telling_at_once, 31, 31)],
)
async def test_a_message_begins_with_the_size_of_its_prompt(script: Script, first: object, last: object) -> None:
    """Claude Code reads it there alone."""
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
    assert final.usage.output_tokens == (GENERIC.estimate(SAID) if script is telling_nothing else 7)


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_a_whole_reply_says_that_its_usage_is_estimated(path: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dragoman.access")
    async with served(telling_nothing) as s, s.client() as client:
        answer = await client.post(path, json=body(stream=False))
    usage = answer.json()["usage"]
    tokens = usage.get("prompt_tokens", usage.get("input_tokens"))
    assert 5 < tokens < 20
    assert answer.headers["x-dragoman-warnings"] == "estimated_usage"
    facts = msgspec.json.decode(next(r.message for r in caplog.records if r.name == "dragoman.access"))
    assert (facts["input_tokens"], facts["warnings"]) == (tokens, ["estimated_usage"])


async def test_a_stream_of_chat_completions_tells_its_usage_too() -> None:
    async with served(telling_nothing) as s, s.client() as client:
        answer = await client.post(CHAT, json={**body(), "stream_options": {"include_usage": True}})
    usage = json.loads(answer.text.split("\n\n")[-3].removeprefix("data: "))["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["completion_tokens"] == GENERIC.estimate(SAID)
