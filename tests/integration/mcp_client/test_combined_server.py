"""`dragoman mcp` with the SDK's client: the tools of two real servers as one."""

import json
import sys
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from support.mcp_servers import COMMAND, OLD_COMMAND


def parameters(tmp_path: Path, *servers: tuple[str, tuple[str, ...]]) -> StdioServerParameters:
    file = tmp_path / "config.toml"
    file.write_text("".join(f"[mcp.{name}]\ncommand = {json.dumps(command)}\n" for name, command in servers))
    return StdioServerParameters(command=sys.executable, args=["-m", "dragoman", "mcp", "--config", str(file)])


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
