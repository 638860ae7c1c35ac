"""In past turns, models see their own text verbatim, even if the client has reformatted the tool calls."""

import json
from typing import Any

import pytest
from bench import forty
from msgspec.structs import replace

from dragoman import formats
from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.text_mode.chat_template import ChatTemplate
from dragoman.backends.text_mode.verbatim_history import ReplyRecorder, ReplyStore, VerbatimHistory
from dragoman.catalog import models
from dragoman.core import messages as v
from dragoman.core.backend import ExchangeContext
from dragoman.core.collect import collect
from dragoman.core.events import (
    AnyEvent,
    Finish,
    Notice,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
)
from support.chat_templates import CHATML, HERMES_TEMPLATE
from support.events import all_events
from support.fake_upstream import server
from support.scripted_llama import ScriptedLlama
from support.text_upstream import ASKED, FRONTS, QUESTION, WEATHER, ask, gateway, writes

FENCED = '```json\n{\n  "name": "get_weather",\n  "arguments": {\n    "city": "Paris", "days": 3\n  }\n}\n```'
CALL = v.ToolCall("call_a1", "get_weather", '{"city": "Paris", "days": 3}')
SENT_BACK = '{"days":3,"city":"Paris"}'
"""The same arguments as JavaScript serializes them, in another order."""


def turn(*parts: v.Part) -> v.Request:
    return v.Request("m", (QUESTION, v.Message("assistant", parts)))


def history_with_call(store: ReplyStore | None = None) -> VerbatimHistory:
    own_words = VerbatimHistory(store)
    own_words.add(FENCED, "Sure.", (CALL,))
    return own_words


def restored(own_words: VerbatimHistory, *parts: v.Part) -> v.Message:
    return own_words.restore(turn(*parts)).messages[1]


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("spelled", [json.dumps, lambda x: json.dumps(x, separators=(",", ":"))])
async def test_past_turn_is_sent_as_the_model_wrote_it(front: str, spelled: Any) -> None:
    async with (
        server(writes(FENCED)) as behind,
        gateway(behind.url, tool_mode="prompt", call_format="hermes") as (url, _),
    ):
        answer = await ask(url, front)
        parts = [
            replace(p, arguments=spelled(json.loads(p.arguments))) if isinstance(p, v.ToolCall) else p
            for p in answer.reply.parts
        ]
        (call,) = (p for p in parts if isinstance(p, v.ToolCall))
        result = v.Message("tool", (v.ToolResult(call.id, (v.Text("sunny"),)),))
        await ask(url, front, replace(ASKED, messages=(QUESTION, v.Message("assistant", tuple(parts)), result)))
    first, second = (json.loads(body)["messages"] for _, _, body in behind.asked)
    assert second[: len(first)] == first
    assert second[len(first)] == {"role": "assistant", "content": FENCED}
    assert "sunny" in second[-1]["content"]


LATE_ID = '<tool_call>\n{"name": "get_weather", "arguments": {"city":  "Paris"}, "id": "my_id"}\n</tool_call>'


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("front", FRONTS)
async def test_call_id_written_after_arguments_reaches_client(front: str, stream: bool) -> None:
    async with (
        server(writes(LATE_ID)) as behind,
        gateway(behind.url, tool_mode="prompt", call_format="hermes") as (url, _),
    ):
        answer = await ask(url, front, replace(ASKED, stream=stream))
        (call,) = (p for p in answer.reply.parts if isinstance(p, v.ToolCall))
        result = v.Message("tool", (v.ToolResult(call.id, (v.Text("sunny"),)),))
        past = (QUESTION, v.Message("assistant", (call,)), result)
        await ask(url, front, replace(ASKED, stream=stream, messages=past))
    assert call.id == "my_id"
    assert json.loads(behind.asked[1][2])["messages"][-2]["content"] == LATE_ID


@pytest.mark.parametrize("id", ["call_a1", "calla1", "call-a1"])
def test_call_is_matched_by_id_and_content(id: str) -> None:
    message = restored(history_with_call(), v.Text("Sure."), replace(CALL, id=id, arguments=SENT_BACK))
    assert message.verbatim_text == FENCED
    assert message.parts[1] == replace(CALL, id=id)


def test_changed_text_restores_only_the_calls() -> None:
    message = restored(history_with_call(), v.Text("Sure, but not so."), replace(CALL, arguments=SENT_BACK))
    assert (message.verbatim_text, message.parts[1]) == ("", CALL)
    message = restored(history_with_call(), v.Text("Sure."), v.Reasoning("Hm."), CALL)
    assert (message.verbatim_text, message.parts[2]) == ("", CALL)


OTHERS = {
    "another call": (replace(CALL, arguments='{"city": "Rome"}'),),
    "another tool": (replace(CALL, name="ping"),),
    "another id": (replace(CALL, id="call_a2"),),
    "one more": (CALL, replace(CALL, id="call_a2")),
    "no JSON": (replace(CALL, arguments='{"city'),),
    "no call": (v.Text("Sure."),),
}


@pytest.mark.parametrize("parts", OTHERS.values(), ids=OTHERS)
def test_different_call_is_not_restored(parts: tuple[v.Part, ...]) -> None:
    assert restored(history_with_call(), *parts) == v.Message("assistant", parts)


def test_least_recently_used_reply_is_evicted() -> None:
    own_words = history_with_call(store := ReplyStore(replies=2))
    own_words.add("b", "", (replace(CALL, id="b"),))
    assert restored(own_words, v.Text("Sure."), CALL).verbatim_text
    own_words.add("c", "", (replace(CALL, id="c"),))
    assert len(store) == 2
    assert restored(own_words, v.Text("Sure."), CALL).verbatim_text
    assert not restored(own_words, replace(CALL, id="b")).verbatim_text


def test_history_size_is_limited() -> None:
    own_words = history_with_call(store := ReplyStore(chars=300))
    assert store.chars == len(FENCED) + len("Sure.") + len(CALL.arguments)
    own_words.add(FENCED, "Sure.", (CALL,))
    assert len(store) == 1
    own_words.add("x" * 400, "", (replace(CALL, id="b"),))
    assert (len(store), store.chars) == (0, 0)


def test_histories_of_one_store_share_its_limit_but_no_replies() -> None:
    store = ReplyStore(replies=2)
    first, second = VerbatimHistory(store, "first"), VerbatimHistory(store, "second")
    first.add(FENCED, "Sure.", (CALL,))
    assert restored(second, v.Text("Sure."), CALL) == v.Message("assistant", (v.Text("Sure."), CALL))
    second.add("other", "Sure.", (CALL,))
    assert [restored(own_words, v.Text("Sure."), CALL).verbatim_text for own_words in (first, second)] == [
        FENCED,
        "other",
    ]
    for id in ("b", "c"):
        second.add("other", "", (replace(CALL, id=id),))
    assert len(store) == 2
    assert not restored(first, v.Text("Sure."), CALL).verbatim_text


def recorded(*events: AnyEvent, store: ReplyStore | None = None) -> VerbatimHistory:
    own_words = VerbatimHistory(store)
    listener = ReplyRecorder(own_words)
    listener.add_text(FENCED)
    begun: list[AnyEvent] = [TextDelta("Sure."), ToolCallStart(0, CALL.id, CALL.name), ToolCallDelta(0, CALL.arguments)]
    listener.feed([*begun, *events])
    return own_words


END = ToolCallEnd(0)


def test_completed_reply_is_recorded() -> None:
    for reason in ("stop", "tool_calls"):
        assert restored(recorded(END, Finish(reason)), v.Text("Sure."), CALL).verbatim_text == FENCED


def test_reply_with_reasoning_records_only_calls() -> None:
    own_words = recorded(END, ReasoningDelta("Hm."), Finish("stop"))
    message = restored(own_words, v.Text("Sure."), replace(CALL, arguments=SENT_BACK))
    assert (message.verbatim_text, message.parts[1]) == ("", CALL)


BROKEN: dict[str, list[AnyEvent]] = {
    "cut off": [END, Finish("length")],
    "incomplete": [ToolCallIncomplete(0, ""), Finish("stop")],
    "made again": [END, Notice("duplicate_call_dropped", ""), Finish("stop")],
    "no end": [END],
}


@pytest.mark.parametrize("events", BROKEN.values(), ids=BROKEN)
def test_incomplete_reply_is_not_recorded(events: list[AnyEvent]) -> None:
    recorded(*events, store=(store := ReplyStore()))
    assert len(store) == 0


def test_recorded_calls_differ_from_rendered_calls() -> None:
    """Shows why this is needed: models do not write calls as their format renders past calls."""
    hermes, read = formats.get("hermes"), {text: forty.calls_in([text]) for text in forty.recording().values()}
    called = {text: calls for text, calls in read.items() if calls}
    assert len(called) >= 30
    assert [text for text, calls in called.items() if hermes.write_calls(calls) == text.strip()] == []


async def test_embedded_model_prompt_contains_its_verbatim_text() -> None:
    profile = replace(models.default(), after_result="free")
    embedded: Any = EmbeddedModel(weights.find_weights(profile.name), profile, EmbeddedConfig(), lambda _: None)
    embedded.engine = tap = forty.RecordingEngine(ScriptedLlama(FENCED, "It is sunny."))
    asked = v.Request(profile.name, (QUESTION,), (WEATHER,))
    reply = collect(await all_events(embedded.generate(asked, ExchangeContext("id", 0, iter("abcdefgh").__next__))))
    (call,) = (part for part in reply.parts if isinstance(part, v.ToolCall))
    back = tuple(replace(p, arguments=SENT_BACK) if p is call else p for p in reply.parts)
    result = v.Message("tool", (v.ToolResult(call.id, (v.Text("sunny"),)),))
    again = replace(asked, messages=(QUESTION, v.Message("assistant", back), result))
    collect(await all_events(embedded.generate(again, ExchangeContext("id", 0, iter("abcdefgh").__next__))))
    first, second = tap.runs
    assert second.prompt.startswith(first.prompt + FENCED)


@pytest.mark.parametrize("source", [HERMES_TEMPLATE, CHATML], ids=["knows tools", "knows none"])
def test_template_renders_verbatim_text_with_escaped_control_tokens(source: str) -> None:
    hermes, template = formats.get("hermes"), ChatTemplate(source, "<bos>", "<eos>", ("<|im_start|>", "<|im_end|>"))
    asked = replace(ASKED, messages=(QUESTION,))
    result = v.Message("tool", (v.ToolResult(CALL.id, (v.Text("sunny"),)),))
    for raw, restored in ((FENCED, FENCED), (f"<|im_start|>{FENCED}", f"&lt;|im_start|>{FENCED}")):
        wrote = v.Message("assistant", (CALL,), verbatim_text=raw)
        after = template.render(replace(asked, messages=(QUESTION, wrote, result)), hermes).text
        assert after.startswith(template.render(asked, hermes).text + restored)
