"""What the conversation states about ids: names that are ids, ids that other tools need, defaults, numbered names."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from dragoman.core.messages import Image, MediaSource, Message, Part, Request, Text, Tool, ToolCall, ToolResult
from dragoman.guard.invented_values.detector import InventedValue, InventedValueDetector

STRING: Mapping[str, Any] = {"type": "string"}


def tool(name: str, description: str = "", /, **properties: Mapping[str, Any]) -> Tool:
    return Tool(name, description, json.dumps({"type": "object", "properties": properties, "required": [*properties]}))


def user(*parts: Part | str) -> Message:
    return Message("user", tuple(Text(part) if isinstance(part, str) else part for part in parts))


def system(text: str) -> Message:
    return Message("system", (Text(text),))


def past_call(name: str, arguments: Mapping[str, Any], result: str) -> tuple[Message, ...]:
    call = ToolCall("c1", name, json.dumps(arguments))
    return Message("assistant", (call,)), Message("tool", (ToolResult("c1", (Text(result),)),))


def find(tools: tuple[Tool, ...], arguments: Mapping[str, Any], *messages: Message) -> InventedValue | None:
    return InventedValueDetector(Request("m", messages, tools), "reask").find(tools[0], json.dumps(arguments))


BOARDS = (tool("get_board", board_id=STRING), tool("list_boards", "Lists the boards."))
GROUPS = (tool("get_boards", board_ids={"type": "array", "items": STRING}), tool("list_boards", "Lists the boards."))
IMAGE = Image(MediaSource(media_type="image/png", data="AA=="))
STATED: dict[str, tuple[Message, ...]] = {
    "after id": (user("Open the board with the id 'Team Alpha'."),),
    "after a colon": (user("Open a board. Board ID: Team Alpha"),),
    "after a verb": (user("The id is Team Alpha."),),
    "in other case": (user("Open the board with the id team alpha."),),
    "pasted": (user('Open the first: [{"board_id": "Team Alpha"}]'),),
    "pasted in camel case": (user('Open the first: [{"boardId": "Team Alpha"}]'),),
    "pasted list": (user('Open the last: {"board_ids": [\n  "Team Beta",\n  "Team Alpha"\n]}'),),
    "image": (user("Open this one.", IMAGE),),
    "call that worked": (
        user("Open Team Alpha."),
        *past_call("get_board", {"board_id": "Team Alpha"}, "3 cards"),
        user("Open it again."),
    ),
}


@pytest.mark.parametrize("messages", STATED.values(), ids=STATED)
def test_name_that_is_stated_as_an_id_is_not_reported(messages: tuple[Message, ...]) -> None:
    assert find(BOARDS, {"board_id": "Team Alpha"}, *messages) is None


NOT_STATED: dict[str, tuple[Message, ...]] = {
    "name": (user("Open the board Team Alpha."),),
    "question for the id": (user("What is the id of the board Team Alpha?"),),
    "question for an id before it": (user("Find out the id. Team Alpha needs it."),),
    "word that ends like id": (user("The board was paid: Team Alpha did it."),),
    "other member": (user('[{"board_id": "B-1", "name": "Team Alpha"}]'),),
    "call that failed": (user("Open Team Alpha."), *past_call("get_board", {"board_id": "Team Alpha"}, "error: none")),
    "error that repeats it": (
        user("Open Team Alpha."),
        *past_call("get_board", {"board_id": "Team Alpha"}, "error: no board Team Alpha"),
    ),
    "argument of another parameter": (
        user("Open Team Alpha."),
        *past_call("list_boards", {"name": "Team Alpha"}, "[]"),
    ),
}


@pytest.mark.parametrize("messages", NOT_STATED.values(), ids=NOT_STATED)
def test_name_that_is_not_stated_as_an_id_is_reported(messages: tuple[Message, ...]) -> None:
    assert find(BOARDS, {"board_id": "Team Alpha"}, *messages)


def test_names_of_a_list_are_stated_as_ids() -> None:
    asked = user("Open the boards with the ids 'Team Alpha' and 'Team Beta'.")
    assert find(GROUPS, {"board_ids": ["Team Alpha", "Team Beta"]}, asked) is None
    asked = user('{"board_ids": ["Team Alpha"], "owner": "Team Beta"}')
    assert find(GROUPS, {"board_ids": ["Team Alpha", "Team Beta"]}, asked)


SHOP = (
    tool("refund_order", order_id=STRING),
    tool("list_orders", customer_id=STRING),
    tool("search_customers", name=STRING),
)
KNOWN: dict[str, tuple[Message, ...]] = {
    "system prompt": (system("The signed-in customer's id is CUST-4471."),),
    "other order of words": (system("The id of the signed-in customer is CUST-4471."),),
    "camel case": (system("customerId=CUST-4471"),),
    "words": (system("Customer ID: 4471"),),
    "result of another tool": (user("Hi."), *past_call("whoami", {}, '{"customer_id": "CUST-4471"}')),
    "id without digits": (user("Hi."), *past_call("whoami", {}, '{"customer_id": "ann-lee"}')),
    "call that worked": (user("Hi."), *past_call("greet", {"customer_id": "CUST-4471"}, "Hello.")),
}


@pytest.mark.parametrize("before", KNOWN.values(), ids=KNOWN)
def test_tool_whose_id_is_known_is_the_first(before: tuple[Message, ...]) -> None:
    found = find(SHOP, {"order_id": "12345"}, *before, user("Refund my last order."))
    assert found is not None
    assert "call list_orders, or" in found.reason


UNKNOWN: dict[str, tuple[Message, ...]] = {
    "nothing": (),
    "numbers": (system("Today is 2026-11-27. A customer may return goods within 30 days."),),
    "rule": (system("You need the customer's id before you list orders. Never guess a customer id."),),
    "schema": (system('{"customer_id": {"type": "string"}}'),),
    "id of another thing": (system("The shop's id is SHOP-4471."),),
    "empty": (user("Hi."), *past_call("whoami", {}, '{"customer_id": ""}')),
    "error": (user("Hi."), *past_call("greet", {"customer_id": "4471"}, "error: no customer id 4471")),
}


@pytest.mark.parametrize("before", UNKNOWN.values(), ids=UNKNOWN)
def test_tool_that_finds_the_first_id_is_the_first_if_no_id_is_known(before: tuple[Message, ...]) -> None:
    found = find(SHOP, {"order_id": "12345"}, *before, user("Refund my last order."))
    assert found is not None
    assert "call search_customers, or" in found.reason


PEOPLE = (tool("get_user", user_id=STRING), tool("search_users", "Finds users by name.", name=STRING))


@pytest.mark.parametrize("value", ["EMP-1234", "EMP-001", "UID-12345", "X12345", "E1023", "TX9921"])
def test_numbered_name_is_an_id_where_a_tool_could_find_it(value: str) -> None:
    assert find(PEOPLE, {"user_id": value}, user("Show Ann Lee."))


@pytest.mark.parametrize("value", ["PO-12345", "INV-2024"])
def test_numbered_name_of_an_order_is_an_id(value: str) -> None:
    assert find(SHOP, {"order_id": value}, user("Refund the last order of Ann Lee."))


@pytest.mark.parametrize("value", ["A4", "h264", "B52", "F-16", "COVID-19", "E220"])
def test_short_numbered_name_is_general_knowledge(value: str) -> None:
    assert find(PEOPLE, {"user_id": value}, user("Show it.")) is None


@pytest.mark.parametrize("value", ["ISO9001", "ISO-9001", "ISO27001"])
def test_numbered_name_that_no_tool_could_find_is_general_knowledge(value: str) -> None:
    assert find((tool("get_standard", standard_id=STRING), *BOARDS), {"standard_id": value}, user("Show it.")) is None


def clusters(description: str) -> tuple[Tool, ...]:
    rule = {"type": "string", "description": description}
    return tool("restart_cluster", cluster_id=rule), tool("list_clusters", "Lists the clusters.")


@pytest.mark.parametrize(
    "description",
    ["Cluster id; use main-01 if not known", "Cluster id. Default: main-01.", "Cluster id (main-01 is the usual one)"],
)
def test_documented_default_is_no_invented_example(description: str) -> None:
    assert find(clusters(description), {"cluster_id": "main-01"}, user("Restart the cluster.")) is None


@pytest.mark.parametrize(
    "description",
    [
        "Cluster id, e.g. main-01",
        "Cluster id, such as `main-01`.",
        "Cluster id (for example: main-01)",
        "Cluster id like main-01",
        "Cluster id. Example: main-01",
        "Cluster id, e.g. main-02, main-03 or main-01",
    ],
)
def test_example_in_a_description_is_invented(description: str) -> None:
    assert find(clusters(description), {"cluster_id": "main-01"}, user("Restart the cluster."))
