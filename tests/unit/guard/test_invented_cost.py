"""The work of the search for invented identifiers has a limit, for any number of values, tools and tool results."""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from dragoman.core.messages import Message, Request, Text, Tool, ToolCall, ToolResult
from dragoman.guard.invented_values import known_words
from dragoman.guard.invented_values.compact_text import MAX_SEARCHED_CHARS
from dragoman.guard.invented_values.detector import InventedValue, InventedValueDetector
from dragoman.guard.invented_values.known_words import MAX_TEXT_CHARS
from support import cpu_cost

STRING: Mapping[str, Any] = {"type": "string"}
NAMES: Mapping[str, Any] = {"type": "array", "items": STRING}


def tool(name: str, description: str = "", /, **properties: Mapping[str, Any]) -> Tool:
    return Tool(name, description, json.dumps({"type": "object", "properties": properties, "required": [*properties]}))


def calls_in(work: Callable[[], object]) -> int:
    """The number of calls of functions."""
    events = 0

    def observe(frame: object, event: str, argument: object) -> None:
        nonlocal events
        events += event in ("call", "c_call")

    sys.setprofile(observe)
    try:
        work()
    finally:
        sys.setprofile(None)
    return events


MEMBERS = (tool("get_members", user_ids=NAMES), tool("search_users", "Finds users by name.", name=STRING))


def members(names: int, result: str) -> tuple[InventedValueDetector, str]:
    """Names that the system prompt contains."""
    ids = [f"Ann L{'e' * number}" for number in range(1, names + 1)]
    messages = (
        Message("system", (Text(" ".join(ids)),)),
        Message("user", (Text("Show the members."),)),
        Message("assistant", (ToolCall("c1", "search_users", '{"name": "Ann"}'),)),
        Message("tool", (ToolResult("c1", (Text(result),)),)),
    )
    return InventedValueDetector(Request("m", messages, MEMBERS), "reask"), json.dumps({"user_ids": ids})


def test_texts_are_read_once_for_all_names(monkeypatch: pytest.MonkeyPatch) -> None:
    without, read = known_words._without, list[str | None]()

    def counted(text: str | None, tokens: frozenset[str]) -> str | None:
        read.append(text)
        return without(text, tokens)

    monkeypatch.setattr("dragoman.guard.invented_values.known_words._without", counted)
    detector, arguments = members(100, "Error: " + "word foo " * 100)
    for _ in range(3):
        assert detector.find(MEMBERS[0], arguments) is None
    assert len(read) <= 2  # its words, and its text


def test_searches_for_names_count() -> None:
    detector, arguments = members(300, "word foo " * 100_000)
    assert detector.find(MEMBERS[0], arguments) is None
    for number in range(100):
        detector.find(MEMBERS[0], json.dumps({"user_ids": [f"Tom R{'a' * number}y" for number in range(300)]}))
    assert MAX_SEARCHED_CHARS <= detector.budget.searched_chars <= MAX_SEARCHED_CHARS + 2_000_000


def test_names_in_a_long_conversation_are_not_searched() -> None:
    detector, _ = members(1, "word foo " * (MAX_TEXT_CHARS // 9 + 1))
    assert detector.find(MEMBERS[0], '{"user_ids": ["Tom Ray"]}') is None
    assert detector.budget.searched_chars == 0


def thing(number: int) -> str:
    """A word of letters."""
    return "".join(chr(ord("a") + int(digit)) for digit in f"{number:06}"[::-1])


def refunds(tools: int, ids: int) -> Callable[[], InventedValue | None]:
    """Tools that need the ids of others: each search needs the id that the next one finds, and further ones."""
    further = {f"{thing(number)}_id": STRING for number in range(tools + 1, tools + 1 + ids)}
    searches = [
        tool(f"search_{thing(number)}", **further, **{f"{thing(number + 1)}_id": STRING}) for number in range(tools)
    ]
    refund = tool("refund", **{f"{thing(0)}_id": STRING})
    request = Request("m", (Message("user", (Text("Refund it."),)),), (refund, *searches))
    return lambda: InventedValueDetector(request, "reask").find(refund, json.dumps({f"{thing(0)}_id": "77777"}))


def test_work_for_the_first_tool_grows_with_the_tools() -> None:
    assert refunds(20, 0)()
    assert calls_in(refunds(80, 0)) < 6 * calls_in(refunds(20, 0))


def test_work_for_the_first_tool_grows_with_the_definitions() -> None:
    """Four times as many tools, each with four times as many ids."""
    assert calls_in(refunds(60, 60)) < 20 * calls_in(refunds(15, 15))


def test_tools_that_could_find_a_value_are_found_once() -> None:
    def work(names: int) -> Callable[[], object]:
        tools = (*MEMBERS, *(tool(f"search_{n}_things") for n in range(200)))
        request = Request("m", (Message("user", (Text("Hello."),)), Message("system", (Text("Tom Ray"),))), tools)
        return lambda: InventedValueDetector(request, "warn").find(
            MEMBERS[0], json.dumps({"user_ids": ["Tom Ray"] * names})
        )

    assert calls_in(work(40)) < 3 * calls_in(work(10))


def test_conversation_is_read_once_for_all_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = tuple(
        part
        for number in range(500)
        for part in (
            Message("user", (Text("Show the next one, please."),)),
            Message("assistant", (ToolCall(f"c{number}", "search_users", '{"name": "Ann"}'),)),
            Message("tool", (ToolResult(f"c{number}", (Text("None."),)),)),
        )
    )
    later: list[Message] = []
    detector = InventedValueDetector(Request("m", messages, MEMBERS), "reask", later)

    def reported() -> None:
        assert detector.find(MEMBERS[0], '{"user_ids": ["77777"]}')

    first = calls_in(reported)
    assert calls_in(reported) < first / 10
    later.append(Message("user", (Text("It is one of 88888."),)))
    assert calls_in(reported) > first / 10


@pytest.mark.parametrize(
    "repeated", ["id 1 ", "id of a b c d e ", 'id"   :   ', "a_id ", "user id ", "Tom Ray ", "ids: Tom Ray "]
)
def test_cost_is_linear_in_texts_about_ids(repeated: str) -> None:
    tools = (tool("get_user", user_id=STRING), tool("search_users", group_id=STRING), tool("list_groups"))

    def made(chars: int) -> Callable[[], object]:
        asked = Message("user", (Text(repeated * (chars // len(repeated))),))
        system = Message("system", (Text(repeated.replace("Tom", "Ann") * (chars // len(repeated))),))
        values = ["zzzz-zzz" if "Tom" not in repeated else f"Tom Ray{'y' * number}" for number in range(3)]

        def found() -> None:
            for value in values:
                detector = InventedValueDetector(Request("m", (system, asked), tools), "reask")
                detector.find(tools[0], json.dumps({"user_id": value}))

        return found

    assert cpu_cost.growth(made, 20_000, 200_000, most=4, floor_s=0.01) < 4
