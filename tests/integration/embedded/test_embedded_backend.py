"""The embedded model: the real engine in a child process, and a scripted one."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, cast

import msgspec
import pytest
import pytest_asyncio
from bench.forty import RecordingEngine

from dragoman import dialects
from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.engine_output import Progress
from dragoman.core import events as ev
from dragoman.core import messages as v
from dragoman.core.backend import EventStream, ExchangeContext
from dragoman.core.collect import collect
from dragoman.core.errors import ConfigError, ContextOverflowError, QueueFullError
from dragoman.core.token_estimate import GENERIC
from dragoman.gateway.vendor_tools.deferral import with_found
from dragoman.steps.apply import apply_next, apply_steps
from support import client_recordings
from support.events import all_events
from support.scripted_llama import PROFILE, ScriptedLlama, backend, silent

pytestmark = [pytest.mark.model, pytest.mark.asyncio(loop_scope="module")]

SCHEMA = '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}'
WEATHER = v.Tool("get_weather", "Weather in a city.", SCHEMA)
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def small() -> AsyncIterator[EmbeddedModel]:
    embedded = backend(context_window=2048)
    await embedded.start()
    yield embedded
    await embedded.close()


def request(text: str = "Write a list of 500 animals, one a line.", **more: Any) -> v.Request:
    settings: dict[str, Any] = {"max_tokens": 1000, "sampling": v.Sampling(temperature=0), **more}
    return v.Request(PROFILE.name, (v.Message("user", (v.Text(text),)),), **settings)


def ask(embedded: EmbeddedModel, asked: v.Request) -> EventStream:
    return embedded.generate(asked, ExchangeContext("id", 0, iter("abcdefgh").__next__))


async def events_of(embedded: EmbeddedModel, asked: v.Request) -> list[ev.AnyEvent]:
    return await all_events(ask(embedded, asked))


def words(events: list[ev.AnyEvent]) -> str:
    return "".join(e.text for e in events if isinstance(e, ev.TextDelta))


def warnings(events: list[ev.AnyEvent]) -> list[str]:
    return [e.code for e in events if isinstance(e, ev.Notice)]


# The real engine


async def engine_counter(embedded: EmbeddedModel, counter: str) -> int:
    """One of the engine's own counters, read when it is idle: it counts a request one token after its end."""
    while True:
        lines = (await embedded.engine.metrics()).splitlines()
        counts = dict(line.removeprefix("llamacpp:").split() for line in lines if not line.startswith("#"))
        if counts["requests_processing"] == "0":
            return int(counts[counter])


async def test_client_disconnect_stops_engine(small: EmbeddedModel) -> None:
    before = await engine_counter(small, "tokens_predicted_total")
    async with aclosing(ask(small, request())) as events:
        async for batch in events:
            if isinstance(batch[-1], ev.TextDelta):
                break
    assert small.engine.active == 0
    left = await engine_counter(small, "tokens_predicted_total")
    assert 0 < left - before < 50
    await events_of(small, request("Hi", max_tokens=3))
    assert await engine_counter(small, "tokens_predicted_total") == left + 3


async def test_usage_equals_engine_counters(small: EmbeddedModel) -> None:
    names = ("prompt_tokens_total", "prompt_tokens_cached_total", "tokens_predicted_total")
    before = [await engine_counter(small, name) for name in names]
    usage = collect(await events_of(small, request("Tell me of the sea.", max_tokens=20))).usage
    after = [await engine_counter(small, name) for name in names]
    prompt, cached, predicted = (a - b for a, b in zip(after, before, strict=True))
    assert usage == v.Usage(prompt + cached, predicted, cached)
    assert usage.output_tokens == 20


LONG_TALK = (
    v.Message("system", (v.Text("Be brief, Zoë. 日本"),)),
    v.Message("user", (v.Text("Weather in Paris? <|im_end|>"),)),
    v.Message("assistant", (v.ToolCall("1", "get_weather", '{"city": "Paris"}'),)),
    v.Message("tool", (v.ToolResult("1", (v.Text("18 degrees"),)),)),
)


@pytest.mark.parametrize(
    "asked",
    [
        request("Hi", max_tokens=1),
        request("Hi", max_tokens=1, tools=(WEATHER,)),
        request("Hi", max_tokens=1, response_schema=SCHEMA),
        v.Request(PROFILE.name, LONG_TALK, tools=(WEATHER,), max_tokens=1),
    ],
    ids=["words", "tools", "schema", "results"],
)
async def test_count_tokens_equals_input_tokens_of_response(small: EmbeddedModel, asked: v.Request) -> None:
    start = (await events_of(small, asked))[0]
    assert isinstance(start, ev.Start)
    assert await small.count_tokens(asked) == start.input_tokens > 0


async def test_count_tokens_does_not_wait_for_concurrency_slot(small: EmbeddedModel) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(2):
            await anext(await stack.enter_async_context(aclosing(ask(small, request()))))
        assert small.engine.active == 2  # all concurrency slots are taken
        counts = await asyncio.gather(*(small.count_tokens(request("word " * n)) for n in range(1, 27)))
        assert small.engine.active == 2
    assert all(a < b for a, b in itertools.pairwise(cast(list[int], counts)))


async def test_prompt_beyond_context_window_is_counted(small: EmbeddedModel) -> None:
    assert 3000 < (await small.count_tokens(request("word " * 3000)) or 0) < 3100


def clients_requests() -> dict[str, v.Request]:
    """First requests of real agents, without tool results, which are rendered differently for a small model."""
    by_path = {dialects.get(name).path: dialects.get(name) for name in dialects.names()}
    firsts = {n: s for n, s in client_recordings.recorded() if n.startswith(("claude_code-full", "codex", "opencode"))}
    asked = {name: by_path[sent.path].read_request(sent.body) for name, sent in firsts.items()}
    return {n: r for n, r in asked.items() if r.tools and all(m.role != "assistant" for m in r.messages)}


CLIENTS = clients_requests()


@pytest.mark.parametrize("name", CLIENTS)
async def test_token_estimate_of_agent_request_is_within_ten_percent(small: EmbeddedModel, name: str) -> None:
    """The estimate's weights are not fitted to this tokenizer."""
    engine_counter = await small.count_tokens(CLIENTS[name]) or 0
    assert engine_counter > 4000
    assert abs(GENERIC.estimate_request(CLIENTS[name]) / engine_counter - 1) < 0.1


async def test_estimate_covers_at_least_three_agents() -> None:
    assert len({name.partition("-")[0] for name in CLIENTS}) >= 3


async def test_count_tokens_is_none_while_engine_is_down() -> None:
    embedded = backend(context_window=512)
    assert await embedded.count_tokens(request("Hi")) is None
    await embedded.start()
    try:
        assert await embedded.count_tokens(request("Hi"))
        os.kill(embedded.engine.pid or 0, signal.SIGKILL)
        assert await asyncio.gather(*(embedded.count_tokens(request("Hi")) for _ in range(3))) == [None] * 3
    finally:
        await embedded.close()
    assert await embedded.count_tokens(request("Hi")) is None


async def test_unknown_part_is_counted_as_its_json(small: EmbeddedModel) -> None:
    raw = b'{"type":"hologram"}'
    counts = [
        await small.count_tokens(v.Request(PROFILE.name, (v.Message("user", (part,)),)))
        for part in (v.UnknownPart("hologram", msgspec.Raw(raw)), v.Text(raw.decode()))
    ]
    assert counts[0] == counts[1]
    assert counts[0]


async def test_two_responses_are_generated_concurrently(small: EmbeddedModel) -> None:
    said: list[str] = []

    async def note(name: str) -> list[ev.AnyEvent]:
        events = []
        async for batch in ask(small, request(f"Tell me of {name}.", max_tokens=30)):
            said.append(name)
            events += batch
        return events

    answers = await asyncio.gather(note("cats"), note("dogs"))
    assert all(collect(a).finish_reason == "length" and words(a) for a in answers)
    turns = sum(a != b for a, b in itertools.pairwise(said))
    assert turns > 5  # they alternate


async def test_prompt_beyond_context_window_is_rejected(small: EmbeddedModel) -> None:
    with pytest.raises(ContextOverflowError, match=r"^prompt is too long: \d+ tokens > 2048 maximum$") as found:
        await events_of(small, request("word " * 3000))
    assert found.value.input_tokens > 3000


async def test_response_with_tools_follows_response_schema(small: EmbeddedModel) -> None:
    schema = '{"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}'
    reply = collect(await events_of(small, request("Say 3.", tools=(WEATHER,), response_schema=schema, max_tokens=60)))
    (part,) = reply.parts
    assert isinstance(part, v.ToolCall) or isinstance(json.loads(part.text)["x"], int)  # type: ignore[union-attr]


async def test_logit_bias_is_applied(small: EmbeddedModel) -> None:
    bias = {"logit_bias": msgspec.Raw(b'{"500": 100}')}
    said = words(await events_of(small, request("Hi", extra=bias, max_tokens=4)))
    assert said
    assert said == said[: len(said) // 4] * 4


async def test_full_queue_rejects_new_but_not_admitted_requests() -> None:
    embedded = backend(max_concurrency=1, max_queue=0, context_window=512)
    await embedded.start()
    try:
        async with aclosing(ask(embedded, request())) as first:
            await anext(first)
            with pytest.raises(
                QueueFullError,
                match="the one concurrency slot of the embedded engine is in use and its queue of 0 is full",
            ):
                await events_of(embedded, request())
            body = {"prompt": "Hi", "n_predict": 2}
            second = asyncio.create_task(anext(embedded.engine.complete(body, admitted=True)))
            while not embedded.engine.waiting:
                await anext(first)
        assert isinstance(await second, Progress)
    finally:
        await embedded.close()


async def test_tap_records_prompt_and_output() -> None:
    """`make bench-small-model` and `make claude` use the tap in this way."""
    embedded = backend(context_window=512)
    embedded.engine = tap = cast(Any, RecordingEngine(embedded.engine))
    await embedded.start()
    try:
        said = words(await events_of(embedded, request("Hi", max_tokens=5)))
        (run,) = tap.runs
        assert "Hi<|im_end|>" in run.prompt
        assert run.text == said
    finally:
        await embedded.close()


async def test_text_of_killed_engine_is_continued() -> None:
    embedded = backend(context_window=512)
    await embedded.start()
    asked = msgspec.structs.replace(request("Count to thirty.", max_tokens=40), sampling=v.Sampling(temperature=0))
    try:
        expected = collect(await events_of(embedded, asked))
        events: list[ev.AnyEvent] = []
        pids = set()
        async for batch in ask(embedded, asked):
            events += batch
            texts = sum(isinstance(event, ev.TextDelta) for event in events)
            if texts in (5, 20) and isinstance(batch[-1], ev.TextDelta) and embedded.engine.pid not in pids:
                pids.add(embedded.engine.pid)
                os.kill(embedded.engine.pid or 0, signal.SIGKILL)
        reply = collect(events)
        assert (reply.parts, reply.finish_reason) == (expected.parts, expected.finish_reason)
        assert (reply.usage.input_tokens, reply.usage.output_tokens) == (expected.usage.input_tokens, 40)
        assert [event.code for event in events if isinstance(event, ev.Notice)].count("continued") == 2
        assert embedded.engine.restarts == 2
    finally:
        await embedded.close()


async def test_reply_tokens_of_profile_limit_output_without_max_tokens() -> None:
    embedded = backend(msgspec.structs.replace(PROFILE, reply_tokens=5), context_window=512)
    await embedded.start()
    try:
        reply = collect(await events_of(embedded, request(max_tokens=None)))
        assert (reply.finish_reason, reply.usage.output_tokens) == ("length", 5)
        reply = collect(await events_of(embedded, request(max_tokens=7)))
        assert (reply.finish_reason, reply.usage.output_tokens) == ("length", 7)
    finally:
        await embedded.close()


# A scripted engine


def with_engine(engine: ScriptedLlama, after_result: str = "free") -> EmbeddedModel:
    embedded = backend(msgspec.structs.replace(PROFILE, after_result=after_result))
    embedded.engine = engine
    return embedded


async def test_re_ask_keeps_concurrency_slot() -> None:
    """A full queue must not reject a re-ask: the client of a stream has already received status 200."""
    call, result = v.ToolCall("c", "get_weather", '{"city": "Paris"}'), v.ToolResult("c", (v.Text("sunny"),))
    said = (v.Message("assistant", (call,)), v.Message("tool", (result,)))
    asked = msgspec.structs.replace(request(tools=(WEATHER,)), messages=(*request().messages, *said))
    engine = ScriptedLlama(CALL, "It is sunny.")
    events = await events_of(with_engine(engine, "no_repeats"), asked)
    assert (words(events), engine.asked) == ("It is sunny.", [False, True])


async def generations_of_turns(asked: v.Request, *, repeats: int) -> list[int]:
    """Generations of each turn of a model that makes the same call again and again, whose result is an error."""
    counts = []
    for number in range(repeats):
        engine = ScriptedLlama(CALL, CALL)
        reply = collect(await events_of(with_engine(engine, "no_repeats"), apply_steps(asked).request))
        assert [part.name for part in reply.parts if isinstance(part, v.ToolCall)] == ["get_weather"]
        counts.append(len(engine.asked))
        call = v.ToolCall(f"c{number}", "get_weather", '{"city": "Paris"}')
        result = v.ToolResult(call.id, (v.Text("Error: no such city"),), is_error=True)
        turn = (v.Message("assistant", (call,)), v.Message("tool", (result,)))
        asked = msgspec.structs.replace(asked, messages=(*asked.messages, *turn))
    return counts


STEPS = v.Steps(("get_weather",), ordered=True, terminal=("submit_report",))
REPORT = v.Tool("submit_report", "Submits the report.")


async def test_required_call_that_a_re_ask_repeated_leads_to_no_further_re_ask() -> None:
    asked = request("Weather in Paris?", tools=(WEATHER, REPORT), steps=STEPS)
    assert await generations_of_turns(asked, repeats=5) == [1, 2, 1, 1, 1]


@pytest.mark.parametrize("change", [{"steps": None}, {"sampling": v.Sampling(temperature=0.7)}])
async def test_re_ask_that_may_lead_to_something_else_is_made_in_each_turn(change: dict[str, Any]) -> None:
    asked = request("Weather in Paris?", **{"tools": (WEATHER, REPORT), "steps": STEPS, **change})
    assert await generations_of_turns(asked, repeats=4) == [1, 2, 2, 2]


async def test_other_required_call_that_is_repeated_leads_to_a_re_ask() -> None:
    engine = ScriptedLlama(CALL.replace("Paris", "Rome"), CALL.replace("Paris", "Oslo"))
    messages = list(request("Weather?").messages)
    for number, city in enumerate(("Paris", "Paris", "Rome")):
        call = v.ToolCall(f"c{number}", "get_weather", f'{{"city": "{city}"}}')
        result = v.ToolResult(call.id, (v.Text("Error: no such city"),), is_error=True)
        messages += [v.Message("assistant", (call,)), v.Message("tool", (result,))]
    asked = request(tools=(WEATHER,), tool_choice=v.ToolChoice("required", parallel_tool_calls=False))
    asked = msgspec.structs.replace(asked, messages=tuple(messages))
    reply = collect(await events_of(with_engine(engine, "no_repeats"), asked))
    assert [part.arguments for part in reply.parts if isinstance(part, v.ToolCall)] == ['{"city": "Oslo"}']


async def test_rejected_grammar_is_dropped_in_same_slot() -> None:
    engine = ScriptedLlama("refused", "Hello.")
    events = await events_of(with_engine(engine), request(tools=(WEATHER,)))
    assert (words(events), engine.asked) == ("Hello.", [False, True])
    assert warnings(events) == ["constraint_not_applied"]


@pytest.mark.parametrize("stop", ["\n", "}", '"name"', '": "'])
async def test_stop_string_in_call_markup_is_ignored(stop: str) -> None:
    events = await events_of(with_engine(ScriptedLlama(f"Wait.\n{CALL}")), request(tools=(WEATHER,), stop=(stop,)))
    reply = collect(events)
    assert (words(events), reply.finish_reason) == ("Wait.", "tool_calls")
    assert [p.arguments for p in reply.parts if isinstance(p, v.ToolCall)] == ['{"city": "Paris"}']


async def test_stop_string_in_text_ends_response() -> None:
    reply = collect(
        await events_of(with_engine(ScriptedLlama(f"One. Two.\n{CALL}")), request(tools=(WEATHER,), stop=(" T",)))
    )
    assert (reply.parts, reply.finish_reason, reply.stop_sequence) == ((v.Text("One."),), "stop_sequence", " T")


@pytest.mark.parametrize("begun", ["<tool_call>\n{", CALL[:30], CALL[:55], CALL[:-14]])
async def test_truncated_duplicate_call_is_dropped(begun: str) -> None:
    events = await events_of(with_engine(ScriptedLlama(f"{CALL}\n{begun}", finish="length")), request(tools=(WEATHER,)))
    reply = collect(events)
    assert [p.arguments for p in reply.parts if isinstance(p, v.ToolCall)] == ['{"city": "Paris"}']
    assert (reply.finish_reason, warnings(events)) == ("tool_calls", ["duplicate_call_dropped"])


async def test_truncated_second_call_finishes_with_length() -> None:
    other = CALL.replace("Paris", "Lon")[:60]
    reply = collect(
        await events_of(with_engine(ScriptedLlama(f"{CALL}\n{other}", finish="length")), request(tools=(WEATHER,)))
    )
    assert (len(reply.parts), reply.finish_reason) == (2, "length")


async def test_request_is_prepared_outside_event_loop_thread() -> None:
    threads = []

    class Noting(EmbeddedModel):
        def prepare(self, request: v.Request) -> Any:
            threads.append(threading.current_thread())
            return super().prepare(request)

    embedded = Noting(weights.find_weights(PROFILE.name), PROFILE, EmbeddedConfig(), silent)
    embedded.engine = ScriptedLlama("Hello.")
    assert words(await events_of(embedded, request())) == "Hello."
    assert threads != [threading.current_thread()]


# Requests to the engine


async def test_max_tokens_is_capped_at_context_window() -> None:
    given = [backend(context_window=512).prepare(request(max_tokens=n)).body["n_predict"] for n in (2**32 + 1, 9)]
    assert given == [512, 9]


async def test_context_window_beyond_model_limit_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"expected embedded.context_window of at most 8192, .* got 1000000"):
        backend(context_window=1_000_000)


async def test_unsupported_parameter_is_reported() -> None:
    prepared = backend().prepare(request(extra={"logprobs": msgspec.Raw(b"true"), "user": msgspec.Raw(b'"u"')}))
    assert [(w.code, w.message) for w in prepared.warnings] == [
        ("unsupported_parameter", "the embedded engine does not have logprobs")
    ]


async def test_unknown_part_is_rendered_as_json_and_reported() -> None:
    part = v.UnknownPart("txt", msgspec.Raw(b'{"type":"txt","said":"4711"}'), "$.messages[0].content[0]")
    prepared = backend().prepare(msgspec.structs.replace(request(), messages=(v.Message("user", (part,)),)))
    assert '"said":"4711"' in prepared.body["prompt"]
    assert [warning.code for warning in prepared.warnings] == ["request_adapted"]


async def test_search_result_in_tool_result_is_rendered() -> None:
    found = {"type": "search_result", "source": "u", "title": "T", "content": [{"type": "text", "text": "4711"}]}
    call = {"type": "tool_use", "id": "c", "name": "find", "input": {}}
    said = [
        {"role": "user", "content": "Number?"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [found]}]},
    ]
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": said})
    asked = dialects.get("anthropic_messages").read_request(body)
    for after_result in ("free", "prose"):
        embedded = backend(msgspec.structs.replace(PROFILE, after_result=after_result))
        assert "T\n4711\n" in embedded.prepare(asked).body["prompt"]


UNENFORCEABLE = [
    ("a schema that cannot be", {"tools": (WEATHER,), "response_schema": '{"$ref": "#/$defs/none"}'}),
    ("such a schema without tools", {"response_schema": '{"$ref": "#/$defs/none"}'}),
]


@pytest.mark.parametrize("more", [row[1] for row in UNENFORCEABLE], ids=[row[0] for row in UNENFORCEABLE])
async def test_unenforceable_schema_is_reported(more: dict[str, Any]) -> None:
    assert [w.code for w in backend().prepare(request(**more)).warnings] == ["constraint_not_applied"]


async def test_unenforceable_schema_is_not_reported_if_call_is_required() -> None:
    asked = request(tools=(WEATHER,), tool_choice=v.ToolChoice("required"), response_schema='{"$ref": "#/$defs/none"}')
    assert backend().prepare(asked).warnings == []


async def test_steps_change_the_grammar_and_not_the_prompt() -> None:
    report = v.Tool("submit_report", "Submits the report.")
    free = request("Weather in Paris?", tools=(WEATHER, report))

    def prepared(*required: str) -> Any:
        steps = v.Steps(required, terminal=("submit_report",))
        return backend().prepare(apply_steps(msgspec.structs.replace(free, steps=steps)).request).body

    at_first, at_any_time = prepared("get_weather"), prepared()
    assert at_first["prompt"] == at_any_time["prompt"]
    assert "submit_report" in at_any_time["grammar"]
    assert "submit_report" not in at_first["grammar"]
    assert "get_weather" in at_first["grammar"]


async def test_found_tools_of_steps_leave_the_prompt_and_enter_the_grammar() -> None:
    search, later = (
        v.Tool("find_tools", "Finds tools.", loading="search"),
        v.Tool("get_time", "Time.", loading="deferred"),
    )
    free = request("Weather in Paris?", tools=(WEATHER, search, later, REPORT), steps=v.Steps(("get_weather",)))
    before = apply_steps(free).request
    call, result = v.ToolCall("c1", "find_tools", "{}"), v.ToolResult("c1", (v.Text("get_time: Time."),))
    turns = (v.Message("assistant", (call,)), v.Message("tool", (result,)))
    after = apply_next(with_found(msgspec.structs.replace(before, messages=(*before.messages, *turns)), ["get_time"]))
    first, second = (backend().prepare(each).body for each in (before, after.request))
    assert second["prompt"].startswith(first["prompt"].partition("Weather in Paris?")[0])
    assert "find_tools" in first["prompt"]
    assert "get_time" not in first["prompt"]
    assert "get_time" not in str(first["grammar"])
    assert "get_time" in str(second["grammar"])


DONE = (
    v.Message("assistant", (v.ToolCall("c1", "get_weather", '{"city": "Paris"}'),)),
    v.Message("tool", (v.ToolResult("c1", (v.Text("sunny"),)),)),
)


def ended(**changes: Any) -> v.Request:
    free = request("Weather in Paris?", tools=(WEATHER, REPORT), steps=v.Steps(("get_weather",), after="text"))
    return apply_steps(msgspec.structs.replace(free, messages=(*free.messages, *DONE), **changes)).request


async def test_end_of_steps_asks_for_words_after_the_same_prompt() -> None:
    model = backend(msgspec.structs.replace(PROFILE, after_result="free"))
    before = model.prepare(apply_steps(request("Weather in Paris?", tools=(WEATHER, REPORT))).request).body
    now = model.prepare(ended())
    assert now.body["prompt"].startswith(before["prompt"].partition("Weather in Paris?")[0])
    assert "sunny" in now.body["prompt"].partition("All calls are done. Now answer my question in plain words.")[0]
    assert "WORDS" in now.body["grammar"]
    assert now.is_restricted
    assert not now.has_tools


@pytest.mark.parametrize(
    ("after_result", "settings", "changes"),
    [
        ("prose", {}, {}),
        ("free", {"engine": "llama-server", "llama_server": "/bin/true"}, {}),
        ("free", {}, {"response_schema": '{"type": "object"}'}),
    ],
    ids=["results as facts", "own llama-server", "a response schema"],
)
async def test_other_ends_of_steps_show_no_tools(
    after_result: str, settings: Mapping[str, Any], changes: Mapping[str, Any]
) -> None:
    now = backend(msgspec.structs.replace(PROFILE, after_result=after_result), **settings).prepare(ended(**changes))
    assert "All calls are done" not in now.body["prompt"]
    assert "WORDS" not in str(now.body.get("grammar"))
    assert "submit_report" not in now.body["prompt"]
