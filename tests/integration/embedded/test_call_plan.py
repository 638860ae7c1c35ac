"""Several calls: the scripted model is asked how many it needs, and writes as many, over every API."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer
from msgspec.structs import replace

from dragoman.backends.embedded.admitted_request import HeldSlot
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.engine_output import Done, Output, Progress, TokenProbabilities
from dragoman.backends.embedded.gguf import Metadata
from dragoman.backends.embedded.questions.call_plan import may_plan, plan_notice, planned_calls
from dragoman.catalog import models
from dragoman.core.errors import BackendUnavailableError, DragomanError, UpstreamError
from dragoman.core.messages import Message, Request, Steps, Text, Tool, ToolCall, ToolChoice, ToolResult
from dragoman.gateway.gateway import Gateway
from dragoman.guard.policy import GuardPolicy
from dragoman.prompting.prompt_budget import budget_for
from support.scripted_backend import serving
from support.scripted_llama import ScriptedLlama
from support.text_upstream import ASKED, FRONTS, QUESTION, Answer, ask

pytestmark = pytest.mark.asyncio

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TWO, ONE = {"1": 0.2, "2": 0.7, "3": 0.1}, {"0": 0.1, "1": 0.6, "2": 0.3}


def call(city: str) -> str:
    arguments = json.dumps({"city": city, "days": 3})
    return f'<tool_call>\n{{"name": "get_weather", "arguments": {arguments}}}\n</tool_call>'


def made(*cities: str) -> list[tuple[str, Any]]:
    return [("get_weather", {"city": city, "days": 3}) for city in cities]


class CountingLlama(ScriptedLlama):
    """Answers a question with these probabilities, or fails; writes the texts as responses."""

    def __init__(self, counts: Mapping[str, float] | DragomanError, *texts: str) -> None:
        super().__init__(*texts)
        self.counts = counts
        self.questions: list[str] = []
        self.bodies: list[Mapping[str, Any]] = []

    async def complete(
        self, body: Mapping[str, Any], *, admitted: bool = False, slot: HeldSlot | None = None
    ) -> AsyncGenerator[Output, None]:
        if "n_probs" not in body:
            self.bodies.append(body)
            async with contextlib.aclosing(super().complete(body, admitted=admitted)) as outputs:
                async for output in outputs:
                    yield output
            return
        if ["```", 100.0] in body["logit_bias"]:  # how the reply would open
            yield TokenProbabilities({"```": 1.0})
            yield Done("length", 1, 4)
            return
        self.questions.append(body["prompt"])
        if isinstance(self.counts, DragomanError):
            raise self.counts
        yield Progress(16, 0)
        yield TokenProbabilities(self.counts)
        yield Done("length", 1, 4)

    async def start(self) -> None:
        """Does nothing: the scripted engine needs no start."""

    async def close(self) -> None:
        """Does nothing: the scripted engine needs no stop."""


def embedded(
    engine: CountingLlama, several_calls_from: float = 0.5, words_below: float = 0.0, **config: Any
) -> EmbeddedModel:
    thresholds = {"several_calls_from": several_calls_from, "words_below": words_below}
    profile = replace(models.default(), name="m", after_result="no_repeats", **thresholds)
    metadata = Metadata("m", CHATML, 4096, "", "", ("<|im_start|>", "<|im_end|>"), ())
    backend = EmbeddedModel(Path("m.gguf"), profile, EmbeddedConfig(**config), lambda _: None, metadata)
    backend.engine = engine
    return backend


@contextlib.asynccontextmanager
async def gateway(engine: CountingLlama, policy: GuardPolicy | None = None, **config: Any) -> AsyncIterator[str]:
    async with serving(Gateway([embedded(engine, **config)], policy=policy or GuardPolicy())) as (_, url):
        yield url


async def answered(engine: CountingLlama, request: Request = ASKED, front: str = "openai_chat", **more: Any) -> Answer:
    async with gateway(engine, **more) as url:
        return await ask(url, front, request)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("front", FRONTS)
async def test_several_calls_are_counted_and_written(front: str, stream: bool) -> None:
    engine = CountingLlama(TWO, f"{call('Paris')}\n{call('Rome')}")
    answer = await answered(engine, replace(ASKED, stream=stream), front)
    assert (answer.calls, answer.text) == (made("Paris", "Rome"), "")
    assert "calls_planned" in answer.warnings
    assert engine.questions[0].endswith("<|im_start|>assistant\nNumber of function calls needed: ")
    assert engine.questions[0].startswith(engine.bodies[0]["prompt"])
    usage = answer.reply.usage
    written = len(call("Paris")) + 1 + len(call("Rome"))
    # The prompt has 10 tokens, with the question 16, of which 4 were cached before.
    if stream and front == "openai_chat":
        return  # its usage is an option
    assert (usage.input_tokens, usage.output_tokens) == (16, written + 1)


@pytest.mark.parametrize("front", FRONTS)
async def test_prompt_of_one_thing_is_answered_as_without_question(front: str) -> None:
    engine, plain = CountingLlama(ONE, call("Paris")), CountingLlama(ONE, call("Paris"))
    answer = await answered(engine, front=front)
    assert (await answered(plain, front=front, plan_calls="off")).calls == answer.calls == made("Paris")
    assert "calls_planned" not in answer.warnings
    assert engine.bodies == plain.bodies
    assert (len(engine.questions), len(plain.questions)) == (1, 0)
    assert engine.asked == [True], "a full queue does not reject a response that was asked about"


async def test_setting_overrides_the_catalogue() -> None:
    text = f"{call('Paris')}\n{call('Rome')}"
    for mode, measured, is_asked in (("auto", 0, False), ("on", 0, True), ("off", 0.5, False), ("auto", 0.9, True)):
        engine = CountingLlama(TWO, text)
        answer = await answered(engine, plan_calls=mode, several_calls_from=measured)
        assert bool(engine.questions) == is_asked
        assert ("calls_planned" in answer.warnings) == (mode == "on"), "0.8 is less than 0.9"


RESULT = (
    QUESTION,
    Message("assistant", (ToolCall("call_1", "get_weather", '{"city": "Paris"}'),)),
    Message("tool", (ToolResult("call_1", (Text("sunny"),)),)),
)


@pytest.mark.parametrize(
    "request_",
    [
        replace(ASKED, tool_choice=ToolChoice(parallel_tool_calls=False)),
        replace(ASKED, tool_choice=ToolChoice("none")),
        replace(ASKED, tool_choice=ToolChoice("named", "get_weather")),
        replace(ASKED, tool_choice=ToolChoice("required")),
        replace(ASKED, messages=RESULT),
        replace(ASKED, tools=()),
    ],
    ids=["one call", "none", "named", "required", "after a result", "no tools"],
)
@pytest.mark.parametrize("front", FRONTS)
async def test_only_requests_that_may_have_several_calls_are_asked_about(front: str, request_: Request) -> None:
    engine = CountingLlama(TWO, call("Rome"))
    await answered(engine, request_, front)
    assert (len(engine.questions), len(engine.bodies)) == (0, 1)


async def test_required_calls_are_planned_if_the_client_accepts_several() -> None:
    engine = CountingLlama(TWO, f"{call('Paris')}\n{call('Rome')}")
    async with gateway(engine) as url:
        answer = await ask(
            url, "openai_chat", replace(ASKED, tool_choice=ToolChoice("required")), parallel_tool_calls=True
        )
    assert answer.calls == made("Paris", "Rome")


async def test_required_call_is_the_only_one_if_the_model_counts_one() -> None:
    """Otherwise it makes up further calls."""
    engine = CountingLlama(ONE, call("Paris"))
    async with gateway(engine) as url:
        asked = replace(ASKED, tool_choice=ToolChoice("required"))
        answer = await ask(url, "openai_chat", asked, parallel_tool_calls=True)
    assert answer.calls == made("Paris")
    assert "calls_planned" in answer.warnings
    matcher = LLMatcher(LLTokenizer("byte"), engine.bodies[0]["grammar"])
    assert matcher.try_consume_tokens([*call("Paris").encode()]) == len(call("Paris"))
    assert matcher.is_accepting()
    assert not matcher.try_consume_tokens([*b"\n<tool_call>"])


async def test_requests_that_a_plan_does_not_fit() -> None:
    assert may_plan(ASKED)
    assert may_plan(replace(ASKED, messages=(*RESULT, Message("assistant", (Text("Sunny."),)), QUESTION)))
    assert not may_plan(replace(ASKED, response_schema="{}"))
    assert not may_plan(replace(ASKED, steps=Steps()))
    assert not may_plan(replace(ASKED, messages=(QUESTION, Message("assistant", (Text("I"),)))))
    assert not may_plan(replace(ASKED, messages=(Message("user", (*RESULT[2].parts, Text("Go on."))),)))


async def test_calls_that_may_need_each_others_results_are_not_planned() -> None:
    schema = {"type": "object", "properties": {"user_id": {"type": "string"}}, "required": ["user_id"]}
    mailbox = Tool("create_mailbox", "Creates a mailbox.", json.dumps(schema))
    dependent = replace(ASKED, tools=(*ASKED.tools, mailbox))
    assert not may_plan(dependent)
    assert may_plan(replace(dependent, messages=(Message("user", (Text("Mailboxes for U-5060 and U-5061."),)),)))
    assert not may_plan(replace(dependent, messages=(Message("user", (Text("On 2027-03-10 at 10:30, for both."),)),)))
    assert not may_plan(replace(ASKED, tools=(*ASKED.tools, Tool("submit_report", "Ends the task."))))


async def test_repeated_call_ends_the_plan() -> None:
    engine = CountingLlama({"3": 1.0}, "\n".join([call("Paris"), call("Paris"), call("Rome")]))
    answer = await answered(engine)
    assert answer.calls == made("Paris")
    assert "duplicate_call_dropped" in answer.warnings


async def test_guard_limits_planned_calls() -> None:
    engine = CountingLlama({"3": 1.0}, "\n".join(map(call, ("Paris", "Rome", "Oslo"))))
    answer = await answered(engine, policy=GuardPolicy(max_calls=2))
    assert answer.calls == made("Paris", "Rome")
    assert {"calls_planned", "call_limit_reached"} <= set(answer.warnings)


async def test_failed_question_leaves_the_response_as_it_is() -> None:
    engine = CountingLlama(UpstreamError("no probabilities"), call("Paris"))
    assert (await answered(engine)).calls == made("Paris")
    assert "Number of" not in engine.bodies[0]["prompt"]


@pytest.mark.parametrize("front", FRONTS)
async def test_a_client_that_leaves_stops_the_question(front: str) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    class Waiting(CountingLlama):
        """Reads the prompt until it is stopped."""

        async def complete(
            self, body: Mapping[str, Any], *, admitted: bool = False, slot: HeldSlot | None = None
        ) -> AsyncGenerator[Output, None]:
            try:
                yield Progress(16, 0)
                began.set()
                await asyncio.Event().wait()
            finally:
                stopped.set()

    async with gateway(Waiting(TWO)) as url:
        asking = asyncio.create_task(ask(url, front))
        await began.wait()
        asking.cancel()
        await asyncio.wait({asking})
        await stopped.wait()


async def test_number_of_calls_by_their_probabilities() -> None:
    none = dict.fromkeys("0123456789", 0.0)
    assert planned_calls(none | {"1": 0.3, "2": 0.3, "3": 0.4}, 0.6) == 3
    assert planned_calls(none | {"1": 0.5, "2": 0.5}, 0.6) == 0
    assert planned_calls(none | {"1": 0.5, "2": 0.5}, 0.6, required=True) == 1
    assert planned_calls(none | {"1": 0.26, "2": 0.70, "3": 0.04}, 0.75, required=True) == 0, "it may need two"
    assert "to one call," in plan_notice(1).message


async def test_one_question_decides_both() -> None:
    for counts, text, calls, code in (
        ({"0": 0.9, "2": 0.1}, "Hello.", [], "call_not_needed"),
        (TWO, f"{call('Paris')}\n{call('Rome')}", made("Paris", "Rome"), "calls_planned"),
    ):
        engine = CountingLlama(counts, text)
        answer = await answered(engine, words_below=0.3, decide_calls=True)
        assert (answer.calls, len(engine.questions)) == (calls, 1)
        assert {"call_not_needed", "calls_planned"} & set(answer.warnings) == {code}


async def test_plan_has_only_tools_of_the_prompt() -> None:
    tools = tuple(replace(ASKED.tools[0], name=f"tool_{n}", description="word " * 200) for n in range(20))
    engine = CountingLlama(TWO, call("Paris"))
    model = embedded(engine, tools=("tool_0",))
    model._budget = budget_for(5, 40.0, ("tool_0",))  # as `start` sets it
    prepared = model.prepare(replace(ASKED, tools=tools))
    assert 0 < prepared.offered < 20
    grammar = model.prepare_plan(prepared, 2).body["grammar"]
    assert ["tool_0" in grammar, "tool_19" in grammar] == [True, False]


class BreakingLlama(CountingLlama):
    """Ends after some text of its first response, and continues after its restart."""

    async def complete(
        self, body: Mapping[str, Any], *, admitted: bool = False, slot: HeldSlot | None = None
    ) -> AsyncGenerator[Output, None]:
        async with contextlib.aclosing(super().complete(body, admitted=admitted)) as outputs:
            async for output in outputs:
                if len(self.bodies) == 1 and type(output) is Done:
                    raise BackendUnavailableError("the engine ended")
                yield output


@pytest.mark.parametrize("counts", [TWO, {"0": 1.0}], ids=["plan", "words"])
async def test_grammar_of_a_whole_response_does_not_apply_to_its_rest(counts: Mapping[str, float]) -> None:
    engine = BreakingLlama(counts, "Hello", " to you.")
    await answered(engine, words_below=0.3, decide_calls=True)
    first, rest = engine.bodies
    assert rest["prompt"] == first["prompt"] + "Hello"
    assert ["grammar" in body for body in (first, rest)] == [True, False]


async def test_grammar_accepts_the_planned_number_of_calls_only() -> None:
    backend = embedded(CountingLlama(TWO))
    prepared = backend.prepare(ASKED)
    planned = backend.prepare_plan(prepared, 2)
    matcher = LLMatcher(LLTokenizer("byte"), planned.body["grammar"])

    def accepts(text: str) -> bool:
        matcher.reset()
        return matcher.try_consume_tokens([*text.encode()]) == len(text) and matcher.is_accepting()

    calls = [call(city) for city in ("Paris", "Rome", "Oslo")]
    assert [accepts("\n".join(calls[:n])) for n in (1, 2, 3)] == [False, True, False]
    assert not accepts("Hello.")
