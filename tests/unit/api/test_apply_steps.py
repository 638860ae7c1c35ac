"""`apply_steps`: a request of any API, restricted to its next step."""

import json
from typing import Any

import pytest

import dragoman
from dragoman import dialects
from dragoman.core.errors import RequestError, UsageError
from dragoman.core.messages import Message, Request, Text, Tool, ToolCall, ToolResult

TOOLS = tuple(Tool(name, f"The tool {name}.") for name in ("fetch", "submit"))
ASK = Message("user", (Text("Report."),))
DONE = (
    Message("assistant", (ToolCall("call_1", "fetch", "{}"),)),
    Message("tool", (ToolResult("call_1", (Text("ok"),)),)),
)
STEPS = {"required": "fetch", "terminal": "submit"}


def body(api: dragoman.Api, *more: Message) -> dict[str, Any]:
    request = Request("m", (ASK, *more), TOOLS, max_tokens=9)
    return json.loads(dialects.get(api).write_request(request, "m").body) | {"dragoman": {"steps": STEPS}}


@pytest.mark.parametrize("api", dialects.names())
def test_request_is_restricted_in_its_own_api(api: dragoman.Api) -> None:
    first, then = (dragoman.apply_steps(body(api, *more), api) for more in ((), DONE))
    assert (first.tools, first.left) == (("fetch",), ("fetch",))
    assert (then.tools, then.left) == (("submit",), ())
    read = dialects.get(api).read_request(json.dumps(then.body))
    assert [tool.name for tool in read.tools] == ["submit"]
    assert (read.tool_choice.mode, read.tool_choice.name, read.steps) == ("named", "submit", None)
    assert {name: value for name, value in then.body.items() if "tool" not in name} == {
        name: value for name, value in body(api, *DONE).items() if "tool" not in name and name != "dragoman"
    }


def test_steps_may_be_an_argument() -> None:
    now = dragoman.apply_steps(body("openai_chat"), "openai_chat", {"required": ["fetch", "fetch"]})
    assert now.left == ("fetch", "fetch")
    assert [warning.label for warning in now.warnings] == ["steps_applied: fetch or submit"]


def test_request_without_steps_is_unchanged() -> None:
    plain = {name: value for name, value in body("openai_chat").items() if name != "dragoman"}
    now = dragoman.apply_steps(plain, "openai_chat")
    assert (now.body, now.tools, now.warnings) == (plain, ("fetch", "submit"), ())


def test_steps_off_leaves_the_tools_as_they_are() -> None:
    now = dragoman.apply_steps(body("openai_chat"), "openai_chat", "off")
    plain = {name: value for name, value in body("openai_chat").items() if name != "dragoman"}
    assert (now.body, now.tools, now.warnings) == (plain, ("fetch", "submit"), ())


def test_invalid_steps_are_reported_with_their_place() -> None:
    with pytest.raises(RequestError, match=r"which is not offered.* - at steps.required\[0\]"):
        dragoman.apply_steps(body("openai_chat"), "openai_chat", {"required": ["fetsch"]})
    with pytest.raises(UsageError, match="expected steps as JSON has them"):
        dragoman.apply_steps(body("openai_chat"), "openai_chat", {"required": object()})


def test_engine_session_offers_the_next_step_only() -> None:
    session = dragoman.EngineSession(body("openai_chat"), "hermes", created=0)
    assert "submit" not in session.messages[0]["content"]
    session.feed("Hello.")
    session.close()
    assert [warning.label for warning in session.warnings] == ["steps_applied: fetch"]


def test_steps_that_are_not_valid_are_reported() -> None:
    with pytest.raises(UsageError, match="expected steps as JSON has them"):
        dragoman.apply_steps(body("openai_chat"), "openai_chat", {"required": "\ud800"})
    with pytest.raises(RequestError, match="got none of them - at steps"):
        dragoman.apply_steps(body("openai_chat"), "openai_chat", {})


def test_no_tool_is_allowed_where_the_client_forbids_calls() -> None:
    assert dragoman.apply_steps(body("openai_chat") | {"tool_choice": "none"}, "openai_chat").tools == ()


def test_functions_of_the_first_api_do_not_stay() -> None:
    old = body("openai_chat")
    old["functions"] = [tool["function"] for tool in old.pop("tools")]
    now = dragoman.apply_steps(old | {"function_call": "auto"}, "openai_chat").body
    assert not {"functions", "function_call"} & now.keys()
    assert [tool["function"]["name"] for tool in now["tools"]] == ["fetch"]
