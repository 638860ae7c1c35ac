"""Forty-six tools of a real MCP server, used by clients whose model is the real Claude CLI."""

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import openai
from bench import offline
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from support.claude_gateway import PREFIX, Says, Turns, behind_claude, offered, text
from support.gateway import DEADLINE_S
from support.mcp_accounting import CALLS, RESULTS, SERVER

LAST: Final = "The year cannot be closed."


@asynccontextmanager
async def server() -> AsyncIterator[ClientSession]:
    """Starts the MCP server in a separate process, and yields a client session."""
    started = StdioServerParameters(command=str(offline.agent("python")), args=[str(SERVER)])
    async with stdio_client(started) as streams, ClientSession(*streams) as session:
        await session.initialize()
        yield session


async def converse(url: str, session: ClientSession) -> str:
    """A small agent: offers the server's tools with prefixed names, and runs the calls on the server."""
    listed = {f"mcp_fwbg_{tool.name}": tool for tool in (await session.list_tools()).tools}
    tools: Any = [
        {"type": "function", "function": {"name": n, "description": t.description, "parameters": t.input_schema}}
        for n, t in listed.items()
    ]
    assert len(tools) == 46
    said: list[Any] = [{"role": "user", "content": "Close the year."}]
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0, timeout=DEADLINE_S) as sdk:
        while True:
            async with sdk.chat.completions.stream(model="m", messages=said, tools=tools) as events:
                message: Any = (await events.get_final_completion()).choices[0].message
            if not message.tool_calls:
                return str(message.content)
            said.append(message)
            for call in message.tool_calls:
                done = await session.call_tool(listed[call.function.name].name, json.loads(call.function.arguments))
                told = "".join(part.text for part in done.content if part.type == "text")
                said.append({"role": "tool", "tool_call_id": call.id, "content": told})


def in_order(tools: Mapping[str, tuple[str, Any]]) -> list[str]:
    return sorted(json.dumps(about, sort_keys=True) for about in tools.values())


async def test_custom_agent_uses_mcp_tools_on_claude_cli(tmp_path: Path) -> None:
    script = Turns([Says(calls=[(f"mcp_fwbg_{name}", arguments) for name, arguments in CALLS]), Says(LAST)])
    async with behind_claude(script, tmp_path, "native") as chain, server() as session:
        assert await converse(chain.url, session) == LAST
    first, second = chain.seen()
    theirs = offered(chain.posted[0])
    assert in_order(first.tools) == in_order(theirs)
    assert all(re.fullmatch(r"mcp_fwbg_[a-zA-Z0-9_-]{1,55}", name) for name in first.tools)
    kept = {name for name in theirs if re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)}
    assert len(kept) == 34
    assert {name: first.tools.get(name) for name in kept} == {name: theirs[name] for name in kept}
    asked, called, told = second.said
    assert asked == ("user", [text("Close the year.")])
    uses = [(block["name"].removeprefix(PREFIX), block["input"]) for block in called[1]]
    assert [(first.tools[name], arguments) for name, arguments in uses] == [
        (theirs[f"mcp_fwbg_{name}"], arguments) for name, arguments in CALLS
    ]
    assert [block["content"] for block in told[1]] == RESULTS
    assert [block["tool_use_id"] for block in told[1]] == [block["id"] for block in called[1]]
