"""Identifiers that occur nowhere in the conversation are found; values that the user's words imply are not reported."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from dragoman import dialects
from dragoman.core.errors import DragomanError
from dragoman.core.messages import (
    Image,
    MediaSource,
    Message,
    Part,
    Request,
    Role,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from dragoman.guard.invented_values.compact_text import MAX_SEARCHED_CHARS
from dragoman.guard.invented_values.detector import InventedValue, InventedValueDetector
from dragoman.guard.invented_values.known_words import MAX_TEXT_CHARS
from support import client_recordings, cpu_cost
from support.check_each import check_each

STRING: Mapping[str, Any] = {"type": "string"}
BY_PATH = {dialects.get(name).path: dialects.get(name) for name in dialects.names()}


def name_of(item: tuple[str, object]) -> str:
    return item[0]


def tool(name: str, description: str = "", /, **properties: Mapping[str, Any]) -> Tool:
    return Tool(name, description, json.dumps({"type": "object", "properties": properties, "required": [*properties]}))


def described(text: str) -> Mapping[str, Any]:
    return {"type": "string", "description": text}


TOOLS = (
    tool("search_users", "Finds users by name.", name=STRING),
    tool("get_user", "Returns a user.", user_id=STRING),
    tool("get_account", account_number=STRING),
    tool("list_accounts", "Lists all accounts of a user.", user_id=STRING),
    tool("list_orders", "Lists the orders of a customer.", customer=STRING),
    tool("cancel_order", orderId=STRING, reason=STRING),
    tool("create_order", order_id=STRING, customer_id=STRING, amount={"type": "number"}),
    tool("refund", ids={"type": "array", "items": {"type": "string", "description": "Order ID"}}),
    tool("get_record", "Returns a patient's record.", id=described("ID of the patient")),
    tool("find_patient", "Finds a patient by name.", name=STRING),
    tool("get_interactions", drug_id=described("The id of the drug, e.g. D-1000")),
    tool("search_drugs", query=STRING),
    tool("track", sku=STRING, number=STRING, code=STRING),
    tool("get_ticket", ticket_id={"type": "integer"}),
    tool("search", "Searches the database.", query=STRING),
    tool("convert", currency_id=STRING, country_code=STRING, language=STRING),
    tool("book", airport_code=STRING, timezone_id=STRING, request_id=STRING, idempotency_key=STRING),
    tool("set_state", state_id={"enum": ["open-100", "shut-200"]}, group_id={"type": "string", "default": "main-100"}),
    tool("Read", file_path=STRING, offset={"type": "integer"}),
    tool("Edit", file_path=STRING, old_string=STRING, new_string=STRING),
    tool("Write", file_path=STRING, content=STRING),
    tool("Bash", command=STRING),
    tool("reorder", item_id=STRING),
    tool("list_low_stock", "Lists the items that are missing."),
    tool("update_address", customer=STRING, street=STRING, city=STRING, postcode=STRING),
    tool("send_sms", phone_number=STRING, text=STRING),
    tool("geocode", address=STRING),
    tool("Grep", pattern=STRING, path=STRING),
    tool("Glob", pattern=STRING),
    tool("TodoWrite", todos={"type": "array", "items": {"type": "object", "properties": {"id": STRING}}}),
    tool("move_file", source_path=STRING, target_path=STRING),
    tool("run_code", code=STRING),
    tool("new_user", user_id=described("Choose any id for the user")),
    tool("get_price", coin_id=STRING),
    tool("get_series", series_id=STRING),
    tool("list_files", folder_id=STRING),
    tool("list_events", calendar_id=STRING),
    tool("get_repo", repo_id=STRING),
    tool("get_entity", entity_id=STRING, paper_id=STRING, segment_id=STRING, heading_id=STRING, release_id=STRING),
    tool("get_standard", standard_id=STRING, standard_code=STRING),
)


def conversation(*texts: str) -> tuple[Message, ...]:
    return (Message("system", (Text("You are a helpful agent."),)), *(Message("user", (Text(text),)) for text in texts))


def message_of(role: Role, *parts: Part) -> Message:
    return Message(role, parts)


def find(
    name: str,
    arguments: Mapping[str, Any],
    *messages: Message,
    setting: str = "reask",
    choice: ToolChoice | None = None,
) -> InventedValue | None:
    request = Request("m", messages or conversation("Hello"), TOOLS, tool_choice=choice or ToolChoice())
    called = next(each for each in TOOLS if each.name == name)
    return InventedValueDetector(request, setting).find(called, json.dumps(arguments))


INVENTED: dict[str, tuple[str, str, Mapping[str, Any], str]] = {
    "number": ("Show Ann Lee's profile.", "get_user", {"user_id": "12345"}, "search_users"),
    "code": ("Show Ann Lee's profile.", "get_user", {"user_id": "USR-0042"}, "search_users"),
    "slug": ("Show Ann Lee's profile.", "get_user", {"user_id": "john_doe"}, "search_users"),
    "uuid": ("Show Ann Lee.", "get_user", {"user_id": "550e8400-e29b-41d4-a716-446655440000"}, "search_users"),
    "hexadecimal": ("Show Ann Lee.", "get_user", {"user_id": "5f2c9ab0d1"}, "search_users"),
    "camel case": ("Cancel my last order.", "cancel_order", {"orderId": "ORD-123", "reason": "late"}, "list_orders"),
    "reference of a new thing": (
        "Order a lamp for Ann.",
        "create_order",
        {"order_id": "A-100", "customer_id": "C-1001", "amount": 3},
        "",
    ),
    "one of a list": ("Refund order 77123.", "refund", {"ids": ["77123", "88123"]}, "list_orders"),
    "by description": ("Read Tom Ray's record.", "get_record", {"id": "12345"}, "find_patient"),
    "name": (
        "What interacts with the patient's medication?",
        "get_interactions",
        {"drug_id": "Aspirin"},
        "search_drugs",
    ),
    "placeholder": ("Show Ann Lee's user profile.", "get_user", {"user_id": "<user_id>"}, "search_users"),
    "name of the parameter": ("Show Ann Lee's user id.", "get_user", {"user_id": "user_id"}, "search_users"),
    "shaped code": ("Where is my parcel?", "track", {"sku": "SKU-9912", "number": "1", "code": "x"}, "search"),
    "item": ("Reorder what is missing.", "reorder", {"item_id": "12345"}, "list_low_stock"),
    "integer": ("What about the printer?", "get_ticket", {"ticket_id": 4711}, "search"),
    "part of another number": ("It began on 2026-11-23T12:34:56.", "get_user", {"user_id": "12345"}, "search_users"),
    "file": ("Fix the failing test.", "Read", {"file_path": "/repo/tests/test_billing.py", "offset": 1}, "Glob"),
    "placeholder path": ("Show the package.json.", "Read", {"file_path": "path/to/package.json"}, "Glob"),
    "edited file": ("Fix it.", "Edit", {"file_path": "core/engine.py", "old_string": "a", "new_string": "b"}, "Glob"),
    "number between others in words": ("I have twenty lamps.", "get_user", {"user_id": "12345"}, "search_users"),
    "part of a number with separators": ("Ann has 5, 12 and 345.", "get_user", {"user_id": "51234"}, "search_users"),
    "part of Chinese text": ("查询订单a1b2c3d4的状态", "get_user", {"user_id": "b2c3d4"}, "search_users"),
    "other Chinese name": ("请查询用户张三的订单", "get_user", {"user_id": "李四_2"}, "search_users"),
    "path with a slash as an id": ("Show Ann.", "get_user", {"user_id": "users/ann-lee"}, "search_users"),
    "letters of the alphabet": ("Show Ann Lee's profile.", "get_user", {"user_id": "ABC123"}, "search_users"),
    "abbreviation": ("What did Ann order?", "list_accounts", {"user_id": "USR77"}, "search_users"),
    "number of a word": ("Show Ann Lee's profile.", "get_user", {"user_id": "user42"}, "search_users"),
    "example of the schema": ("Is it safe?", "get_interactions", {"drug_id": "D-1000"}, "search_drugs"),
    "code like an example": ("What is it for?", "get_interactions", {"drug_id": "X-2345"}, "search_drugs"),
    "three digits": ("Show Ann Lee's profile.", "get_user", {"user_id": "123"}, "search_users"),
    "name of a person": ("Show the user Ann Lee.", "get_user", {"user_id": "Ann Lee"}, "search_users"),
    "address": (
        "Where is Ann's order?",
        "update_address",
        {"customer": "Ann", "street": "123 Elm St", "city": "Springfield", "postcode": "12345"},
        "The call was not run.",
    ),
    "postcode": (
        "Ann Lee moved to Elm Street 4 in Springfield.",
        "update_address",
        {"customer": "Ann Lee", "street": "4 Elm Street", "city": "Springfield", "postcode": "12345"},
        "postcode",
    ),
    "phone": ("Tell Ann I am late.", "send_sms", {"phone_number": "+1 555 1234", "text": "Late."}, "phone_number"),
    "moved file": ("Tidy up.", "move_file", {"source_path": "old/report.doc", "target_path": "x"}, "Glob"),
}


def test_invented_identifiers_are_found_with_the_tool_that_could_find_them(subtests: pytest.Subtests) -> None:
    def check(item: tuple[str, tuple[str, str, Mapping[str, Any], str]]) -> None:
        asked, name, arguments, finder = item[1]
        found = find(name, arguments, *conversation(asked))
        assert found, "not found"
        assert found.message.startswith(f"{name}: ")
        assert finder in found.reason

    check_each(subtests, INVENTED.items(), check, name_of)


IMPLIED: dict[str, tuple[str, str, Mapping[str, Any]]] = {
    "as written": ("Show user 12345.", "get_user", {"user_id": "12345"}),
    "integer": ("Show ticket 4711.", "get_ticket", {"ticket_id": 4711}),
    "other case": ("Show user USR-42.", "get_user", {"user_id": "usr-42"}),
    "other separators": ("Show account DE 12 3456.", "get_account", {"account_number": "DE123456"}),
    "without separators": ("Cancel ORD123.", "cancel_order", {"orderId": "ORD-123", "reason": ""}),
    "zeros added": ("Cancel order 42.", "cancel_order", {"orderId": "000042", "reason": ""}),
    "zeros removed": ("Cancel order 00421.", "cancel_order", {"orderId": "421", "reason": ""}),
    "prefix added": ("Cancel order 4210.", "cancel_order", {"orderId": "ORD-4210", "reason": ""}),
    "prefix removed": ("Cancel order #ORD-4210.", "cancel_order", {"orderId": "4210", "reason": ""}),
    "code in Chinese": ("查询订单a1b2c3d4的状态", "cancel_order", {"orderId": "a1b2c3d4", "reason": ""}),
    "code in Japanese": ("注文番号A1B2C3を確認", "cancel_order", {"orderId": "A1B2C3", "reason": ""}),
    "grouped code in Chinese": ("查询订单A1B2 C3D4的状态", "cancel_order", {"orderId": "A1B2-C3D4", "reason": ""}),
    "prefix added to a code in Korean": ("주문 4210을 취소", "cancel_order", {"orderId": "ORD-4210", "reason": ""}),
    "name in Chinese": ("请查询用户张三的订单", "get_user", {"user_id": "张三"}),
    "name in Russian": ("Покажи профиль Ивана.", "get_user", {"user_id": "Иван"}),
    "tens in words": ("Cancel order twenty-three forty five.", "cancel_order", {"orderId": "2345", "reason": ""}),
    "German tens in words": ("Storniere dreiundzwanzig zehn.", "cancel_order", {"orderId": "2310", "reason": ""}),
    "main calendar": ("What is on today?", "list_events", {"calendar_id": "primary"}),
    "top folder": ("What is there?", "list_files", {"folder_id": "root"}),
    "digits in words": ("The user is one two three four.", "get_user", {"user_id": "1234"}),
    "number in words": ("Show user twelve thousand.", "get_user", {"user_id": "12000"}),
    "German digits": ("Zeige Nutzer eins zwei drei vier.", "get_user", {"user_id": "1234"}),
    "slug of a phrase": ("Show the user Ann Lee.", "get_user", {"user_id": "ann_lee"}),
    "camel case of a phrase": ("Show the user Ann Lee.", "get_user", {"user_id": "AnnLee"}),
    "another form of a word": ("Read the electronic catalogue.", "get_user", {"user_id": "electronics"}),
    "small number": ("Show the first ticket.", "get_ticket", {"ticket_id": 1}),
    "short code": ("Who was the author of the Guide?", "get_entity", {"entity_id": "Q42"}),
    "format": ("Which paper fits a letter?", "get_entity", {"paper_id": "A4", "heading_id": "H1"}),
    "kind of business": ("Who sells to companies?", "get_entity", {"segment_id": "B2B"}),
    "version": ("What changed last?", "get_entity", {"release_id": "v1.2"}),
    "version of three parts": ("What changed last?", "get_entity", {"release_id": "2.10.0"}),
    "standard": ("How is quality managed?", "get_standard", {"standard_id": "ISO9001"}),
    "standard with a separator": ("How is quality managed?", "get_standard", {"standard_code": "ISO-9001"}),
    "codec": ("Convert the film.", "get_entity", {"entity_id": "h264"}),
    "currency": ("How much is it in euros?", "convert", {"currency_id": "EUR", "country_code": "DE", "language": "de"}),
    "airport": ("Fly to Berlin.", "book", {"airport_code": "BER2", "timezone_id": "Europe/Berlin"}),
    "keys of the caller": ("Book it.", "book", {"request_id": "req-83771", "idempotency_key": "8f14e45fceea167a"}),
    "option": ("Open it.", "set_state", {"state_id": "open-100", "group_id": "main-100"}),
    "example of the schema": ("Is D-1000 safe?", "get_interactions", {"drug_id": "D-1000"}),
    "id of a new thing": ("Order it.", "create_order", {"order_id": "ORD-9000", "customer_id": "", "amount": 9}),
    "chosen id": ("Add Bob.", "new_user", {"user_id": "bob-1234"}),
    "word": ("Track it.", "track", {"sku": "lamp", "number": "12", "code": "fast"}),
    "program": ("Add up.", "run_code", {"code": "x = 12345\nprint(x)"}),
    "date": ("What was ordered today?", "cancel_order", {"orderId": "2026-11-27", "reason": ""}),
    "url": ("Open it.", "get_user", {"user_id": "https://a.example/12345"}),
    "free text": ("Show it.", "cancel_order", {"orderId": "the last one", "reason": "Order 99123 is late"}),
    "file": ("Read src/app.py.", "Read", {"file_path": "/repo/src/app.py", "offset": 12345}),
    "file of another folder": ("Read app.py.", "Read", {"file_path": "/home/me/repo/src/app.py"}),
    "file named by a phrase": ("Read the billing tests.", "Read", {"file_path": "tests/test_billing.py"}),
    "usual file": ("What is this project?", "Read", {"file_path": "/repo/README.md"}),
    "settings of a project": ("Which scripts are there?", "Read", {"file_path": "package.json"}),
    "hidden file": ("What is ignored?", "Read", {"file_path": ".gitignore"}),
    "file of the system": ("Who may log in?", "Read", {"file_path": "/etc/passwd"}),
    "log of the system": ("Why did it stop?", "Read", {"file_path": "/var/log/syslog"}),
    "state of the system": ("How much memory is free?", "Read", {"file_path": "/proc/meminfo"}),
    "root of a library": ("What does it export?", "Read", {"file_path": "src/lib.rs"}),
    "shared fixtures": ("Which fixtures are there?", "Read", {"file_path": "tests/conftest.py"}),
    "new file": ("Write a poem.", "Write", {"file_path": "/repo/roses_poem.txt", "content": "Roses"}),
    "file made by an edit": ("Go.", "Edit", {"file_path": "x/fresh.py", "old_string": "", "new_string": "b"}),
    "address in other words": (
        "Ann Lee lives in Harbour Rd. 14b, Galway H91K7PV.",
        "update_address",
        {"customer": "Ann Lee", "street": "14b Harbour Road", "city": "Galway", "postcode": "H91 K7PV"},
    ),
    "address without digits": ("Ann moved.", "update_address", {"street": "Elm Street", "postcode": ""}),
    "phone in other groups": ("Text 0041 44 668-1800.", "send_sms", {"phone_number": "+41 44 6681800", "text": ""}),
    "address to look up": ("Where does the prime minister live?", "geocode", {"address": "10 Downing Street"}),
    "command": ("Clean up.", "Bash", {"command": "rm -rf build-12345 && cat /etc/invented-99.conf"}),
    "pattern": ("Where is it?", "Grep", {"pattern": "TODO-12345", "path": "src/unknown"}),
    "glob": ("Where is it?", "Glob", {"pattern": "**/*invented*.ts"}),
    "numbered tasks": ("Plan it.", "TodoWrite", {"todos": [{"id": "task-001"}, {"id": "task-002"}]}),
    "target of a move": ("Move a.txt.", "move_file", {"source_path": "a.txt", "target_path": "archive/old-a.txt"}),
}


def test_values_that_the_words_of_the_user_imply_are_not_reported(subtests: pytest.Subtests) -> None:
    def check(item: tuple[str, tuple[str, str, Mapping[str, Any]]]) -> None:
        asked, name, arguments = item[1]
        assert find(name, arguments, *conversation(asked)) is None

    check_each(subtests, IMPLIED.items(), check, name_of)


PUBLIC_NAMES: dict[str, tuple[str, str, Mapping[str, Any]]] = {
    "lower case": ("What is BTC worth?", "get_price", {"coin_id": "bitcoin"}),
    "upper case": ("How many have no work?", "get_series", {"series_id": "UNRATE"}),
    "capitalised": ("What is the gas token of ETH?", "get_price", {"coin_id": "Ethereum"}),
    "repository": ("Load the usual encoder.", "get_repo", {"repo_id": "google-bert/bert-base-uncased"}),
}


def test_model_is_not_reasked_for_names_that_are_general_knowledge(subtests: pytest.Subtests) -> None:
    def check(item: tuple[str, tuple[str, str, Mapping[str, Any]]]) -> None:
        asked, name, arguments = item[1]
        found = find(name, arguments, *conversation(asked))
        assert found is not None
        assert found.reason == ""

    check_each(subtests, PUBLIC_NAMES.items(), check, name_of)


def after_call(arguments: str, result: str, *, is_error: bool = False) -> tuple[Message, ...]:
    return (
        *conversation("Show Ann Lee's profile."),
        message_of("assistant", ToolCall("c1", "get_user", arguments)),
        message_of("tool", ToolResult("c1", (Text(result),), is_error=is_error)),
    )


KNOWN_SOURCES: dict[str, tuple[Message, ...]] = {
    "tool result": after_call('{"user_id": "1"}', '{"id": "U-77001"}'),
    "call that worked": after_call('{"user_id": "U-77001"}', "It is Ann."),
    "system prompt": (message_of("system", Text("The user's id is U-77001.")),),
    "answer": (*conversation("Who am I?"), message_of("assistant", Text("You are U-77001."))),
    "image": (
        message_of("user", Text("Whose card is this?"), Image(MediaSource(media_type="image/png", data="AA=="))),
    ),
    "text that is too long": conversation("a " * MAX_TEXT_CHARS),
}


def test_values_of_any_earlier_part_are_known(subtests: pytest.Subtests) -> None:
    def check(item: tuple[str, tuple[Message, ...]]) -> None:
        assert find("get_user", {"user_id": "U-77001"}, *item[1]) is None

    check_each(subtests, KNOWN_SOURCES.items(), check, name_of)


@pytest.mark.parametrize(
    "messages",
    [
        after_call('{"user_id": "1"}', '{"id": "Ann Lee"}'),
        (message_of("system", Text("Users: Ann Lee, Tom Ray.")), *conversation("Show Ann Lee.")),
    ],
    ids=["tool result", "system prompt"],
)
def test_name_that_may_be_an_id_is_not_reported(messages: tuple[Message, ...]) -> None:
    assert find("get_user", {"user_id": "Ann Lee"}, *messages) is None


def test_name_that_no_tool_can_look_up_is_not_reported() -> None:
    alone = Tool("get_user", "", '{"type": "object", "properties": {"user_id": {"type": "string"}}}')
    detector = InventedValueDetector(Request("m", conversation("Show Ann Lee."), (alone,)), "warn")
    assert detector.find(alone, '{"user_id": "Ann Lee"}') is None


def test_name_in_place_of_an_id_is_called_so() -> None:
    found = find("get_user", {"user_id": "Ann Lee"}, *conversation("Show Ann Lee."))
    assert found is not None
    assert found.message == 'get_user: user_id: "Ann Lee" is a name, not an id'


def test_value_that_an_error_repeats_stays_invented() -> None:
    messages = after_call('{"user_id": "U-77001"}', "error: no user U-77001", is_error=True)
    assert find("get_user", {"user_id": "U-77001"}, *messages)


def test_example_in_an_error_stays_invented() -> None:
    messages = after_call('{"user_id": "1"}', "error: ids are U- and digits, such as U-77001", is_error=True)
    assert find("get_user", {"user_id": "U-77001"}, *messages)


def test_example_is_known_where_no_tool_could_find_a_value() -> None:
    alone = tool("get_interactions", drug_id=described("The id of the drug, e.g. D-1000"))
    detector = InventedValueDetector(Request("m", conversation("Is it safe?"), (alone,)), "reask")
    assert detector.find(alone, '{"drug_id": "D-1000"}') is None


def test_messages_of_later_rounds_are_read() -> None:
    later: list[Message] = []
    detector = InventedValueDetector(Request("m", conversation("Show Ann."), TOOLS), "warn", later)
    assert detector.find(TOOLS[1], '{"user_id": "U-77001"}')
    later.append(message_of("tool", ToolResult("c1", (Text("U-77001"),))))
    assert detector.find(TOOLS[1], '{"user_id": "U-77001"}') is None


def test_reason_follows_the_setting_and_the_tool_choice() -> None:
    arguments = {"user_id": "12345"}
    free = find("get_user", arguments)
    assert free is not None
    assert free.reason == (
        'user_id: "12345" occurs nowhere in this conversation. The call was not run. '
        "Find the right user_id out first: call search_users or search, or ask the user for it."
    )
    required = find("get_user", arguments, choice=ToolChoice("required"))
    assert required is not None
    assert "ask the user" not in required.reason
    for only_warned in (
        find("get_user", arguments, choice=ToolChoice("named", "get_user")),
        find("get_user", arguments, setting="warn"),
    ):
        assert only_warned is not None
        assert only_warned.reason == ""
    assert find("get_user", arguments, setting="off") is None


def test_automatic_setting_follows_the_catalogue() -> None:
    for model, is_checked in (("qwen2.5-coder-1.5b", True), ("Qwen2.5-Coder", True), ("gpt-6", False)):
        request = Request(model, conversation("Hello"), TOOLS)
        assert bool(InventedValueDetector(request, "auto").find(TOOLS[1], '{"user_id": "12345"}')) is is_checked, model


def test_no_call_of_recorded_clients_is_reported() -> None:
    """Claude Code, Codex, opencode and the SDKs: each past call, checked against the conversation before it."""
    checked, reported = 0, []
    for name, sent in client_recordings.recorded():
        dialect = BY_PATH.get(sent.path.partition("?")[0])
        if dialect is None:
            continue
        try:
            request = dialect.read_request(sent.body)
        except DragomanError:  # recorded for its error
            continue
        tools = {each.name: each for each in request.tools}
        for number, message in enumerate(request.messages):
            calls = [part for part in message.parts if isinstance(part, ToolCall) and message.role == "assistant"]
            for call in calls:
                before = Request(request.model, request.messages[:number], request.tools)
                checked += 1
                if found := InventedValueDetector(before, "warn").find(tools.get(call.name), call.arguments):
                    reported.append((name, found.message))
    assert checked > 250
    assert reported == []


@pytest.mark.parametrize("text", ["w_" * 50_000, "w" * 100_000, "x" + "w_" * 50_000 + "q0q1q2"])
def test_characters_that_are_searched_for_values_have_a_limit(text: str) -> None:
    """Across calls and rounds, also if the text contains a beginning of each value at each place."""
    later: list[Message] = []
    detector = InventedValueDetector(Request("m", conversation(text), TOOLS), "warn", later)
    for number in range(300):
        if number % 100 == 0:
            later.append(message_of("tool", ToolResult(f"c{number}", (Text("No."),))))
        for value in ("w" * 38 + f"q{number}", "w" * 40, f"wü{number}"):
            detector.find(TOOLS[1], json.dumps({"user_id": value}))
    assert MAX_SEARCHED_CHARS <= detector.budget.searched_chars <= MAX_SEARCHED_CHARS + 2 * len(text)


def test_few_values_are_searched_in_long_texts() -> None:
    messages = conversation("w_" * 250_000)
    detector = InventedValueDetector(Request("m", messages, TOOLS), "warn")
    for number in range(10):
        assert detector.find(TOOLS[1], json.dumps({"user_id": "w" * 38 + f"q{number}"}))


@pytest.mark.parametrize("repeated", ["a1b2-", "one ", "/x", "12 ", "<a", "AaBb", "x1-y2 "])
def test_cost_is_linear_in_the_conversation(repeated: str) -> None:
    def made(chars: int) -> Callable[[], object]:
        messages = conversation(repeated * (chars // len(repeated)))
        return partial(find, "get_user", {"user_id": "zz-99"}, *messages)

    assert cpu_cost.growth(made, 50_000, 500_000, most=4, floor_s=0.01) < 4


@pytest.mark.parametrize("value", ["1" * 200, "<" * 200, "a_" * 100, "{{" * 100, "A-" * 100, "${" * 100])
def test_cost_is_linear_in_the_arguments(value: str) -> None:
    def made(count: int) -> Callable[[], object]:
        return partial(find, "refund", {"ids": [value] * count})

    assert cpu_cost.growth(made, 100, 1000, most=4, floor_s=0.01) < 4
