"""MCP servers that requests declare, run by the gateway: real servers, in the vendors' items and blocks."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import httpx2
import pytest
from pydantic import TypeAdapter

from dragoman.core import messages as v
from dragoman.core.events import TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.mcp_client import server
from dragoman.mcp_client.pool import McpServers
from dragoman.redaction.redact import Redactor
from dragoman.tool_executors import mcp_servers
from dragoman.tool_executors.config import ToolsConfig
from dragoman.tool_executors.registry import build_executors
from dragoman.vendor_tools.remote import RemoteServer
from dragoman.vendor_tools.tool import VendorTool
from support.http_client import http_client
from support.mcp_servers import http_server, stdio
from support.scenarios import call
from support.scripted_backend import Scripted, serving
from support.vendor_tools import EXTRA, FUNCTION, QUESTION, asking, blocks, body, items, scripted, whole
from support.vendor_types import checked, frames

each_stream = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
ANSWER = [TextDelta("Done.")]
BOOKS: dict[str, Any] = {"type": "mcp", "server_label": "books", "require_approval": "never"}
ADD = call(0, "books__add", a=2, b=3)


@asynccontextmanager
async def runner(*hosts: str, **fields: Any) -> AsyncIterator[VendorToolRunner]:
    servers = McpServers({"books": stdio(**fields)}, {})
    tools = VendorToolRunner(build_executors(ToolsConfig(mcp_allowed_hosts=hosts), servers), on_close=servers.close)
    try:
        yield tools
    finally:
        await tools.close()


@asynccontextmanager
async def client(
    *rounds: Any, asked: list[v.Request], hosts: tuple[str, ...] = (), **fields: Any
) -> AsyncIterator[httpx2.AsyncClient]:
    async with runner(*hosts, **fields) as tools, asking(scripted(*rounds, asked=asked), tools) as http:
        yield http


def result(request: v.Request) -> v.ToolResult:
    (found,) = [part for message in request.messages for part in message.parts if isinstance(part, v.ToolResult)]
    return found


def read_result(request: v.Request, number: int) -> str:
    """The text of a result of the conversation."""
    results = [part for message in request.messages for part in message.parts if isinstance(part, v.ToolResult)]
    return "".join(part.text for part in results[number].parts if isinstance(part, v.Text))


def read(request: v.Request) -> str:
    return "".join(part.text for part in result(request).parts if isinstance(part, v.Text))


@each_stream
async def test_tools_are_listed_and_called(stream: bool) -> None:
    asked: list[v.Request] = []
    async with client(ADD, ANSWER, ANSWER, asked=asked) as http:
        output, names = await items(http, stream, tools=[BOOKS])
        history = [{"role": "user", "content": QUESTION}, *output, {"role": "user", "content": "Thanks."}]
        again, _ = await items(http, stream, tools=[BOOKS], input=history)
    listing, done, message = output
    assert (listing["type"], listing["server_label"], len(listing["tools"])) == ("mcp_list_tools", "books", 46)
    assert listing["tools"][0]["annotations"] == {"readOnlyHint": True}
    assert (done["type"], done["name"], done["status"], done["output"]) == ("mcp_call", "add", "completed", "5")
    assert json.loads(done["arguments"]) == {"a": 2, "b": 3}
    assert message["content"][0]["text"] == "Done."
    assert [item["type"] for item in again] == ["message"]
    if stream:
        assert [name for name in names if ".mcp_" in name] == [
            *("response.mcp_list_tools.in_progress", "response.mcp_list_tools.completed"),
            *("response.mcp_call.in_progress", "response.mcp_call_arguments.delta", "response.mcp_call_arguments.done"),
            "response.mcp_call.completed",
        ]
    assert "books__add" in {tool.name for tool in asked[0].tools}
    assert {tool.kind for tool in asked[0].tools} == {"function"}
    assert read(asked[1]) == read(asked[2]) == "5"


async def test_arguments_of_a_call_are_streamed_as_events() -> None:
    async with client(ADD, ANSWER, asked=[]) as http:
        events = await whole(http, "openai_responses", body("openai_responses", True, tools=[BOOKS]))
    opened, done = [event for event in events if event.get("item", {}).get("type") == "mcp_call"]
    delta, end = [event for event in events if event["type"].startswith("response.mcp_call_arguments.")]
    assert opened["item"]["arguments"] == ""
    assert delta["delta"] == end["arguments"] == done["item"]["arguments"]
    assert json.loads(end["arguments"]) == {"a": 2, "b": 3}
    places = {(event["item_id"], event["output_index"]) for event in (delta, end)}
    assert places == {(opened["item"]["id"], opened["output_index"])}


async def test_server_of_an_allowed_host() -> None:
    asked: list[v.Request] = []
    async with http_server() as url, client(ADD, ANSWER, asked=asked, hosts=("127.0.0.1",)) as http:
        declared = {**BOOKS, "server_url": url, "allowed_tools": ["add"]}
        (listing, done, _), _ = await items(http, False, tools=[declared])
    assert [tool["name"] for tool in listing["tools"]] == ["add"]
    assert done["output"] == "5"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"server_url": "https://evil.example/mcp"}, "may not connect to the MCP server 'evil.example'"),
        ({"server_url": "file:///etc/passwd"}, "may not connect to the MCP server"),
        ({"server_label": "book"}, "got the name 'book'; did you mean 'books'?"),
        ({"server_url": "http://127.0.0.1:9000/mcp"}, "may not connect to the MCP server '127.0.0.1'"),
        ({"connector_id": "connector_gmail"}, "connectors are run by the API's vendor only"),
    ],
)
@each_stream
async def test_other_servers_are_rejected(stream: bool, fields: dict[str, str], problem: str) -> None:
    async with client(asked=[], hosts=("127.0.0.1:1",)) as http:
        answer = await http.post("/v1/responses", json=body("openai_responses", stream, tools=[{**BOOKS, **fields}]))
    assert answer.status_code == 400
    assert problem in answer.json()["error"]["message"]


async def test_server_that_is_not_served_is_rejected() -> None:
    async with client(asked=[], serve=False) as http:
        answer = await http.post("/v1/responses", json=body("openai_responses", False, tools=[BOOKS]))
    assert answer.status_code == 400
    assert "set mcp.books.serve = true" in answer.json()["error"]["message"]


async def test_declared_headers_do_not_change_where_a_request_goes() -> None:
    asked: list[v.Request] = []
    rounds = (call(0, "books__header", field="host"), call(0, "books__header", field="x-team"), ANSWER)
    async with http_server() as url, client(*rounds, asked=asked, hosts=(url,)) as http:
        headers = {"Host": "admin.internal", "X-Forwarded-For": "10.0.0.1", "x-team": "a"}
        (_, host, team, _), _ = await items(http, False, tools=[{**BOOKS, "server_url": url, "headers": headers}])
    assert (host["output"], team["output"]) == (url.split("/")[2], "a")


def named(url: str, label: str = "books") -> VendorTool:
    return VendorTool("mcp", label, "", server=RemoteServer(label, url, "tools[0]"))


async def test_connections_of_requests_are_limited_and_closed_when_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_servers, "_MAX_SERVERS", 2)
    async with http_server() as url:
        executor = mcp_servers.McpServersExecutor(McpServers({}, {}), ["127.0.0.1"], idle_s=0.0)
        labels = [f"l{n}" for n in range(6)]
        listed = await asyncio.gather(*(executor.list_tools(named(url, label)) for label in labels))
        assert [each.error for each in listed] == [None] * 6
        async with asyncio.timeout(30):
            while executor.open_connections:
                await asyncio.sleep(0)
        assert (await executor.list_tools(named(url, "l0"))).error is None
        await executor.close()
        assert executor.open_connections == 0


async def test_failed_call_and_crash_are_errors_that_name_the_server() -> None:
    asked: list[v.Request] = []
    rounds = (call(0, "books__fail"), call(0, "books__crash"), ANSWER)
    async with client(*rounds, asked=asked) as http:
        (_, failed, crashed, _), _ = await items(http, False, tools=[BOOKS])
    assert (failed["status"], crashed["status"]) == ("failed", "failed")
    assert "the ledger is closed" in failed["error"]["content"][0]["text"]
    assert "the MCP server books ended" in crashed["error"]["content"][0]["text"]


async def test_half_of_a_character_in_arguments_is_replaced() -> None:
    asked: list[v.Request] = []
    echo = [ToolCallStart(0, "c1", "books__echo"), ToolCallDelta(0, '{"query": "\\ud83d"}'), ToolCallEnd(0)]
    async with client(echo, ANSWER, asked=asked) as http:
        (_, done, _), _ = await items(http, False, tools=[BOOKS])
    assert (done["status"], done["output"]) == ("completed", "\ufffd")


@each_stream
@pytest.mark.parametrize("stored", [False, True], ids=["sent", "stored"])
async def test_approved_call_is_run(stream: bool, stored: bool) -> None:
    asked: list[v.Request] = []
    declared = {**BOOKS, "require_approval": {"never": {"tool_names": ["report"]}}}
    async with client(ADD, ANSWER, asked=asked) as http:
        reply = (await http.post("/v1/responses", json=body("openai_responses", False, tools=[declared]))).json()
        listing, request = reply["output"]
        assert (request["type"], request["name"], request["server_label"]) == ("mcp_approval_request", "add", "books")
        answer = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
        if stored:
            fields: dict[str, Any] = {"input": [answer], "previous_response_id": reply["id"]}
        else:
            fields = {"input": [{"role": "user", "content": QUESTION}, listing, request, answer]}
        (done, message), _ = await items(http, stream, tools=[declared], **fields)
    assert (done["type"], done["output"], done["approval_request_id"]) == ("mcp_call", "5", request["id"])
    assert message["content"][0]["text"] == "Done."
    assert read(asked[1]) == "5"
    assert [message.role for message in asked[1].messages] == ["user", "assistant", "tool"]


async def approve(http: httpx2.AsyncClient, declared: dict[str, Any]) -> list[dict[str, Any]]:
    """A conversation whose last item approves the call that the model asks for."""
    (listing, request), _ = await items(http, False, tools=[declared])
    answer = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
    return [{"role": "user", "content": QUESTION}, listing, request, answer]


@each_stream
async def test_approved_call_is_run_once_if_the_model_is_reasked(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[v.Request] = []
    declared = {**BOOKS, "require_approval": "always"}
    read_file = {"type": "function", "name": "read", "parameters": FUNCTION, "strict": False}
    async with client(ADD, call(0, "read", path=[1]), call(0, "read", path="a"), asked=asked) as http:
        history = await approve(http, declared)
        with caplog.at_level("INFO", "dragoman.gateway.vendor_tools"):
            output, _ = await items(http, stream, tools=[declared, read_file], input=history)
    assert [item["type"] for item in output] == ["mcp_call", "function_call"]
    assert [record.args[0] for record in caplog.records if record.msg.startswith("ran ")] == ["mcp"]
    assert len(asked) == 3
    assert [read_result(request, 0) for request in asked[1:]] == ["5", "5"]


async def test_an_approved_call_is_a_step() -> None:
    asked: list[v.Request] = []
    own = {"type": "function", "name": "submit", "parameters": FUNCTION}
    fields = {"dragoman": {"steps": {"required": "books__add", "ordered": True, "terminal": "submit"}}}
    declared = [{**BOOKS, "require_approval": "always"}, own]
    async with client(ADD, call(0, "submit", path="/"), asked=asked) as http:
        (_, request), _ = await items(http, False, tools=declared, **fields)
        answer = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
        history = [{"role": "user", "content": QUESTION}, request, answer]
        (_, done, submitted), _ = await items(http, False, tools=declared, input=history, **fields)
    assert (done["type"], submitted["type"]) == ("mcp_call", "function_call")
    assert [[tool.name for tool in each.tools] for each in asked] == [["books__add"], ["submit"]]


async def test_old_approval_no_longer_counts() -> None:
    asked: list[v.Request] = []
    declared = {**BOOKS, "require_approval": "always"}
    async with client(ADD, ANSWER, asked=asked) as http:
        history = await approve(http, declared)
        later = [
            {"role": "assistant", "content": "It did not work."},
            {"role": "user", "content": "Never mind. Hello!"},
        ]
        (message,), _ = await items(http, False, tools=[declared], input=[*history, *later])
    assert message["content"][0]["text"] == "Done."
    assert "not available any more" in read(asked[1])


async def test_refused_call_is_not_run() -> None:
    asked: list[v.Request] = []
    declared = {**BOOKS, "require_approval": "always"}
    async with client(ADD, ANSWER, asked=asked) as http:
        (listing, request), _ = await items(http, False, tools=[declared])
        answer = {
            "type": "mcp_approval_response",
            "approval_request_id": request["id"],
            "approve": False,
            "reason": "Too risky.",
        }
        history = [{"role": "user", "content": QUESTION}, listing, request, answer]
        (message,), _ = await items(http, False, tools=[declared], input=history)
    assert message["content"][0]["text"] == "Done."
    assert "The user refused this call" in read(asked[1])
    assert "Too risky." in read(asked[1])


async def test_read_only_tools_need_no_approval() -> None:
    asked: list[v.Request] = []
    declared = {**BOOKS, "require_approval": {"never": {"read_only": True}}}
    rounds = ([*ADD, *call(1, "books__run", code="1")],)
    async with client(*rounds, asked=asked) as http:
        output, _ = await items(http, False, tools=[declared])
    assert [item["type"] for item in output] == ["mcp_list_tools", "mcp_call", "mcp_approval_request"]


UNREACHABLE: dict[str, Any] = {**BOOKS, "server_url": "http://127.0.0.1:9/mcp"}
NO_TOOLS: dict[str, Any] = {**BOOKS, "allowed_tools": ["subtract"]}
READ: dict[str, Any] = {"type": "function", "name": "read", "parameters": FUNCTION, "strict": False}


async def test_server_that_cannot_be_asked() -> None:
    async with client(ANSWER, asked=[], hosts=("127.0.0.1",)) as http:
        (listing, message), _ = await items(http, False, tools=[UNREACHABLE, READ])
    assert "the MCP server books could not be started" in listing["error"]
    assert message["content"][0]["text"] == "Done."


@each_stream
@pytest.mark.parametrize(
    ("fields", "status", "problem"),
    [
        ({"tools": [UNREACHABLE]}, 503, "the MCP server books could not be started"),
        ({"tools": [NO_TOOLS]}, 400, "the MCP server 'books' lists no tool that the request allows"),
        ({"tools": [NO_TOOLS, READ], "tool_choice": {"type": "mcp", "server_label": "books"}}, 400, "lists no tool"),
    ],
    ids=["unreachable", "no tools", "required"],
)
async def test_request_without_tools_is_refused(
    stream: bool, fields: dict[str, Any], status: int, problem: str
) -> None:
    asked: list[v.Request] = []
    async with client(asked=asked, hosts=("127.0.0.1",)) as http:
        answer = await http.post("/v1/responses", json=body("openai_responses", stream, **fields))
    assert (answer.status_code, asked) == (status, [])
    assert problem in answer.json()["error"]["message"]


async def test_request_that_forbids_calls_needs_no_tools() -> None:
    async with client(ANSWER, asked=[]) as http:
        (_, message), _ = await items(http, False, tools=[NO_TOOLS], tool_choice="none")
    assert message["content"][0]["text"] == "Done."


async def send_messages(http: httpx2.AsyncClient, stream: bool, **fields: Any) -> list[dict[str, Any]]:
    """The content blocks of a beta response, strictly validated."""
    answer = await http.post("/v1/messages", json=body("anthropic_messages", stream, **fields))
    assert answer.status_code == 200, answer.text
    if not stream:
        checked(TypeAdapter(anthropic.types.beta.BetaMessage), answer.text, EXTRA)
        return list(answer.json()["content"])
    events = [data for _, data in frames(answer.text)]
    for data in events:
        checked(TypeAdapter(anthropic.types.beta.BetaRawMessageStreamEvent), data, EXTRA)
    return blocks([json.loads(data) for data in events])


@each_stream
async def test_messages_client(stream: bool) -> None:
    asked: list[v.Request] = []
    tools = [{"type": "mcp_toolset", "mcp_server_name": "books", "configs": {"run": {"enabled": False}}}]
    async with (
        http_server() as url,
        client(ADD, ANSWER, ANSWER, asked=asked, hosts=("127.0.0.1",)) as http,
    ):
        servers = [{"type": "url", "name": "books", "url": url, "authorization_token": "abcdef"}]
        fields: dict[str, Any] = {"mcp_servers": servers, "tools": tools}
        content = await send_messages(http, stream, **fields)
        history = [
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": content},
            {"role": "user", "content": "Thanks."},
        ]
        await send_messages(http, stream, messages=history, **fields)
    use, done, text = content
    assert (use["type"], use["name"], use["server_name"]) == ("mcp_tool_use", "add", "books")
    assert (done["type"], done["is_error"], done["content"][0]["text"]) == ("mcp_tool_result", False, "5")
    assert done["tool_use_id"] == use["id"]
    assert text["text"] == "Done."
    names = {tool.name for tool in asked[0].tools}
    assert len(names) == 45
    assert "books__run" not in names
    assert read(asked[1]) == read(asked[2]) == "5"


async def test_messages_client_sends_token_and_only_enabled_tools() -> None:
    asked: list[v.Request] = []
    configs = {"header": {"enabled": True}}
    toolset = {"type": "mcp_toolset", "mcp_server_name": "books", "default_config": {"enabled": False}}
    rounds = (call(0, "books__header", field="authorization"), ANSWER)
    async with http_server() as url, client(*rounds, asked=asked, hosts=("127.0.0.1",)) as http:
        servers = [{"type": "url", "name": "books", "url": url, "authorization_token": "abcdef"}]
        content = await send_messages(http, False, mcp_servers=servers, tools=[{**toolset, "configs": configs}])
    assert content[1]["content"][0]["text"] == "Bearer abcdef"
    assert [tool.name for tool in asked[0].tools] == ["books__header"]


async def test_messages_client_may_not_name_other_hosts() -> None:
    async with client(asked=[]) as http:
        servers = [{"type": "url", "name": "books", "url": "https://evil.example/mcp"}]
        answer = await http.post("/v1/messages", json=body("anthropic_messages", False, mcp_servers=servers))
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert "tools.mcp_allowed_hosts" in answer.json()["error"]["message"]


@each_stream
@pytest.mark.parametrize("dialect", ["anthropic_messages", "openai_chat", "openai_responses"])
async def test_offered_tools_are_hidden_from_the_client(
    stream: bool, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_SOON_S", 60.0)
    asked: list[v.Request] = []
    async with client(ADD, ANSWER, asked=asked, offer_to=("m*",), serve=False) as http:
        reply = await whole(http, dialect, body(dialect, stream))
    text = json.dumps(reply)
    assert "Done." in text
    assert "books" not in text
    assert "add" not in {word.strip('"') for word in text.split()}
    assert "books__add" in {tool.name for tool in asked[0].tools}
    assert read(asked[1]) == "5"


async def test_hidden_call_next_to_a_call_of_the_client_is_not_run(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[v.Request] = []
    function = {"type": "function", "name": "read", "parameters": FUNCTION, "strict": False}
    both = [*ADD, *call(1, "read", path="a")]
    async with client(both, asked=asked, offer_to=("m*",)) as http:
        with caplog.at_level("INFO", "dragoman.gateway.vendor_tools"):
            output, _ = await items(http, False, tools=[function])
    assert [item["type"] for item in output] == ["function_call"]
    assert not [record for record in caplog.records if record.msg.startswith("ran ")]


async def test_tools_are_offered_to_models_in_any_case() -> None:
    asked: list[v.Request] = []
    async with client(ANSWER, asked=asked, offer_to=("M*",)) as http:
        await items(http, False)
    assert "books__add" in {tool.name for tool in asked[0].tools}


async def test_tools_are_offered_by_the_name_of_the_model_behind_an_alias() -> None:
    asked: list[v.Request] = []
    async with runner(offer_to=("M",)) as tools:
        gateway = Gateway([Scripted(scripted(ADD, ANSWER, asked=asked))], {"other": "m"}, vendor_tools=tools)
        async with serving(gateway) as (_, url), http_client(url) as http:
            await whole(http, "openai_chat", {**body("openai_chat", False), "model": "other"})
    assert "books__add" in {tool.name for tool in asked[0].tools}
    assert read(asked[1]) == "5"


async def test_tools_are_not_offered_to_other_models() -> None:
    asked: list[v.Request] = []
    async with client(ANSWER, asked=asked, offer_to=("qwen*",)) as http:
        await whole(http, "openai_chat", body("openai_chat", False))
    assert asked[0].tools == ()


def test_nothing_configured_runs_no_servers_and_imports_nothing() -> None:
    code = (
        "import sys; from dragoman.compose import vendor_tools; from dragoman.config import Config; "
        "assert {*vendor_tools(Config()).executors} == {'tool_search'}; "
        "assert not {'mcp', 'httpx2', 'pydantic'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_headers_of_servers_are_redacted() -> None:
    declared = {**BOOKS, "headers": {"X-Team": "abc-team", "X-Other": "def-team"}, "authorization": "ghi-token"}
    schema = {"properties": {"headers": {"type": "object", "description": "Headers to send."}}}
    text = json.dumps({"tools": [declared, {"type": "function", "parameters": schema}]}, separators=(",", ":"))
    for sent in (text, json.dumps(text)):
        redacted = Redactor().redact_text(sent)
        assert not any(secret in redacted for secret in ("abc-team", "def-team", "ghi-token"))
        assert "Headers to send." in redacted
        json.loads(redacted)
