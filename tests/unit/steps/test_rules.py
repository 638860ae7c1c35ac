"""Which tools steps allow now."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.messages import Image, MediaSource, Message, Request, Steps, Text, ToolCall, ToolResult
from dragoman.steps.progress import TurnProgress, request_progress
from dragoman.steps.rules import TERMINAL_TRIES, Allowed, allowed_now

ASK = Message("user", (Text("Report on sales."),))
OFFERED = ("fetch", "analyze", "note", "submit")


def called(*calls: str) -> tuple[Message, ...]:
    """A turn with these calls; one with `!` failed, and text after `:` is an argument."""
    messages = [ASK]
    for number, each in enumerate(calls):
        name, _, argument = each.rstrip("!").partition(":")
        messages.append(Message("assistant", (ToolCall(str(number), name, json.dumps({"a": argument})),)))
        messages.append(Message("tool", (ToolResult(str(number), (Text("ok"),), each.endswith("!")),)))
    return tuple(messages)


def progress_of(messages: Sequence[Message]) -> TurnProgress:
    return request_progress(Request("m", tuple(messages)))


def now(steps: Steps, *calls: str, offered: tuple[str, ...] = OFFERED) -> Allowed:
    return allowed_now(steps, offered, progress_of(called(*calls)))


ORDERED = Steps(("fetch", "analyze"), ordered=True, terminal=("submit",))
FREE_ORDER = Steps(("fetch", "analyze"), terminal=("submit",))


def test_ordered_steps_name_the_next_tool() -> None:
    assert now(ORDERED)[:4] == ("open", ("fetch",), "named", ("fetch", "analyze"))
    assert now(ORDERED, "fetch")[:4] == ("open", ("analyze",), "named", ("analyze",))
    assert now(ORDERED, "fetch", "analyze")[:3] == ("terminal", ("submit",), "named")
    assert now(ORDERED, "fetch", "analyze", "submit")[:3] == ("finished", (), "none")


def test_a_failed_call_does_not_complete_a_step() -> None:
    assert now(ORDERED, "fetch!").tools == ("fetch",)
    assert now(ORDERED, "fetch", "analyze", "submit!").tools == ("submit",)


def test_without_an_order_each_tool_but_the_terminal_is_allowed() -> None:
    assert now(FREE_ORDER)[:3] == ("open", ("fetch", "analyze", "note"), "required")
    assert now(FREE_ORDER, "analyze")[:4] == ("open", ("fetch", "analyze", "note"), "required", ("fetch",))
    assert now(FREE_ORDER, "analyze", "fetch").tools == ("submit",)


def test_a_repeated_step_needs_different_calls() -> None:
    steps = Steps(("fetch", "fetch"), terminal=("submit",))
    assert now(steps, "fetch:a", "fetch:a").open == ("fetch",)
    assert now(steps, "fetch:a", "fetch:b").tools == ("submit",)


def test_any_tool_may_be_required() -> None:
    steps = Steps(("*", "*"), terminal=("submit",), max_calls_per_tool={"*": 3})
    assert now(steps, "fetch!").tools == ("fetch", "analyze", "note")
    assert now(steps, "fetch", "note").tools == ("submit",)
    ordered = Steps(("*", "analyze"), ordered=True, prerequisites={"submit": ("*",)}, terminal=("submit",))
    assert [now(ordered, *done).tools for done in ((), ("note",), ("note", "analyze"))] == [
        ("fetch", "analyze", "note"),
        ("analyze",),
        ("submit",),
    ]


def test_prerequisites_come_first() -> None:
    steps = Steps(prerequisites={"submit": ("analyze",), "analyze": ("fetch",)}, terminal=("submit",))
    assert now(steps)[:4] == ("open", ("fetch", "note"), "required", ("fetch", "analyze"))
    assert now(steps, "fetch").tools == ("fetch", "analyze", "note")
    assert now(steps, "fetch", "analyze")[:3] == ("terminal", ("submit",), "named")


def test_prerequisites_of_required_steps_keep_the_order() -> None:
    steps = Steps(("analyze", "note"), ordered=True, prerequisites={"analyze": ("fetch",)})
    assert [now(steps, *done).tools for done in ((), ("fetch",), ("fetch", "analyze"))] == [
        ("fetch",),
        ("analyze",),
        ("note",),
    ]


def test_a_terminal_tool_without_steps_ends_the_turn_at_any_time() -> None:
    assert now(Steps(terminal=("submit",)))[:3] == ("open", OFFERED, "required")
    assert now(Steps(terminal=("submit",)), "submit").state == "finished"


def test_of_two_terminal_tools_one_without_prerequisites_is_allowed_at_once() -> None:
    steps = Steps(prerequisites={"submit": ("fetch",)}, terminal=("submit", "decline"))
    offered = (*OFFERED, "decline")
    assert now(steps, offered=offered).tools == ("fetch", "analyze", "note", "decline")
    assert now(steps, "fetch", offered=offered)[:3] == ("terminal", ("submit", "decline"), "required")


def test_without_a_terminal_tool_the_model_is_free_in_the_end() -> None:
    assert now(Steps(("fetch",)), "fetch")[:3] == ("free", OFFERED, "auto")


def test_words_may_be_what_follows_the_steps() -> None:
    steps = Steps(("fetch",), after="text")
    assert now(steps).mode == "required"
    assert now(steps, "fetch") == Allowed("finished", (), "none")


def test_a_tool_at_its_limit_is_not_allowed() -> None:
    steps = Steps(("fetch",), terminal=("submit",), max_calls_per_tool={"note": 1})
    assert now(steps, "note").tools == ("fetch", "analyze")
    every = Steps(("fetch",), terminal=("submit",), max_calls_per_tool={"*": 1, "note": 2})
    assert now(every, "note", "analyze").tools == ("fetch", "note")


def test_a_required_tool_at_its_limit_ends_the_steps() -> None:
    steps = Steps(("fetch",), terminal=("submit",), max_calls_per_tool={"fetch": 2})
    assert now(steps, "fetch!", "fetch!") == Allowed("limit", (), "none", ("fetch",), "2 calls of fetch")
    ends = Steps(("fetch",), terminal=("submit",), max_calls_per_tool={"fetch": 2}, at_limit="terminal")
    assert now(ends, "fetch!", "fetch!") == Allowed("limit", ("submit",), "named", ("fetch",), "2 calls of fetch")


def test_calls_of_a_turn_are_limited() -> None:
    steps = Steps(("fetch",), terminal=("submit",), max_calls=3)
    assert now(steps, "note", "note:b", "note:c").limit == "3 calls"
    ends = Steps(("fetch",), terminal=("submit",), max_calls=3, at_limit="terminal")
    notes = ("note", "note:b", "note:c")
    assert now(ends, *notes).tools == ("submit",)
    assert now(ends, *notes, *["submit!"] * TERMINAL_TRIES)[:3] == ("limit", (), "none")


def test_failures_in_a_row_end_the_steps() -> None:
    failed = ["fetch!"] * 5
    assert now(ORDERED, *failed[1:]).tools == ("fetch",)
    assert now(ORDERED, *failed)[:5] == ("limit", (), "none", ("fetch", "analyze"), "5 failed calls in a row")
    assert now(ORDERED, *failed, "fetch", "analyze!").tools == ("analyze",)


def test_a_new_question_begins_new_steps() -> None:
    done = called("fetch", "analyze")
    assert allowed_now(ORDERED, OFFERED, progress_of((*done, ASK))).tools == ("fetch",)


def test_text_next_to_results_does_not_begin_a_turn() -> None:
    call = Message("assistant", (ToolCall("1", "fetch", "{}"),))
    result = Message("user", (ToolResult("1", (Text("ok"),)), Text("<system-reminder>Be brief.</system-reminder>")))
    assert allowed_now(ORDERED, OFFERED, progress_of((ASK, call, result))).tools == ("analyze",)


@pytest.mark.parametrize(
    ("result", "succeeds"),
    [
        ("Error: no such file", False),
        ('{"error": "no such file"}', False),
        ('{"error": null, "data": 1}', True),
        ('{"errors": [], "data": 1}', True),
        ("12 rows", True),
    ],
)
def test_errors_are_read_from_the_text(result: str, succeeds: bool) -> None:
    call = Message("assistant", (ToolCall("1", "fetch", "{}"),))
    answered = (ASK, call, Message("tool", (ToolResult("1", (Text(result),)),)))
    assert bool(progress_of(answered).done) is succeeds


NAMES = st.sampled_from(["a", "b", "c", "d"])
STEPS = st.builds(
    lambda required, ordered, before, limits, calls: Steps(
        tuple(required), ordered, {**before, "end": ("d",)}, ("end",), calls, limits
    ),
    st.lists(NAMES, max_size=4),
    st.booleans(),
    st.fixed_dictionaries({}, optional={"b": st.just(("a",)), "c": st.just(("a", "b")), "d": st.just(("c",))}),
    st.dictionaries(st.sampled_from(["a", "b", "c", "d", "*"]), st.integers(4, 6), max_size=2),
    st.integers(4, 30),
)


@given(STEPS, st.lists(st.tuples(st.sampled_from("abcdz"), st.booleans(), st.sampled_from("xyz")), max_size=12))
def test_a_terminal_tool_is_never_allowed_early(steps: Steps, turn: list[tuple[str, bool, str]]) -> None:
    calls = [f"{name}:{argument}{'' if succeeds else '!'}" for name, succeeds, argument in turn]
    allowed = now(steps, *calls, offered=("a", "b", "c", "d", "z", "end"))
    different = {(name, argument) for name, succeeds, argument in turn if succeeds}
    missing = [name for name in "abcd" if steps.required.count(name) > sum(done == name for done, _ in different)]
    if missing or not any(done == "d" for done, _ in different):
        assert "end" not in allowed.tools
    if allowed.mode == "named":
        assert len(allowed.tools) == 1


@given(STEPS, st.data())
def test_steps_always_come_to_an_end(steps: Steps, data: st.DataObject) -> None:
    calls: list[str] = []
    for number in range(60):
        allowed = now(steps, *calls, offered=("a", "b", "c", "d", "z", "end"))
        if allowed.mode == "none":
            return
        calls.append(f"{data.draw(st.sampled_from(allowed.tools))}:{number}{data.draw(st.sampled_from(['', '!']))}")
    raise AssertionError(f"no end after {calls}")


@pytest.mark.parametrize(
    ("result", "succeeds"),
    [
        ('{"status": "error", "code": 3}', False),
        ('{"success": false}', False),
        ('{"ok": false}', False),
        ('{"ok": true, "status": "failed over"}', True),
        ("Failed: no such file", False),
        ("Failed to open the file", False),
        ("Failed payments in March: 3", True),
    ],
)
def test_failures_are_read_from_a_status(result: str, succeeds: bool) -> None:
    call = Message("assistant", (ToolCall("1", "fetch", "{}"),))
    answered = (ASK, call, Message("tool", (ToolResult("1", (Text(result),)),)))
    assert bool(progress_of(answered).done) is succeeds


def test_results_belong_to_the_last_open_call_of_a_reused_id() -> None:
    turn: list[Message] = [ASK]
    for name, failed in (("fetch", True), ("analyze", False), ("note", True)):
        turn.append(Message("assistant", (ToolCall("call_0", name, "{}"),)))
        turn.append(Message("tool", (ToolResult("call_0", (Text("x"),), failed),)))
    progress = progress_of(turn)
    assert (dict(progress.calls), dict(progress.done)) == ({"fetch": 1, "analyze": 1, "note": 1}, {"analyze": 1})
    assert progress.failures == 1


def test_an_image_after_results_does_not_begin_a_turn() -> None:
    image = Message("user", (Image(MediaSource("base64", "AAAA", "image/png")),))
    assert allowed_now(ORDERED, OFFERED, progress_of((*called("fetch"), image))).tools == ("analyze",)
    assert allowed_now(ORDERED, OFFERED, progress_of((*called("fetch"), ASK, image))).tools == ("fetch",)
