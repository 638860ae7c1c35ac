"""Support for small models: stop strings, dropped repeated calls, results written as prose."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.backends.embedded.small_models import RepeatStopper, results_as_prose
from dragoman.core import events as ev
from dragoman.core import messages as v
from dragoman.core import repeated_call
from dragoman.core.backend import ExchangeContext
from dragoman.core.collect import collect
from dragoman.core.repeated_call import answered_calls
from dragoman.core.token_estimate import GENERIC
from dragoman.prompting import trim
from dragoman.text.stop_strings import StopStrings
from support import cpu_cost
from support.chunking import cuttings, places
from support.events import all_events
from support.recorded_backend import RecordedBackend, RecordedReply

# Stop strings.


def apply_stop_strings(strings: list[str], pieces: list[str]) -> tuple[str, str]:
    stops, text = StopStrings(strings), ""
    for piece in pieces:
        text += stops.feed_text(piece)
        if stops.found:
            return text, stops.found
    return text + stops.close_text(), stops.found


STOPS = [
    ("none", [], "a\nb", ("a\nb", "")),
    ("empty strings are none", [""], "ab", ("ab", "")),
    ("found", ["\n\n"], "a\n\nb", ("a", "\n\n")),
    ("at the beginning", ["a"], "ab", ("", "a")),
    ("at the end", ["END"], "aEND", ("a", "END")),
    ("only begun", ["END"], "aEN", ("aEN", "")),
    ("begun, then another", ["END", "N"], "aEN", ("aE", "N")),
    ("the longer one", ["E", "END"], "aEND", ("a", "END")),
    ("the shorter one where the longer is not whole", ["E", "END"], "aEN", ("a", "E")),
    ("the first of two", ["x", "y"], "ayx", ("a", "y")),
]


@pytest.mark.parametrize(("strings", "text", "expected"), [row[1:] for row in STOPS], ids=[row[0] for row in STOPS])
def test_stop_string_ends_text(strings: list[str], text: str, expected: tuple[str, str]) -> None:
    for cut in cuttings(text, [1, 2]):
        assert apply_stop_strings(strings, cut) == expected


@given(st.lists(st.text("abc", max_size=3), max_size=3), st.text("abc ", max_size=12), places)
def test_stop_string_is_never_emitted_for_any_cut(strings: list[str], text: str, some: list[int]) -> None:
    whole = apply_stop_strings(strings, [text])
    assert text.startswith("".join(whole))
    assert not any(s in whole[0] for s in strings if s)
    for cut in cuttings(text, some):
        assert apply_stop_strings(strings, cut) == whole


def test_buffered_text_is_emitted_before_other_events() -> None:
    stops = StopStrings(["END", "x"])
    events = [ev.TextDelta("aE"), *call(0, "f", "xEND"), ev.TextDelta("ND"), ev.TextDelta("bx"), ev.Notice("w", "m")]
    out = stops.feed(events)
    assert out == [ev.TextDelta("a"), ev.TextDelta("E"), *call(0, "f", "xEND"), ev.TextDelta("ND"), ev.TextDelta("b")]
    assert (stops.found, stops.close()) == ("x", [])


def test_buffered_text_is_emitted_at_end() -> None:
    stops = StopStrings(["END"])
    assert stops.feed([ev.TextDelta("aEN")]) == [ev.TextDelta("a")]
    assert stops.close() == [ev.TextDelta("EN")]


def test_recorded_reply_is_parsed_before_stop_strings() -> None:
    text = 'Wait.\n<tool_call>\n{"name": "f", "arguments": {"a": "}"}}\n</tool_call>'
    answer = RecordedBackend("m", [RecordedReply("", text)]).generate(
        v.Request("m", (v.Message("user", (v.Text("x"),)),), (v.Tool("f"),), stop=("\n", "}")),
        ExchangeContext("i", 0, lambda: "x"),
    )

    async def all_of() -> list[ev.AnyEvent]:
        return await all_events(answer)

    reply = collect(asyncio.run(all_of()))
    assert (reply.parts, reply.finish_reason) == (
        (v.Text("Wait."), v.ToolCall("call_x", "f", '{"a": "}"}')),
        "tool_calls",
    )


# Repeats.


def call(index: int, name: str = "f", *arguments: str) -> list[ev.AnyEvent]:
    deltas = [ev.ToolCallDelta(index, a) for a in arguments or ("{}",)]
    return [ev.ToolCallStart(index, f"c{index}", name), *deltas, ev.ToolCallEnd(index)]


def run_repeat_stopper(
    events: list[ev.AnyEvent], answered: tuple[v.ToolCall, ...] = ()
) -> tuple[list[ev.AnyEvent], RepeatStopper]:
    guard = RepeatStopper(answered)
    return list(guard.feed(events)), guard


def test_different_calls_are_forwarded() -> None:
    events = [ev.TextDelta("a"), *call(0), *call(1, "g"), *call(2, "f", '{"a"', ": 1}"), *call(3, "f", '{"a": 2}')]
    passed, guard = run_repeat_stopper(events)
    assert passed == events
    assert not guard.finished


def test_first_call_is_forwarded_as_it_streams() -> None:
    guard = RepeatStopper()
    for event in call(0, "f", "{", "}"):
        assert guard.feed([event]) == [event]


def test_repeated_call_is_dropped() -> None:
    passed, guard = run_repeat_stopper([*call(0, "f", '{"a": 1, "b": 2}'), *call(1, "f", '{"b":2,', '"a":1}')])
    assert passed[:3] == call(0, "f", '{"a": 1, "b": 2}')
    assert [type(e) for e in passed[3:]] == [ev.Notice]
    assert guard.finished


ANSWERED = (v.ToolCall("x", "f", '{ "a": 1 }'),)


def test_answered_call_is_held_back() -> None:
    passed, guard = run_repeat_stopper(call(0, "f", '{"a":1}'), ANSWERED)
    assert passed == []
    assert (guard.finished, guard.buffered) == (True, call(0, "f", '{"a":1}'))


def test_answered_call_after_another_call_is_dropped() -> None:
    passed, guard = run_repeat_stopper([*call(0, "g"), *call(1, "f", '{"a":1}')], ANSWERED)
    assert passed[:3] == call(0, "g")
    assert [type(e) for e in passed[3:]] == [ev.Notice]
    assert guard.call is None


def test_answered_call_is_forwarded_on_last_attempt() -> None:
    guard = RepeatStopper(ANSWERED, last=True)
    events = [*call(0, "f", '{"a":1}'), *call(1, "f", '{"a":1}')]
    passed = guard.feed(events)
    assert passed[:3] == call(0, "f", '{"a":1}')
    assert [e.code for e in passed[3:] if isinstance(e, ev.Notice)] == ["reask_failed", "duplicate_call_dropped"]


def test_incomplete_call_is_forwarded() -> None:
    broken: list[ev.AnyEvent] = [
        ev.ToolCallStart(0, "c", "f"),
        ev.ToolCallDelta(0, '{"a'),
        ev.ToolCallIncomplete(0, "x"),
    ]
    for answered in ((), (v.ToolCall("x", "g", "{}"),)):
        passed, guard = run_repeat_stopper(broken, answered)
        assert passed == broken
        assert not guard.finished


def test_incomplete_repeated_call_is_forwarded() -> None:
    """Its text follows as content, so the client needs the call for context."""
    broken = [ev.ToolCallStart(1, "c", "f"), ev.ToolCallDelta(1, "{"), ev.ToolCallIncomplete(1, "x")]
    passed, guard = run_repeat_stopper([*call(0), *broken])
    assert passed == [*call(0), *broken]
    assert not guard.finished


def test_repeat_check_time_is_linear_in_arguments_length() -> None:
    def made(pieces: int) -> Callable[[], object]:
        events = list(call(0, "f", "{", *['"aaaa": 1,'] * pieces))
        return lambda: RepeatStopper().feed(events)

    assert cpu_cost.growth(made, 3_000, 30_000, most=3) < 3


@pytest.mark.parametrize("arguments", ["", "{", "[" * 100_000, '{"a": ' + "1" * 5000 + "}"])
def test_answered_call_with_invalid_json_is_accepted(arguments: str) -> None:
    """The client's history may contain a truncated call, or numbers and nesting beyond the limits of Python's JSON."""
    passed, _ = run_repeat_stopper(call(0), (v.ToolCall("x", "f", arguments),))
    assert passed == call(0)


def test_deeply_nested_repeated_call_is_found() -> None:
    deep = '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"
    passed, guard = run_repeat_stopper([*call(0, "f", deep), *call(1, "f", deep)])
    assert passed[:3] == call(0, "f", deep)
    assert guard.finished


def test_answered_calls_include_only_current_turn() -> None:
    def made(id: str) -> v.Message:
        return v.Message("assistant", (v.ToolCall(id, "f", "{}"),))

    told = v.Message("user", (v.Text("x"),))
    result = v.Message("user", (v.ToolResult("a", ()),))
    messages = (told, made("old"), result, told, made("a"), result, made("b"))
    assert {c.id for c in answered_calls(v.Request("m", messages))} == {"a", "b"}
    assert answered_calls(v.Request("m", (told,))) == []


# Prose.


def request(*messages: v.Message) -> v.Request:
    return v.Request("m", messages, (v.Tool("get_weather"),))


ASKED = v.Message("user", (v.Text("Weather?"), v.Text("In Paris.")))
CALLED = v.Message("assistant", (v.ToolCall("1", "get_weather", "{}"),))


@pytest.mark.parametrize("role", ["tool", "user"])
def test_results_become_facts_in_prompt(role: v.Role) -> None:
    result = v.Message(role, (v.ToolResult("1", (v.Text("sunny"),)), v.ToolResult("?", (v.Text("x"),))))
    told = results_as_prose(request(v.Message("system", (v.Text("s"),)), ASKED, CALLED, result))
    assert [m.role for m in told.messages] == ["system", "user"]
    (text,) = told.messages[-1].parts
    assert isinstance(text, v.Text)
    assert text.text == (
        "Facts from get_weather: sunny\nFacts from a tool: x\n\n"
        "Answer in one sentence with these facts: Weather?\nIn Paris."
    )
    assert (told.tools, told.tool_choice.mode) == ((), "none")


def test_documents_are_included_in_facts_and_question() -> None:
    document = v.Document(v.MediaSource(text="4711"), "T")
    result = v.Message("tool", (v.ToolResult("1", (document,)),))
    asked = v.Message("user", (document, v.Text("And?")))
    assert "Facts from get_weather: T\n4711\n" in last_text(results_as_prose(request(ASKED, CALLED, result)))
    assert last_text(results_as_prose(request(asked, CALLED, result))).endswith("facts: T\n4711\nAnd?")


def test_tool_names_line_is_not_part_of_question() -> None:
    tool = v.Tool("read", "Reads a file.")
    asked = v.Message("user", (v.Text("Read notes.txt"),))
    result = v.Message("tool", (v.ToolResult("1", (v.Text("sunny"),)),))
    words = v.Message("system", (v.Text("You are an agent. " + "Mind the style. " * 80),))
    made = v.Request("m", (words, asked, v.Message("assistant", (v.ToolCall("1", "read", "{}"),)), result), (tool,))
    least = trim.trim_request(made, "max", GENERIC).request
    assert "Call read if" in str(least.messages[1])
    assert last_text(results_as_prose(least)).endswith("facts: Read notes.txt")


def last_text(told: v.Request) -> str:
    (text,) = told.messages[-1].parts
    assert isinstance(text, v.Text)
    return text.text


def test_results_with_question_in_same_message_are_kept() -> None:
    both = v.Message("user", (v.ToolResult("1", (v.Text("sunny"),)), v.Text("And?")))
    told = results_as_prose(request(ASKED, CALLED, both))
    assert told.messages[:2] == (ASKED, CALLED)
    assert "Facts from get_weather: sunny" in str(told.messages[2])


def test_request_without_results_of_this_turn_is_unchanged() -> None:
    old = v.Message("tool", (v.ToolResult("1", (v.Text("sunny"),)),))
    for messages in ((ASKED,), (ASKED, CALLED, old, ASKED), (old,)):
        assert results_as_prose(request(*messages)) == request(*messages)


def test_failed_results_leave_request_unchanged() -> None:
    good, bad = v.ToolResult("1", (v.Text("sunny"),)), v.ToolResult("2", (v.Text("no city"),), is_error=True)
    for results in ((bad,), (good, bad)):
        messages = (ASKED, CALLED, v.Message("tool", results))
        assert results_as_prose(request(*messages)) == request(*messages)


@pytest.mark.parametrize("mode", ["required", "named"])
def test_required_call_leaves_request_unchanged(mode: Any) -> None:
    result = v.Message("tool", (v.ToolResult("1", (v.Text("sunny"),)),))
    asked = replace(request(ASKED, CALLED, result), tool_choice=v.ToolChoice(mode, "get_weather"))
    assert results_as_prose(asked) == asked


# Re-asking.

REPEATED_CALL = v.ToolCall("", "get_weather", "{ }")


@pytest.mark.parametrize("mode", ["auto", "required", "named"])
@pytest.mark.parametrize("text", ["sunny", "ERROR: no such city", '{"error": "no such city"}', "failed"])
@pytest.mark.parametrize("call", [REPEATED_CALL, None])
def test_reask_request_keeps_tools(mode: Any, text: str, call: v.ToolCall | None) -> None:
    result = v.Message("tool", (v.ToolResult("1", (v.Text(text),)),))
    asked = replace(request(ASKED, CALLED, result), tool_choice=v.ToolChoice(mode, "get_weather" * (mode == "named")))
    again = repeated_call.reask_request(asked, call)
    assert (again.tools, again.tool_choice) == (asked.tools, asked.tool_choice)
    assert again.messages[:3] == asked.messages
    *shown, note = again.messages[3:]
    assert shown == ([result] if call else [])
    told = last_text(replace(again, messages=(note,)))
    assert ("answer" in told) == (mode == "auto" and text == "sunny")
    assert ("Weather?\nIn Paris." in told) == ("answer" in told)
    assert "call a" in told.lower() or "call get_weather" in told.lower()


def test_latest_result_of_same_call_is_shown() -> None:
    def made(id: str, text: str, arguments: str = "{}") -> tuple[v.Message, v.Message]:
        call = v.ToolCall(id, "get_weather", arguments)
        return v.Message("assistant", (call,)), v.Message("tool", (v.ToolResult(id, (v.Text(text),)),))

    messages = (ASKED, *made("0", "old"), ASKED, *made("1", "one"), *made("2", "two"), *made("3", "x", '{"a": 1}'))
    found = repeated_call.earlier_result(request(*messages), REPEATED_CALL)
    assert found is not None
    assert found.call_id == "2"
    assert repeated_call.earlier_result(request(*messages, ASKED), REPEATED_CALL) is None


@pytest.mark.parametrize("part", [v.Text("x" * 5000), v.Document(v.MediaSource(text="4711"), "T")])
def test_long_result_is_not_repeated(part: v.Text | v.Document) -> None:
    asked = request(ASKED, CALLED, v.Message("tool", (v.ToolResult("1", (part,)),)))
    assert len(repeated_call.reask_request(asked, REPEATED_CALL).messages) == 4


def test_found_tools_stay_callable_and_are_not_facts() -> None:
    search = v.Message("assistant", (v.ToolCall("0", "find_tools", "{}"),))
    found = v.Message("tool", (v.ToolResult("0", (v.Text("get_weather"),)),))
    tools = (v.Tool("find_tools", loading="search"), v.Tool("get_weather", loading="found"))
    asked = v.Request("m", (ASKED, search, found), tools)
    assert results_as_prose(asked) is asked
    answered = replace(
        asked, messages=(*asked.messages, CALLED, v.Message("tool", (v.ToolResult("1", (v.Text("sunny"),)),)))
    )
    assert last_text(results_as_prose(answered)).startswith("Facts from get_weather: sunny\n\n")
