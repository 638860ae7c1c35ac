"""Events are collected into one complete reply."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core import events as ev
from dragoman.core import messages as v
from dragoman.core.collect import Collector, collect, finish_reason
from dragoman.core.errors import BackendUnavailableError, UsageError

START = ev.Start("1", "m", 7, input_tokens=3)
CALL = [ev.ToolCallStart(0, "a", "f"), ev.ToolCallDelta(0, '{"n":'), ev.ToolCallDelta(0, "1.10}"), ev.ToolCallEnd(0)]
CUT = [ev.ToolCallStart(0, "a", "f"), ev.ToolCallDelta(0, '{"n'), ev.ToolCallIncomplete(0, "raw")]


def parts(*events: ev.AnyEvent) -> tuple[v.Part, ...]:
    return collect([START, *events, ev.Finish("stop")]).parts


PARTS = [
    ("text in pieces", [ev.TextDelta("a"), ev.TextDelta("b")], (v.Text("ab"),)),
    ("a call, verbatim", CALL, (v.ToolCall("a", "f", '{"n":1.10}'),)),
    ("text around a call", [ev.TextDelta("a"), *CALL, ev.TextDelta("b")], (v.Text("a"), parts(*CALL)[0], v.Text("b"))),
    ("a cut call", CUT, (v.Text("f raw"),)),
    ("a cut call that its reader left as text", [*CUT, ev.TextDelta("f raw, and")], (v.Text("f raw, and"),)),
    (
        "thoughts and their signatures",
        [ev.ReasoningDelta("a"), ev.ReasoningDelta("b", "s"), ev.TextDelta("x"), ev.ReasoningDelta("c")],
        (v.Reasoning("ab", "s"), v.Text("x"), v.Reasoning("c")),
    ),
    ("refusal", [ev.RefusalDelta("n"), ev.RefusalDelta("o")], (v.Refusal("no"),)),
    ("warnings are no part", [ev.TextDelta("a"), ev.Notice("c", "m"), ev.TextDelta("b")], (v.Text("ab"),)),
    ("empty deltas are no part", [ev.TextDelta(""), ev.ReasoningDelta(""), ev.TextDelta("a")], (v.Text("a"),)),
    ("nothing", [], ()),
]


@pytest.mark.parametrize(("events", "expected"), [row[1:] for row in PARTS], ids=[row[0] for row in PARTS])
def test_collect_joins_events_into_parts(events: list[ev.AnyEvent], expected: tuple[v.Part, ...]) -> None:
    assert parts(*events) == expected


FINISHES = [
    ("stop", [], "stop", "stop"),
    ("calls make stop into tool_calls", CALL, "stop", "tool_calls"),
    ("calls make stop_sequence into tool_calls", CALL, "stop_sequence", "tool_calls"),
    ("tool_calls without a call is stop", [], "tool_calls", "stop"),
    ("a cut call is none", CUT, "tool_calls", "stop"),
    ("a cut call at the limit is length", CUT, "length", "length"),
    ("length stays, with calls", CALL, "length", "length"),
    ("a filter stays, with calls", CALL, "content_filter", "content_filter"),
    ("a stop sequence stays", [], "stop_sequence", "stop_sequence"),
]


@pytest.mark.parametrize(("events", "said", "told"), [row[1:] for row in FINISHES], ids=[row[0] for row in FINISHES])
def test_finish_reason_depends_on_calls(events: list[ev.AnyEvent], said: v.FinishReason, told: v.FinishReason) -> None:
    order = ev.EventOrder()
    for event in [START, *events]:
        order.feed(event)
    assert finish_reason(ev.Finish(said), order, broken_are_text=True) == told
    assert collect([START, *events, ev.Finish(said)]).finish_reason == told


def test_reply_has_identity_usage_and_stop_sequence() -> None:
    usage = v.Usage(10, 5, 4, 2)
    reply = collect([START, ev.TextDelta("a"), ev.UsageUpdate(usage), ev.Finish("stop_sequence", "END")])
    assert reply == v.Reply("1", "m", 7, (v.Text("a"),), "stop_sequence", "END", usage)


def test_usage_defaults_to_estimated_prompt_tokens() -> None:
    assert collect([START, ev.Finish("stop")]).usage == v.Usage(input_tokens=3)


def test_collector_keeps_warnings() -> None:
    collector = Collector()
    for event in (START, ev.Notice("late", "m", "raw"), ev.Finish("stop")):
        collector.feed(event)
    assert collector.warnings == [ev.Notice("late", "m", "raw")]


def test_failure_event_is_raised() -> None:
    with pytest.raises(BackendUnavailableError, match="died"):
        collect([START, ev.TextDelta("a"), ev.Failure(BackendUnavailableError("died"))])


UNFINISHED = [
    ("what a reader gives, alone", [ev.TextDelta("a")], "expected Start first, got TextDelta: send Start"),
    ("no Finish", [START, ev.TextDelta("a")], "expected Finish at the end, got none: send Start"),
    ("nothing at all", [], "expected Finish at the end"),
    ("more after the end", [START, ev.Finish("stop"), ev.TextDelta("a")], "nothing after the end, got TextDelta"),
]


@pytest.mark.parametrize(("events", "message"), [row[1:] for row in UNFINISHED], ids=[row[0] for row in UNFINISHED])
def test_stream_without_start_or_finish_is_rejected(events: list[ev.AnyEvent], message: str) -> None:
    """Its text would be missing in the reply."""
    with pytest.raises(UsageError, match=message):
        collect(events)


def test_parts_before_failure_are_kept() -> None:
    collector = Collector()
    for event in (START, *CALL[:2], ev.Failure(BackendUnavailableError("died"))):
        collector.feed(event)
    assert collector.reply().parts == (v.ToolCall("a", "f", '{"n":'),)


@given(st.lists(st.tuples(st.sampled_from([ev.TextDelta, ev.ReasoningDelta, ev.RefusalDelta]), st.text(max_size=3))))
def test_text_is_kept_independent_of_cuts(said: list[tuple[type, str]]) -> None:
    whole = parts(*(kind(text) for kind, text in said))
    assert "".join(p.text for p in whole) == "".join(text for _, text in said)
    assert parts(*(kind(character) for kind, text in said for character in text)) == whole
    assert all(type(a) is not type(b) for a, b in pairwise(whole))
