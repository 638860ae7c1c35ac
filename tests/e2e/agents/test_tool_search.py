"""The real Claude Code finds a tool among 200 of an MCP server by its own ToolSearch; its WebFetch needs no gateway."""

import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import pytest
from bench import claude_code

from dragoman.core import messages as v
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from dragoman.core.identifiers import random_id
from support import agents, office_server
from support.fake_upstream import gateway as gateway_to
from support.scripted_backend import Script, Scripted, served

PREFIX: Final = "mcp__office__"
TOOL: Final = f"{PREFIX}archive_contract"


def options(home: Path) -> list[str]:
    """Only ToolSearch and the server's tools, which the client runs without asking."""
    config = home / "mcp.json"
    server = {"command": sys.executable, "args": [office_server.__file__]}
    config.write_text(json.dumps({"mcpServers": {"office": server}}))
    tools = ["--tools", "ToolSearch", "--allowedTools", "ToolSearch", "mcp__office"]
    return ["--mcp-config", str(config), "--strict-mcp-config", "--system-prompt", "You run an office.", *tools]


def calling(*calls: tuple[str, dict[str, str]], asked: list[v.Request]) -> Script:
    """A model that makes these calls in turn, then repeats the last result."""

    async def play(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        asked.append(request)
        results = [part for m in request.messages for part in m.parts if isinstance(part, v.ToolResult)]
        yield Start("", "", 0)
        if len(results) < len(calls):
            name, arguments = calls[len(results)]
            yield ToolCallStart(0, random_id(), name)
            yield ToolCallDelta(0, json.dumps(arguments))
            yield ToolCallEnd(0)
        else:
            yield TextDelta(agents.words(results[-1]))
        yield Finish("stop")

    return play


def called(told: list[dict[str, Any]]) -> list[str]:
    return [call["name"] for call in claude_code.Run(told).parts("assistant", "tool_use")]


def names(request: v.Request) -> list[str]:
    return [tool.name for tool in request.tools]


@pytest.mark.ran("Claude Code", "a script")
async def test_claude_code_finds_tool_among_two_hundred(tmp_path: Path) -> None:
    """The model behind a second gateway reads the found schema as text in the result, and no placeholder."""
    asked: list[v.Request] = []
    script = calling(("ToolSearch", {"query": "archive contract"}), (TOOL, {"id": "c-17"}), asked=asked)
    async with served(script) as far, gateway_to(far.url, tool_mode="native") as url:
        told = await agents.claude_code(
            url, tmp_path, agents.folder_of(tmp_path), *options(tmp_path), prompt="Archive contract c-17"
        )
    assert called(told) == ["ToolSearch", TOOL]
    search, call = (line for line in told if line["type"] == "user")
    assert search["tool_use_result"]["total_deferred_tools"] == office_server.COUNT == 200
    found = search["tool_use_result"]["matches"]
    assert TOOL in found
    assert "archive contract: c-17" in json.dumps(call["message"]["content"])
    assert "archive contract: c-17" in told[-1]["result"]
    before, after, _ = asked
    assert names(before) == ["ToolSearch"]
    assert names(after) == ["ToolSearch", *found]
    (read,) = (part for part in after.messages[-1].parts if isinstance(part, v.ToolResult))
    assert '"parameters": {' in agents.words(read)
    assert [message.parts for message in after.messages[: len(before.messages)]] == [m.parts for m in before.messages]


@pytest.mark.ran("Claude Code", "a script")
async def test_web_fetch_of_claude_code_sends_gateway_no_tool(tmp_path: Path) -> None:
    """It fetches pages itself, after it has asked its vendor for the host; here it reaches neither."""
    asked: list[v.Request] = []
    script = calling(("WebFetch", {"url": "https://pages.example/", "prompt": "Date?"}), asked=asked)
    more = ["--tools", "WebFetch", "--allowedTools", "WebFetch"]
    async with served(script) as far:
        told = await agents.claude_code(far.url, tmp_path, agents.folder_of(tmp_path), *more, prompt="Fetch it")
    assert "Unable to verify if domain pages.example is safe to fetch" in told[-1]["result"]
    assert [tool.kind for request in asked for tool in request.tools if tool.name == "web_fetch"] == []
    assert len(asked) == 2
