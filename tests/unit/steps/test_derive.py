"""Steps that are derived from tools."""

import json
import sys

import pytest

from dragoman.core.messages import Message, Request, Steps, Text, Tool, ToolCall, ToolChoice, ToolResult
from dragoman.steps.apply import apply_steps
from dragoman.steps.derive import MAX_FAILURES, derive_steps


def tool(name: str, description: str = "", **parameters: str) -> Tool:
    properties = {each: {"type": "string", "description": text} for each, text in parameters.items()}
    return Tool(name, description, json.dumps({"properties": properties, "required": list(parameters)}))


SEARCH = tool("search_hotels", "Searches hotels in a city, and returns their ids and prices.", city="The city.")
BOOK = tool("book", "Books a hotel.", hotel_id="The hotel.")
FETCH, ANALYZE = tool("fetch_rows", "Fetches rows."), tool("analyze", "", rows="The rows, as fetch_rows returned them.")
SUBMIT = tool("submit_report", "Submits the report.", text="The findings.")


def asked(text: str, *tools: Tool, done: tuple[str, ...] = ()) -> Request:
    messages = [Message("user", (Text(text),))]
    for number, name in enumerate(done):
        messages.append(Message("assistant", (ToolCall(str(number), name.rstrip("!"), "{}"),)))
        messages.append(Message("tool", (ToolResult(str(number), (Text("ok"),), name.endswith("!")),)))
    return Request("m", tuple(messages), tools)


def derived(text: str, *tools: Tool, done: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    steps = derive_steps(asked(text, *tools, done=done))
    return {} if steps is None else dict(steps.prerequisites)


def test_an_id_comes_from_the_tool_that_returns_such_ids() -> None:
    assert derived("Book a hotel in Bern.", SEARCH, BOOK) == {"book": ("search_hotels",)}


def test_an_id_of_the_user_needs_no_search() -> None:
    assert derived("Book the hotel H-12.", SEARCH, BOOK) == {}
    assert derived("Book hotel 40113.", SEARCH, BOOK) == {}


def test_a_search_in_an_earlier_turn_is_enough() -> None:
    earlier = asked("Hotels in Bern?", SEARCH, BOOK, done=("search_hotels",))
    later = Request("m", (*earlier.messages, Message("user", (Text("Book the first."),))), earlier.tools)
    assert derive_steps(later) is None


def test_a_producer_that_keeps_failing_is_no_longer_needed() -> None:
    assert derived("Book in Bern.", SEARCH, BOOK, done=("search_hotels!",)) == {"book": ("search_hotels",)}
    assert derived("Book in Bern.", SEARCH, BOOK, done=("search_hotels!",) * MAX_FAILURES) == {}


@pytest.mark.parametrize(
    "others",
    [
        (tool("search_hotels", "Searches hotels.", city=""),),
        (SEARCH, tool("list_hotels", "Lists the ids of all hotels.")),
        (tool("get_hotel", "Returns a hotel by its id.", hotel_id=""),),
        (tool("search_trains", "Returns ids of trains."),),
    ],
)
def test_unclear_producers_are_not_derived(others: tuple[Tool, ...]) -> None:
    assert derived("Book in Bern.", *others, BOOK) == {}


@pytest.mark.parametrize(
    ("text", "is_needed"),
    [
        ("The rows from fetch_rows.", True),
        ("The rows returned by `fetch_rows`.", True),
        ("Call fetch_rows first.", True),
        ("The output of fetch_rows.", True),
        ("Use this instead of fetch_rows.", False),
        ("Faster than fetch_rows.", False),
        ("As fetch_rows, but for columns.", False),
    ],
)
def test_descriptions_name_the_tool_whose_result_is_needed(text: str, is_needed: bool) -> None:
    expected = {"analyze": ("fetch_rows",)} if is_needed else {}
    assert derived("Analyze.", FETCH, tool("analyze", "Analyzes.", rows=text)) == expected
    assert derived("Analyze.", FETCH, tool("analyze", text)) == expected


@pytest.mark.parametrize(
    ("end", "is_terminal"),
    [
        (SUBMIT, True),
        (tool("finalAnswer"), True),
        (tool("attempt_completion"), True),
        (tool("hand_over", "Call this once you are done."), True),
        (tool("get_report", "Returns a report."), False),
        (tool("submit_form", "Submits a web form."), False),
        (tool("send_mail", "Sends mail about the end of the task."), False),
    ],
)
def test_a_terminal_tool_is_found_by_its_name_or_description(end: Tool, is_terminal: bool) -> None:
    steps = derive_steps(asked("Report.", FETCH, end))
    assert (steps is not None and steps.terminal == (end.name,)) is is_terminal


def test_two_terminal_tools_are_unclear() -> None:
    assert derive_steps(asked("Report.", SUBMIT, tool("finish"))) is None


def test_tools_that_need_each_other_have_no_steps() -> None:
    assert derive_steps(asked("Go.", tool("a_one", "Needs ids from b_one."), tool("b_one", "Ids from a_one."))) is None


def test_many_tools_and_unusual_schemas_have_no_steps() -> None:
    assert derive_steps(asked("Go.", *(tool(f"tool_{n}") for n in range(65)), SUBMIT)) is None
    assert derive_steps(asked("Go.", Tool("a", "", "[1]"), Tool("b", "", '{"properties": 1, "required": [2]}'))) is None


def test_derived_steps_restrict_a_request() -> None:
    request = asked("Analyze sales.", FETCH, ANALYZE, SUBMIT)
    applied = apply_steps(Request("m", request.messages, request.tools, steps=Steps(derive=True)))
    assert [each.name for each in applied.request.tools] == ["fetch_rows"]
    later = asked("Analyze.", FETCH, ANALYZE, SUBMIT, done=("fetch_rows",))
    done = apply_steps(Request("m", later.messages, later.tools, steps=Steps(derive=True)))
    assert [each.name for each in done.request.tools] == ["fetch_rows", "analyze", "submit_report"]
    nothing = apply_steps(Request("m", request.messages, (FETCH,), steps=Steps(derive=True)))
    assert nothing.notices[0].code == "steps_not_applied"
    assert nothing.request.tools == (FETCH,)


def test_derived_steps_do_not_forbid_calls_after_their_limit() -> None:
    for done in (("bash",) * 24, ("bash!",) * 5):
        request = asked("Build it.", tool("bash"), tool("finish"), done=done)
        applied = apply_steps(Request("m", request.messages, request.tools, steps=Steps(derive=True)))
        assert [each.code for each in applied.notices] == ["steps_not_applied"]
        assert applied.request.tools == request.tools
        assert applied.request.tool_choice.mode == "auto"


def test_a_choice_of_the_client_comes_before_derived_steps() -> None:
    request = asked("Book in Bern.", SEARCH, BOOK)
    named = Request("m", request.messages, request.tools, ToolChoice("named", "book"), steps=Steps(derive=True))
    applied = apply_steps(named)
    assert [each.code for each in applied.notices] == ["steps_not_applied"]
    assert applied.request.tool_choice == named.tool_choice


def test_a_tool_that_waits_is_named_where_the_model_is_free() -> None:
    request = asked("Book in Bern.", SEARCH, BOOK)
    (notice,) = apply_steps(Request("m", request.messages, request.tools, steps=Steps(derive=True))).notices
    assert notice.label == "steps_applied: free"
    assert "may not call book now" in notice.message


@pytest.mark.parametrize(
    "tools",
    [
        (FETCH, tool("note", "Notes a thought. This does not end the task.")),
        (FETCH, tool("ssh_close", "Ends the session.")),
        (FETCH, tool("submit", "Submits the form.")),
        (tool("get_user", "Returns a user, by its id.", id=""), tool("delete_user", "Deletes a user.", user_id="")),
        (tool("list_parts", "Lists parts and their ids."), tool("show_art", "Displays a picture.", art_id="")),
        (FETCH, tool("analyze", "Do not use the results of fetch_rows.")),
    ],
)
def test_similar_words_do_not_lead_to_steps(tools: tuple[Tool, ...]) -> None:
    assert derive_steps(asked("Go.", *tools)) is None


def work_of(count: int) -> int:
    """The number of calls of functions for this many tools, all of which could depend on each other."""
    about = "x" * 100 + " the id"
    tools = [tool(f"get_foo_{n}", about, **{f"p{n}x{m}_foo_id": "" for m in range(20)}) for n in range(count)]
    request, events = asked("Go.", *tools), 0

    def observe(frame: object, event: str, argument: object) -> None:
        nonlocal events
        events += event in ("call", "c_call")

    sys.setprofile(observe)
    try:
        derive_steps(request)
    finally:
        sys.setprofile(None)
    return events


def test_work_grows_with_the_tools_rather_than_their_pairs() -> None:
    assert work_of(64) < 6 * work_of(16)
