"""`dragoman mcp` with the SDK's client: the tools of two real servers as one."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from dragoman import extras
from support.base_environment import command
from support.mcp_servers import COMMAND, OLD_COMMAND

STAYS = f"runpy.run_path({OLD_COMMAND[1]!r}, run_name='__main__'); signal.sigwait([signal.SIGINT])"
"""Serves, and stays when standard input ends."""
HANDSHAKE: list[dict[str, Any]] = [
    {
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    },
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/list"},
]


def parameters(
    tmp_path: Path, *servers: tuple[str, tuple[str, ...]], python: tuple[str, ...] = ("-m", "dragoman")
) -> StdioServerParameters:
    file = tmp_path / "config.toml"
    file.write_text("".join(f"[mcp.{name}]\ncommand = {json.dumps(command)}\n" for name, command in servers))
    return StdioServerParameters(command=sys.executable, args=[*python, "mcp", "--config", str(file)])


async def test_needs_only_the_tools_extra(tmp_path: Path) -> None:
    program = command(*extras.PACKAGES["tools"], "starlette", "uvicorn")  # the SDK installs both
    async with Client(parameters(tmp_path, ("books", COMMAND), python=("-c", program))) as client:
        added = await client.call_tool("books__add", {"a": 2, "b": 3})
    assert added.structured_content == {"result": 5}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_serves_all_tools_as_one(tmp_path: Path, mode: str) -> None:
    servers = (("books", COMMAND), ("old", OLD_COMMAND), ("broken", ("/no/such/program",)))
    async with Client(parameters(tmp_path, *servers), mode=mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert len(tools) == 47
        assert tools["books__add"].input_schema["required"] == ["a", "b"]
        assert tools["books__add"].annotations is not None
        added = await client.call_tool("books__add", {"a": 2, "b": 3})
        assert (added.content[0].type, added.structured_content) == ("text", {"result": 5})
        assert (await client.call_tool("old__greet", {})).content[0].type == "text"
        assert (await client.call_tool("books__chart", {})).content[0].type == "image"
        for name in ("books__crash", "broken__x", "none__x", "x"):
            assert (await client.call_tool(name, {})).is_error
        assert not (await client.call_tool("books__add", {"a": 2, "b": 3})).is_error


async def test_programs_end_at_sigterm(tmp_path: Path) -> None:
    started = tmp_path / "pid"
    code = f"import os; open({str(started)!r}, 'w').write(str(os.getpid())); {STAYS}"
    server = parameters(tmp_path, ("stays", (sys.executable, "-c", f"import runpy, signal; {code}")))
    process = await asyncio.create_subprocess_exec(
        server.command, *server.args, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for message in HANDSHAKE:
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    while "greet" not in (await process.stdout.readline()).decode():
        pass
    process.terminate()
    assert await process.wait() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)
