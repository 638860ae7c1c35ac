"""Vendor tools that a real MCP server runs: web search and code, in the blocks of each API."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.core import messages as v
from dragoman.core.errors import ConfigError
from dragoman.core.events import AnyEvent, TextDelta
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.mcp_client.pool import McpServers
from dragoman.tool_executors.config import CodeExecutionConfig, ToolsConfig, WebSearchConfig
from dragoman.tool_executors.registry import build_executors
from support.mcp_servers import stdio
from support.scenarios import call
from support.vendor_tools import ONLY, asking, items, messages, scripted

each_stream = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
ANSWER = [TextDelta("Done.")]


@asynccontextmanager
async def runner(search: str = "search", code: str = "run", **fields: Any) -> AsyncIterator[VendorToolRunner]:
    servers = McpServers({"books": stdio(**fields)}, {})
    tools = ToolsConfig(
        web_search=WebSearchConfig(use=f"mcp:books/{search}"),
        code_execution=CodeExecutionConfig(use=f"mcp:books/{code}"),
    )
    try:
        yield VendorToolRunner(build_executors(tools, servers))
    finally:
        await servers.close()


def results(request: v.Request) -> list[v.ToolResult]:
    return [part for message in request.messages for part in message.parts if isinstance(part, v.ToolResult)]


def read(result: v.ToolResult) -> str:
    return "".join(part.text for part in result.parts if isinstance(part, v.Text))


@each_stream
async def test_search(stream: bool) -> None:
    asked: list[v.Request] = []
    searching = call(0, "web_search", query="Dragoman")
    async with runner() as tools, asking(scripted(searching, ANSWER, asked=asked), tools) as http:
        content, _ = await messages(http, stream, **ONLY["anthropic_messages"])
    (hit,) = content[1]["content"]
    assert (hit["url"], hit["title"]) == ("mcp://books/search", "search")
    assert "Dragoman was released in May." in read(results(asked[1])[0])


@pytest.mark.parametrize(
    ("domains", "found"),
    [
        ({}, ["https://good.org/a", "https://evil.com/b"]),
        ({"blocked_domains": ["evil.com"]}, ["https://good.org/a"]),
        ({"allowed_domains": ["good.org"]}, ["https://good.org/a"]),
    ],
)
async def test_domains_of_the_client_hold(domains: dict[str, list[str]], found: list[str]) -> None:
    hits = json.dumps([{"url": "https://good.org/a", "title": "A" * 9000}, {"url": "https://evil.com/b"}])
    searching = call(0, "web_search", query=hits)
    tool = {**ONLY["anthropic_messages"]["tools"][0], **domains}
    async with runner(search="echo") as tools, asking(scripted(searching, ANSWER, asked=[]), tools) as http:
        content, _ = await messages(http, False, tools=[tool])
    assert [hit["url"] for hit in content[1]["content"]] == found
    assert len(content[1]["content"][0]["title"]) == 500


async def test_model_reads_the_location_of_the_user() -> None:
    asked: list[v.Request] = []
    tool = {**ONLY["anthropic_messages"]["tools"][0], "user_location": {"type": "approximate", "city": "Graz"}}
    async with runner() as tools, asking(scripted(ANSWER, asked=asked), tools) as http:
        await messages(http, False, tools=[tool])
    assert asked[0].tools[0].description == "Searches the web. The user is near Graz."


async def test_settings_of_the_search_hold() -> None:
    servers = McpServers({"books": stdio()}, {})
    settings = WebSearchConfig(use="mcp:books/search", models=("qwen*",), timeout_s=2.5)
    executor = build_executors(ToolsConfig(web_search=settings), servers)["web_search"]
    assert (executor.admits("qwen3"), executor.admits("m"), executor.timeout_s) == (True, False, 2.5)
    with pytest.raises(ConfigError, match="url is set, but no search uses it"):
        build_executors(ToolsConfig(web_search=WebSearchConfig(use="mcp:books/search", url="http://x")), servers)


async def test_output_of_code_is_cut_for_this_and_later_requests() -> None:
    asked: list[v.Request] = []
    running = call(0, "code_execution", code="x" * 500)
    offered = {"tools": [{"type": "code_execution_20250522", "name": "code_execution"}]}
    servers = McpServers({"books": stdio()}, {})
    tools = ToolsConfig(code_execution=CodeExecutionConfig(use="mcp:books/echo"))
    limited = VendorToolRunner(build_executors(tools, servers), max_result_chars=100, on_close=servers.close)
    async with asking(scripted(running, ANSWER, ANSWER, asked=asked), limited) as http:
        content, _ = await messages(http, False, **offered)
        turns = ["Run it.", content, "Thanks."]
        roles = ["user", "assistant", "user"]
        history = [{"role": role, "content": turn} for role, turn in zip(roles, turns, strict=True)]
        await messages(http, False, messages=history, **offered)
    await limited.close()
    texts = [read(results(request)[0]) for request in asked[1:]]
    assert texts[0] == texts[1]
    assert texts[0].startswith("x" * 100 + " [")


async def test_deeply_nested_result_is_a_result() -> None:
    asked: list[v.Request] = []
    searching = call(0, "web_search", query="[" * 5000)
    async with runner(search="echo") as tools, asking(scripted(searching, ANSWER, asked=asked), tools) as http:
        await messages(http, False, **ONLY["anthropic_messages"])
    assert "[[[" in read(results(asked[1])[0])


async def test_half_of_a_character_in_a_result_is_replaced() -> None:
    hits = json.dumps([{"url": "https://a.org", "title": "\ud83d"}])
    searching = call(0, "web_search", query=hits)
    async with runner(search="echo") as tools, asking(scripted(searching, ANSWER, asked=[]), tools) as http:
        content, _ = await messages(http, False, **ONLY["anthropic_messages"])
    assert [hit["title"] for hit in content[1]["content"]] == ["\ufffd"]


@pytest.mark.parametrize(
    ("version", "name", "argument", "block"),
    [
        ("code_execution_20250522", "code_execution", "code", "code_execution"),
        ("code_execution_20250825", "bash_code_execution", "command", "bash_code_execution"),
        ("code_execution_20260120", "code_execution", "code", "code_execution"),
    ],
)
@each_stream
async def test_code_for_messages(stream: bool, version: str, name: str, argument: str, block: str) -> None:
    asked: list[v.Request] = []
    running = call(0, "code_execution", code="ls")
    offered = {"tools": [{"type": version, "name": "code_execution"}]}
    script = scripted(running, ANSWER, ANSWER, asked=asked)
    async with runner() as tools, asking(script, tools) as http:
        content, _ = await messages(http, stream, **offered)
        history = [
            {"role": "user", "content": "Run it."},
            {"role": "assistant", "content": content},
            {"role": "user", "content": "Thanks."},
        ]
        await messages(http, stream, messages=history, **offered)
    use, result, text = content
    assert (use["name"], use["input"], text["text"]) == (name, {argument: "ls"}, "Done.")
    assert result["type"] == f"{block}_tool_result"
    assert result["content"] == {
        "type": f"{block}_result",
        "content": [],
        "return_code": 0,
        "stderr": "",
        "stdout": "ran 2 characters",
    }
    (now,), (later,) = results(asked[1]), results(asked[2])
    assert read(now) == read(later) == "ran 2 characters"
    past = asked[2].messages[1].parts[0]
    assert isinstance(past, v.ToolCall)
    assert (past.name, past.arguments) == ("code_execution", '{"code":"ls"}')


@each_stream
async def test_code_for_responses(stream: bool) -> None:
    asked: list[v.Request] = []
    running = call(0, "code_interpreter", code="print(1)")
    offered = {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}
    async with runner() as tools, asking(scripted(running, ANSWER, asked=asked), tools) as http:
        (item, _, _), names = await items(http, stream, **offered)
    assert (item["type"], item["status"], item["code"]) == ("code_interpreter_call", "completed", "print(1)")
    assert item["outputs"] == [{"type": "logs", "logs": "ran 8 characters"}]
    assert not stream or "response.code_interpreter_call.interpreting" in names


@pytest.mark.parametrize(
    ("tool", "problem"),
    [
        ("crash", "the MCP server books ended before it could answer the call of crash"),
        ("none", "the MCP server books has no tool none"),
    ],
)
async def test_failing_server_is_an_error_that_names_it(tool: str, problem: str) -> None:
    asked: list[v.Request] = []
    running: list[AnyEvent] = list(call(0, "code_execution", code="ls"))
    offered = {"tools": [{"type": "code_execution_20250522", "name": "code_execution"}]}
    async with runner(code=tool) as tools, asking(scripted(running, ANSWER, asked=asked), tools) as http:
        content, _ = await messages(http, False, **offered)
    assert content[1]["content"] == {"type": "code_execution_tool_result_error", "error_code": "unavailable"}
    (result,) = results(asked[1])
    assert result.is_error
    assert problem in read(result)


async def test_failed_code_has_an_exit_status() -> None:
    asked: list[v.Request] = []
    running = call(0, "code_execution", code="ls")
    offered = {"tools": [{"type": "code_execution_20250522", "name": "code_execution"}]}
    async with runner(code="fail") as tools, asking(scripted(running, ANSWER, asked=asked), tools) as http:
        content, _ = await messages(http, False, **offered)
    assert content[1]["content"]["return_code"] == 1
    assert "the ledger is closed" in content[1]["content"]["stderr"]


async def test_model_gets_images() -> None:
    asked: list[v.Request] = []
    running = call(0, "code_execution", code="ls")
    offered = {"tools": [{"type": "code_execution_20250522", "name": "code_execution"}]}
    async with (
        runner(code="chart", images=True) as tools,
        asking(scripted(running, ANSWER, asked=asked), tools) as http,
    ):
        await messages(http, False, **offered)
    (result,) = results(asked[1])
    assert [type(part) for part in result.parts] == [v.Text, v.Image]


@pytest.mark.parametrize(
    ("use", "problem"),
    [
        ("mcp:books", "expected mcp:NAME/TOOL, got 'mcp:books' - at tools.code_execution.use"),
        ("mcp:book/run", "got 'book'; did you mean 'books'\\? - at tools.code_execution.use"),
        ("mcp:books/run", "expected one of mcp.books.allowed_tools, got 'run'"),
    ],
)
def test_wrong_use(use: str, problem: str) -> None:
    servers = McpServers({"books": stdio(allowed_tools=("add",))}, {})
    with pytest.raises(ConfigError, match=problem):
        build_executors(ToolsConfig(code_execution=CodeExecutionConfig(use=use)), servers)
