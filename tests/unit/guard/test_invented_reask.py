"""A call with an invented identifier is re-asked once with the tool that could find it, and never blocked."""

import json
from collections.abc import Sequence

import pytest

from dragoman.core import events as ev
from dragoman.core.messages import Message, Request, Text, Tool, ToolCall, ToolChoice, ToolResult
from dragoman.core.stage import LaterRounds
from dragoman.guard.guard import ToolCallGuard
from dragoman.guard.policy import GuardPolicy
from dragoman.guard.veto_guard import VetoGuard
from support.guarded import Asked, answered, calls, codes, told, words

pytestmark = pytest.mark.asyncio

SCHEMA = {"type": "object", "properties": {"user_id": {"type": "string"}}, "required": ["user_id"]}
SEARCH = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TOOLS = (Tool("get_user", "", json.dumps(SCHEMA)), Tool("search_users", "", json.dumps(SEARCH)), Tool("ping"))
ASKED = (Message("user", (Text("Show the profile of Ann Lee."),)),)
INVENTED = ("get_user", '{"user_id": "12345"}')
FOUND = ("search_users", '{"name": "Ann Lee"}')
REASK = GuardPolicy(invented_values="reask")
WARN = GuardPolicy(invented_values="warn")


def tool(name: str, /, **properties: object) -> Tool:
    return Tool(name, "", json.dumps({"type": "object", "properties": properties, "required": [*properties]}))


async def sent(
    *responses: Sequence[ev.AnyEvent], policy: GuardPolicy = REASK, **changes: object
) -> tuple[list[ev.AnyEvent], Asked]:
    backend = Asked(*responses)
    events = await answered(backend, policy, **({"messages": ASKED, "tools": TOOLS} | changes))
    return events, backend


async def test_call_of_the_finding_tool_replaces_the_call() -> None:
    events, backend = await sent(told(INVENTED), told(FOUND))
    assert calls(events) == [FOUND]
    assert codes(events) == ["reasked"]
    assert [event.usage.output_tokens for event in events if isinstance(event, ev.UsageUpdate)][-1] == 10
    second = backend.requests[1]
    assert second.messages == ASKED, "the refused call would be copied"
    assert second.tool_choice == ToolChoice("named", "search_users", parallel_tool_calls=False)
    assert [tool.name for tool in second.tools] == ["search_users"]
    assert second.prompt_tools == TOOLS


@pytest.mark.parametrize("result", ["[]", "error: try again"])
async def test_after_a_call_of_the_finding_tool_the_model_gets_the_reason(result: str) -> None:
    tried = (ToolCall("c1", *FOUND), ToolResult("c1", (Text(result),)))
    messages = (*ASKED, Message("assistant", tried[:1]), Message("tool", tried[1:]))
    _, backend = await sent(told(INVENTED), told(FOUND), messages=messages)
    second = backend.requests[1]
    assert second.tool_choice.mode == "auto"
    error = second.messages[-1].parts[0]
    assert isinstance(error, ToolResult)
    assert error.is_error
    assert "call search_users, or ask the user for it" in str(error.parts)


async def test_question_to_the_user_replaces_the_call() -> None:
    events, _ = await sent(told(INVENTED), told(text="What is her user id?"))
    assert calls(events) == []
    assert words(events) == "What is her user id?"


async def test_value_that_stays_invented_is_passed_on_with_a_warning() -> None:
    other = ("get_user", '{"user_id": "54321"}')
    events, _ = await sent(told(INVENTED), told(other))
    assert calls(events) == [other]
    assert codes(events) == ["reasked", "invented_value"]


async def test_finding_tool_is_preferred_to_the_same_call() -> None:
    events, _ = await sent(told(INVENTED), told(INVENTED, FOUND))
    assert calls(events) == [FOUND]


async def test_failed_second_response_leaves_the_call() -> None:
    events, _ = await sent(told(INVENTED), told())
    assert calls(events) == [INVENTED]
    assert codes(events) == ["reasked", "invented_value", "reask_failed"]
    assert all(event.schema_valid for event in events if isinstance(event, ev.ToolCallEnd))


async def test_valid_calls_of_the_same_response_are_sent() -> None:
    ping = ("ping", "{}")
    events, backend = await sent(told(ping, INVENTED), told(FOUND))
    assert calls(events) == [ping, FOUND]
    assert len(backend.requests[1].messages[-1].parts) == 2


@pytest.mark.parametrize(
    ("policy", "changes"),
    [
        (WARN, {}),
        (GuardPolicy(invented_values="reask", reask=False), {}),
        (GuardPolicy(invented_values="reask", buffering="off"), {}),
        (GuardPolicy(invented_values="reask", buffer_limit_chars=3), {}),
        (REASK, {"tool_choice": ToolChoice("named", "get_user")}),
        (REASK, {"tools": (TOOLS[0], TOOLS[2])}),
    ],
    ids=["warn", "no re-ask", "not buffered", "long", "named", "no tool could find it"],
)
async def test_call_is_passed_on_with_a_warning(policy: GuardPolicy, changes: dict[str, object]) -> None:
    events, _ = await sent(told(INVENTED), policy=policy, **changes)
    assert calls(events) == [INVENTED]
    assert codes(events) == ["invented_value"]


async def test_other_models_are_not_checked_by_default() -> None:
    events, _ = await sent(told(INVENTED), policy=GuardPolicy())
    assert codes(events) == []


async def test_response_that_a_limit_ended_is_not_reasked() -> None:
    events, _ = await sent(told(INVENTED, finish="length"))
    assert calls(events) == [INVENTED]
    assert codes(events) == ["invented_value"]


async def test_backend_that_has_reasked_is_not_asked_a_third_time() -> None:
    start, *rest = told(INVENTED)
    events, _ = await sent([start, ev.Notice("reasked", "the backend re-asked"), *rest])
    assert calls(events) == [INVENTED]
    assert codes(events) == ["reasked", "invented_value"]


async def test_required_call_may_be_of_the_finding_tool() -> None:
    events, _ = await sent(told(INVENTED), told(FOUND), tool_choice=ToolChoice("required"))
    assert calls(events) == [FOUND]


@pytest.mark.parametrize("kind", [ToolCallGuard, VetoGuard])
async def test_second_response_may_use_what_a_later_round_returned(kind: type[ToolCallGuard]) -> None:
    later = LaterRounds([Message("tool", (ToolResult("c1", (Text("Ann Lee: usr_8842"),)),))])
    guard = kind(Request("m", ASKED, TOOLS), GuardPolicy(invented_values="reask", buffering="all"), later)
    corrected = ("get_user", '{"user_id": "usr_8842"}')
    if isinstance(guard, VetoGuard):
        for call in (INVENTED, corrected):
            guard.decide(ToolCall("", *call), "")
    begun = guard.feed(told(INVENTED))
    assert guard.reask()
    guard.merge_reask(told(corrected), failed=False)
    events = [*begun, *guard.close()]
    assert calls(events) == [corrected]
    assert codes(events) == []


ID = {"type": "string"}
SHOP = (
    tool("cancel_order", order_id=ID),
    tool("list_orders", customer_id=ID),
    tool("find_customer", email=ID),
)
CANCEL = ("cancel_order", '{"order_id": "12345"}')
FIND = ("find_customer", '{"email": "ann@lee.example"}')


async def finder_for(user: str, *earlier: Message) -> str:
    messages = (Message("user", (Text(user),)), *earlier)
    _, backend = await sent(told(CANCEL), told(FIND), messages=messages, tools=SHOP)
    return backend.requests[1].tool_choice.name


async def test_tool_that_needs_an_unknown_id_itself_gives_way_to_the_one_that_finds_that() -> None:
    assert await finder_for("Cancel the last order of Ann Lee.") == "find_customer"


async def test_tool_whose_id_was_found_is_named() -> None:
    call = ToolCall("c1", *FIND)
    result = ToolResult("c1", (Text('{"customer_id": "CU-7731"}'),))
    found = (Message("assistant", (call,)), Message("tool", (result,)))
    assert await finder_for("Cancel the last order of Ann Lee.", *found) == "list_orders"


async def test_tool_whose_id_the_user_wrote_is_named() -> None:
    assert await finder_for("Cancel the last order of CU-7731.") == "list_orders"


async def test_tools_that_need_each_other_are_named_as_they_are() -> None:
    tools = (
        tool("cancel_order", order_id=ID),
        tool("list_orders", customer_id=ID),
        tool("find_customer", order_id=ID),
    )
    _, backend = await sent(told(CANCEL), told(FIND), tools=tools)
    assert backend.requests[1].tool_choice.name == "list_orders"


MOVE = Tool("update_address", "", json.dumps({"type": "object", "properties": {"street": ID}, "required": ["street"]}))
GUESSED = ("update_address", '{"street": "123 Elm St"}')


async def test_guessed_address_is_replaced_by_words() -> None:
    events, backend = await sent(told(GUESSED), told(text="What is the new address?"), tools=(MOVE, *TOOLS))
    assert calls(events) == []
    assert words(events) == "What is the new address?"
    second = backend.requests[1]
    assert second.tool_choice.mode == "none"
    assert [tool.name for tool in second.prompt_tools] == ["update_address", "get_user", "search_users", "ping"]
    assert second.messages[:-1] == ASKED
    assert "ask me for what is missing" in str(second.messages[-1].parts)


async def test_guessed_address_of_a_required_call_is_passed_on_with_a_warning() -> None:
    choice = ToolChoice("required")
    events, _ = await sent(told(GUESSED), tools=(MOVE, *TOOLS), tool_choice=choice)
    assert calls(events) == [GUESSED]
    assert codes(events) == ["invented_value"]


async def test_guessed_address_next_to_a_valid_call_leaves_the_choice() -> None:
    ping = ("ping", "{}")
    events, backend = await sent(told(ping, GUESSED), told(), tools=(MOVE, *TOOLS))
    assert backend.requests[1].tool_choice.mode == "auto"
    assert calls(events) == [ping, GUESSED]


async def test_call_that_needs_the_result_of_an_earlier_one_is_dropped_with_all_that_follow() -> None:
    ping = ("ping", "{}")
    events, backend = await sent(told(FOUND, INVENTED, ping))
    assert calls(events) == [FOUND]
    notice = next(event for event in events if isinstance(event, ev.Notice))
    assert notice.code == "extra_call_dropped"
    assert "it is in the result of search_users; the response was ended before this call" in notice.message
    assert len(backend.requests) == 1
