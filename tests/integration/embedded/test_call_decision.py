"""Whether to call at all: the question before the response, and what it changes."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from dragoman.backends.concurrency_limit import ConcurrencyLimiter
from dragoman.backends.embedded.admitted_request import HeldSlot
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.engine_output import Done, Output, Progress, TokenProbabilities, TokenText
from dragoman.core import events as ev
from dragoman.core import messages as v
from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import QueueFullError, UpstreamError
from support.events import all_events
from support.scripted_llama import PROFILE, backend

pytestmark = [pytest.mark.model, pytest.mark.asyncio(loop_scope="module")]

SCHEMA = '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}'
WEATHER = v.Tool("get_weather", "Weather in a city.", SCHEMA)
HELLO = v.Message("user", (v.Text("Hello!"),))
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
RESULT = (
    v.Message("assistant", (v.ToolCall("c1", "get_weather", '{"city": "Rome"}'),)),
    v.Message("tool", (v.ToolResult("c1", (v.Text("sunny"),)),)),
)


class CountingEngine:
    """An engine whose model needs no call with this probability, and writes this text."""

    def __init__(self, no_call: float, text: str, error: Exception | None = None) -> None:
        self.no_call, self.text, self.error = no_call, text, error
        self.asked: list[tuple[Mapping[str, Any], bool]] = []
        self.completed: list[tuple[Mapping[str, Any], bool]] = []

    async def complete(
        self, body: Mapping[str, Any], *, admitted: bool = False, slot: HeldSlot | None = None
    ) -> AsyncGenerator[Output, None]:
        """Yields the probabilities for a question, otherwise the text."""
        is_question = "n_probs" in body
        (self.asked if is_question else self.completed).append((body, admitted))
        if is_question and self.error:
            raise self.error
        total = 106 if str(body["prompt"]).endswith("needed: ") else 100
        yield Progress(total, 0)
        yield Progress(total, total)
        if is_question:
            opening = {"```": 1.0, "The": 0.0}
            counts = {"0": self.no_call, "1": 1 - self.no_call}
            yield TokenProbabilities(opening if ["```", 100.0] in body["logit_bias"] else counts)
            yield Done("length", 1, 20 if len(self.asked) == 1 else total - 6)
            return
        yield TokenText(self.text)
        yield Done("stop", 9, 99)


def deciding(engine: CountingEngine, *, words_below: float = 0.3, **config: Any) -> EmbeddedModel:
    settings = {"decide_calls": True, **config}
    embedded = backend(msgspec.structs.replace(PROFILE, words_below=words_below, after_result="free"), **settings)
    embedded.engine = engine  # type: ignore[assignment]
    return embedded


async def events(engine: CountingEngine, embedded: EmbeddedModel | None = None, **more: Any) -> list[ev.AnyEvent]:
    request = v.Request(PROFILE.name, more.pop("messages", (HELLO,)), more.pop("tools", (WEATHER,)), **more)
    context = ExchangeContext("id", 0, iter("abcdefgh").__next__)
    return await all_events((embedded or deciding(engine)).generate(request, context))


def codes(read: list[ev.AnyEvent]) -> list[str]:
    return [event.code for event in read if isinstance(event, ev.Notice)]


async def test_an_improbable_call_is_answered_in_words() -> None:
    engine = CountingEngine(0.9, "Hello to you.")
    read = await events(engine)
    notice = next(event for event in read if isinstance(event, ev.Notice))
    assert notice.code == "call_not_needed"
    assert "was 0.10 by the model's own estimate, below 0.3" in notice.message
    ((body, admitted),) = engine.completed
    assert "WORDS" in body["grammar"]
    assert admitted
    assert not engine.asked[0][1]


async def test_a_probable_call_is_as_free_as_ever() -> None:
    engine = CountingEngine(0.6, CALL)
    read = await events(engine)
    assert any(isinstance(event, ev.ToolCallStart) for event in read)
    assert codes(read) == []
    assert "WORDS" not in engine.completed[0][0]["grammar"]


async def test_usage_includes_the_question_and_counts_the_prompt_once() -> None:
    read = await events(CountingEngine(0.9, "Hello."))
    (usage,) = (event.usage for event in read if isinstance(event, ev.UsageUpdate))
    assert (usage.input_tokens, usage.cached_input_tokens, usage.output_tokens) == (106, 19, 11)


async def test_the_question_follows_the_prompt_of_the_response() -> None:
    engine = CountingEngine(0.6, CALL)
    await events(engine)
    prompt = engine.completed[0][0]["prompt"]
    assert engine.asked[1][0]["prompt"] == f"{prompt}Number of function calls needed: "


async def test_an_answer_in_words_is_asked_for_after_the_text_of_the_user() -> None:
    engine = CountingEngine(0.9, "Hello.")
    await events(engine)
    prompt, asked = engine.completed[0][0]["prompt"], engine.asked[0][0]["prompt"]
    cached, rest = asked.split("Hello!")
    assert prompt == f"{cached}Hello!\n\n(No function call is needed. Answer in plain words.){rest}"


async def test_the_note_follows_the_last_text() -> None:
    engine = CountingEngine(0.9, "A cat.")
    parts = (v.Text("What is this?"), v.Text("It is grey."))
    await events(engine, messages=(v.Message("user", parts),))
    assert "It is grey.\n\n(No function call" in engine.completed[0][0]["prompt"]


@pytest.mark.parametrize(
    "more",
    [
        {"tool_choice": v.ToolChoice("required")},
        {"tool_choice": v.ToolChoice("none")},
        {"tool_choice": v.ToolChoice("named", name="get_weather")},
        {"tools": ()},
        {"tools": (WEATHER, v.Tool("Bash", "Runs a command.", SCHEMA))},
        {"tools": (WEATHER, v.Tool("exec_command", "Runs a command.", SCHEMA))},
        {"messages": (HELLO, *RESULT)},
        {"messages": (HELLO, v.Message("assistant", (v.Text("I"),)))},
        {"steps": v.Steps(required=("get_weather",))},
        {"response_schema": '{"type": "object"}'},
    ],
    ids=[
        "required",
        "none",
        "named",
        "no tools",
        "a shell",
        "commands",
        "after a result",
        "a begun reply",
        "steps",
        "a response schema",
    ],
)
async def test_other_requests_are_not_asked(more: dict[str, Any]) -> None:
    engine = CountingEngine(0.9, "Hello.")
    await events(engine, **more)
    assert engine.asked == []


async def test_it_can_be_turned_off() -> None:
    for embedded in (
        deciding(engine := CountingEngine(0.9, "Hello."), decide_calls=False),
        deciding(engine, words_below=0.0),
    ):
        embedded.engine = engine  # type: ignore[assignment]
        assert codes(await events(engine, embedded)) == []
    assert engine.asked == []


async def test_a_failed_question_does_not_fail_the_response() -> None:
    engine = CountingEngine(0.9, CALL, UpstreamError("no probabilities"))
    assert any(isinstance(event, ev.ToolCallStart) for event in await events(engine))


async def test_question_that_succeeded_is_counted_although_the_next_failed() -> None:
    class Failing(CountingEngine):
        """Fails at the second question."""

        async def complete(
            self, body: Mapping[str, Any], *, admitted: bool = False, slot: HeldSlot | None = None
        ) -> AsyncGenerator[Output, None]:
            self.error = UpstreamError("no probabilities") if self.asked else None
            async with aclosing(super().complete(body, admitted=admitted, slot=slot)) as outputs:
                async for output in outputs:
                    yield output

    engine = Failing(0.9, CALL)
    (usage,) = (event.usage for event in await events(engine) if isinstance(event, ev.UsageUpdate))
    assert (usage.input_tokens, usage.cached_input_tokens, usage.output_tokens) == (100, 19, 10)
    assert engine.completed[0][1], "a full queue does not reject it"


async def test_question_and_response_hold_one_slot() -> None:
    limiter, order = ConcurrencyLimiter("the engine", 1, 9), []

    class Limited(CountingEngine):
        """Takes a slot as the engine does."""

        async def complete(
            self, body: Mapping[str, Any], *, admitted: bool = False, slot: HeldSlot | None = None
        ) -> AsyncGenerator[Output, None]:
            assert slot is not None
            await slot.take(limiter.acquire(may_exceed_queue=admitted))
            order.append("question" if "n_probs" in body else "response")
            async with aclosing(super().complete(body, admitted=admitted, slot=slot)) as outputs:
                async for output in outputs:
                    await asyncio.sleep(0)
                    yield output

    await asyncio.gather(*(events(Limited(0.9, "Hello.")) for _ in range(2)))
    assert order == ["question", "question", "response"] * 2
    assert (limiter.active, limiter.waiting) == (0, 0)


async def test_a_full_queue_rejects_the_response() -> None:
    engine = CountingEngine(0.9, CALL, QueueFullError("all slots are taken"))
    with pytest.raises(QueueFullError):
        await events(engine)
    assert engine.completed == []
