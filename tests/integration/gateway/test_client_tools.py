"""Tools of Responses that the client runs (`shell`, `apply_patch`, `computer`) with any upstream server."""

import asyncio
import json
from typing import Any

import httpx2
import openai
import pytest

from support.fake_upstream import RESPONSES, Server, server, whole
from support.http_client import http_client
from support.responses_upstream import ANSWERS, gateway
from support.scripted_backend import serving
from support.vendor_tools import whole as events_of
from support.vendor_types import checked, types_of

ARGUMENTS: dict[str, Any] = {
    "shell": {"commands": ["ls", "pwd"], "timeout_ms": 500},
    "local_shell": {"command": ["ls", "-l"], "working_directory": "/tmp"},
    "apply_patch": {"type": "update_file", "path": "a.py", "diff": "@@\n-a\n+b\n"},
    "computer": {"actions": [{"type": "click", "x": 5, "y": 6}, {"type": "keypress", "keys": ["CTRL", "S"]}]},
    "computer_use_preview": {"action": {"type": "scroll", "x": 1, "y": 2, "scroll_x": 0, "scroll_y": -300}},
}
TOOLS: dict[str, dict[str, Any]] = {kind: {"type": kind} for kind in ARGUMENTS}
TOOLS["computer_use_preview"] |= {"display_width": 1024, "display_height": 768, "environment": "browser"}
WRONG: dict[str, Any] = {
    "shell": {"timeout_ms": 500},
    "local_shell": {"cmd": "ls"},
    "apply_patch": {"type": "rename_file", "path": "a.py"},
    "computer": {"actions": [{"type": "click", "x": 5}]},
    "computer_use_preview": {"action": {"type": "press"}},
}
DONE: dict[str, Any] = {
    "shell": {"action": ARGUMENTS["shell"]},
    "local_shell": {"action": {"type": "exec", "env": {}, **ARGUMENTS["local_shell"]}},
    "apply_patch": {"operation": ARGUMENTS["apply_patch"]},
    "computer": {
        "actions": [{"button": "left", **ARGUMENTS["computer"]["actions"][0]}, ARGUMENTS["computer"]["actions"][1]],
        "pending_safety_checks": [],
    },
    "computer_use_preview": {**ARGUMENTS["computer_use_preview"], "pending_safety_checks": []},
}
MODES = ("native", "parse", "prompt")
SCREENSHOT = "data:image/png;base64,iVBORw0KGgo="
OUTPUTS: dict[str, Any] = {
    "shell": [{"stdout": "a.py", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
    "local_shell": '{"output": "a.py"}',
    "apply_patch": "Updated a.py",
    "computer": {"type": "computer_screenshot", "image_url": SCREENSHOT},
    "computer_use_preview": {"type": "computer_screenshot", "image_url": SCREENSHOT},
}
each_kind = pytest.mark.parametrize("kind", ARGUMENTS)


def item_type(kind: str) -> str:
    return "computer_call" if kind.startswith("computer") else f"{kind}_call"


def calling(kind: str, arguments: Any, mode: str = "native") -> bytes:
    """The body of a Chat Completions response with this call."""
    name = item_type(kind).removesuffix("_call")
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": "c1", "type": "function", "function": function}
    message: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [call]}
    if mode != "native":
        written = json.dumps({"name": name, "arguments": arguments})
        message = {"role": "assistant", "content": f"<tool_call>\n{written}\n</tool_call>"}
    finish = "tool_calls" if mode == "native" else "stop"
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": finish}]}).encode()


def past(kind: str, **more: Any) -> list[dict[str, Any]]:
    id = {"id": "c1"} if kind == "local_shell" else {"call_id": "c1"}  # as in the SDK's types
    return [
        {"role": "user", "content": "Go."},
        {"type": item_type(kind), "id": "x1", "call_id": "c1", "status": "completed", **DONE[kind]},
        {"type": f"{item_type(kind)}_output", **id, "output": OUTPUTS[kind], **more},
    ]


async def sent_to(api: str, body: dict[str, Any], **settings: Any) -> tuple[httpx2.Response, dict[str, Any]]:
    async with (
        server(whole(200, json.dumps(ANSWERS[api]))) as far,
        serving(gateway(far, api=api, **settings)) as (_, url),
    ):
        async with http_client(url) as http:
            answer = await http.post(RESPONSES, json={"model": "m", **body})
        return answer, json.loads(far.asked[0][2]) if far.asked else {}


@pytest.mark.parametrize(
    ("kind", "mode"),
    [(kind, mode) for kind in ARGUMENTS for mode in MODES if mode != "prompt" or not kind.startswith("computer")],
)
@pytest.mark.parametrize("forced", [False, True])
async def test_client_tool_call_is_returned_as_responses_item(kind: str, mode: str, forced: bool) -> None:
    asked: dict[str, Any] = {"model": "m", "input": "Go.", "tools": [TOOLS[kind]], "store": False}
    asked |= {"tool_choice": {"type": kind}} if forced and kind != "local_shell" else {}
    settings = {"tool_mode": mode, "call_format": "hermes"}
    play = whole(200, calling(kind, ARGUMENTS[kind], mode).decode())
    async with server(play) as far, serving(gateway(far, **settings)) as (_, url):
        async with openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as sdk:
            reply = await sdk.responses.create(**asked)
            async with sdk.responses.stream(**asked) as stream:
                events = [event async for event in stream]
                streamed = await stream.get_final_response()
            raw = await sdk.responses.with_raw_response.create(**asked)
        async with http_client(url) as http:
            strict = await events_of(http, "openai_responses", {**asked, "stream": True})
        sent = json.loads(far.asked[0][2])
    checked(types_of("openai_responses")[1], raw.text, {"store"})
    assert [item["type"] for item in strict[-1]["response"]["output"]] == [item_type(kind)]
    name = item_type(kind).removesuffix("_call")
    assert mode == "prompt" or [tool["function"]["name"] for tool in sent["tools"]] == [name]
    assert f'"{name}"' in json.dumps(sent).replace("\\", "")
    assert "content_dropped" not in raw.headers.get("x-dragoman-warnings", "")
    (item,) = json.loads(raw.content)["output"]
    assert (item["type"], item["status"]) == (item_type(kind), "completed")
    assert mode != "native" or item["call_id"] == "c1"
    assert {place: item[place] for place in DONE[kind]} == DONE[kind]
    assert [tool.type for tool in reply.tools] == [kind]
    for answer in (reply, streamed):
        (said,) = answer.output
        type(said).model_validate(said.model_dump(exclude_unset=True))
        assert {place: said.to_dict(exclude_unset=True)[place] for place in DONE[kind]} == DONE[kind]
        assert said.type == item_type(kind)
    assert [e.type for e in events if "item" in e.type] == ["response.output_item.added", "response.output_item.done"]
    for event in events:
        if event.type in ("response.output_item.added", "response.output_item.done"):
            type(event.item).model_validate(event.item.model_dump(exclude_unset=True))
    assert not [event for event in events if "function_call" in event.type]


@each_kind
@pytest.mark.parametrize("api", ["openai_chat", "anthropic_messages"])
async def test_past_client_tool_calls_are_sent_as_function_calls(kind: str, api: str) -> None:
    answer, sent = await sent_to(api, {"input": past(kind), "tools": [TOOLS[kind]]})
    assert answer.status_code == 200
    is_image = kind.startswith("computer")
    assert is_image or answer.headers.get("x-dragoman-warnings") is None
    if api == "openai_chat":
        call, result = sent["messages"][1]["tool_calls"][0], sent["messages"][2]
        name, given, text = call["function"]["name"], json.loads(call["function"]["arguments"]), result["content"]
        assert call["id"] == result["tool_call_id"]
    else:
        (call,), (result,) = sent["messages"][1]["content"], sent["messages"][2]["content"]
        name, given, text = call["name"], call["input"], result["content"]
        assert call["id"] == result["tool_use_id"]
    assert name == item_type(kind).removesuffix("_call")
    if is_image:
        assert given == {place: value for place, value in DONE[kind].items() if place in given}
        assert SCREENSHOT.partition(",")[2] in json.dumps(sent["messages"])
        return
    assert given in DONE[kind].values()
    text = text if isinstance(text, str) else text[0]["text"]
    assert (text if isinstance(OUTPUTS[kind], str) else json.loads(text)) == OUTPUTS[kind]


async def test_stored_response_is_continued_with_tool_output() -> None:
    play = whole(200, calling("shell", ARGUMENTS["shell"]).decode())
    async with server(play) as far, serving(gateway(far)) as (_, url), http_client(url) as http:
        body: dict[str, Any] = {"model": "m", "tools": [{"type": "shell"}]}
        first = (await http.post(RESPONSES, json={**body, "input": "Go."})).json()
        output = {"type": "shell_call_output", "call_id": "c1", "output": OUTPUTS["shell"]}
        body |= {"input": [output], "previous_response_id": first["id"]}
        second = await http.post(RESPONSES, json=body)
        assert second.status_code == 200, second.text
        roles = [message["role"] for message in json.loads(far.asked[1][2])["messages"]]
    assert roles == ["user", "assistant", "tool"]


async def test_failed_patch_is_sent_as_error_result() -> None:
    body = {"input": past("apply_patch", status="failed"), "tools": [{"type": "apply_patch"}]}
    _, sent = await sent_to("anthropic_messages", body)
    assert sent["messages"][2]["content"][0]["is_error"] is True


@each_kind
async def test_responses_upstream_gets_client_tools_unchanged(kind: str) -> None:
    answer, sent = await sent_to("openai_responses", {"input": past(kind), "tools": [TOOLS[kind]]})
    assert answer.status_code == 200
    assert sent["tools"] == [TOOLS[kind]]
    assert sent["input"][1:] == past(kind)[1:]


@each_kind
async def test_responses_server_without_vendor_tools_gets_functions(kind: str) -> None:
    settings = {"api": "openai_responses", "provider": "llama_cpp"}
    answer, sent = await sent_to(body={"input": past(kind), "tools": [TOOLS[kind]]}, **settings)
    assert answer.status_code == 200
    name = item_type(kind).removesuffix("_call")
    assert [(tool["type"], tool["name"]) for tool in sent["tools"]] == [("function", name)]
    assert [item["type"] for item in sent["input"][1:]] == ["function_call", "function_call_output"]


@each_kind
async def test_wrong_arguments_are_reasked(kind: str) -> None:
    bodies = [calling(kind, WRONG[kind]), calling(kind, ARGUMENTS[kind])]

    async def play(far: Server, writer: asyncio.StreamWriter) -> None:
        await whole(200, bodies[len(far.asked) - 1].decode())(far, writer)

    async with server(play) as far, serving(gateway(far)) as (_, url), http_client(url) as http:
        answer = await http.post(RESPONSES, json={"model": "m", "input": "Go.", "tools": [TOOLS[kind]]})
    (item,) = answer.json()["output"]
    assert {place: item[place] for place in DONE[kind]} == DONE[kind]
    assert "reasked" in answer.headers["x-dragoman-warnings"]


async def test_container_shell_tool_is_dropped_with_warning() -> None:
    tools = [{"type": "shell", "environment": {"type": "container_auto"}}, {"type": "function", "name": "f"}]
    answer, sent = await sent_to("openai_chat", {"input": "Go.", "tools": tools})
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["f"]
    assert answer.headers["x-dragoman-warnings"] == "content_dropped: shell"


async def test_shell_call_without_action_is_rejected() -> None:
    items = [{"role": "user", "content": "Go."}, {"type": "shell_call", "call_id": "c1"}]
    answer, _ = await sent_to("openai_chat", {"input": items, "tools": [{"type": "shell"}]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input[1]")


SEARCH: dict[str, Any] = {
    "type": "tool_search",
    "execution": "client",
    "description": "Finds tools of connected servers.",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
FOUND: dict[str, Any] = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [{"type": "function", "name": "find", "parameters": {"type": "object"}, "defer_loading": True}],
}


@pytest.mark.parametrize("streamed", [False, True])
async def test_client_runs_its_own_tool_search_and_calls_found_tool(streamed: bool) -> None:
    """As Codex does: the search is an item of its own, and the found tool is called in its namespace."""
    bodies = [calling("tool_search", {"query": "customer"}), calling("crm__find", {})]
    asked: dict[str, Any] = {"model": "m", "tools": [SEARCH], "store": False}
    replies: list[Any] = []
    sent: list[Any] = []
    history: list[Any] = [{"role": "user", "content": "Who is it?"}]
    for answer in bodies:
        async with server(whole(200, answer.decode())) as far, serving(gateway(far)) as (_, url):
            async with openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as sdk:
                if streamed:
                    async with sdk.responses.stream(**asked, input=history) as stream:
                        reply: Any = await stream.get_final_response()
                else:
                    reply = await sdk.responses.create(**asked, input=history)
            sent.append(json.loads(far.asked[0][2]))
        (item,) = reply.output
        replies.append(item)
        output = {"type": "tool_search_output", "call_id": "c1", "execution": "client", "tools": [FOUND]}
        history = [*history, item.to_dict(exclude_unset=True), output]
    search, found = replies
    assert (search.type, search.execution, search.call_id) == ("tool_search_call", "client", "c1")
    assert search.arguments == {"query": "customer"}
    assert (found.type, found.name, found.namespace) == ("function_call", "find", "crm")
    assert sent[0]["tools"][0]["function"]["description"] == SEARCH["description"]
    names = [[tool["function"]["name"] for tool in each["tools"]] for each in sent]
    assert names == [["tool_search"], ["tool_search", "crm__find"]]
    assert sent[1]["messages"][:1] == sent[0]["messages"]
    assert '"crm__find"' in str(sent[1]["messages"][-1])
