"""A server of MCP by the SDK, for tests: python mcp_server.py [PORT], by stdio or by HTTP at /mcp; 0 is a free port.

It has 46 tools. By HTTP it prints its URL.
"""

import asyncio
import base64
import os
import socket
import sys
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
server = MCPServer("accounting")
READS = ToolAnnotations(read_only_hint=True)


@server.tool(annotations=READS)
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool(annotations=READS)
def search(query: str) -> str:
    """Searches the files."""
    return f"{query} was released in May."


@server.tool()
def run(code: str) -> str:
    """Runs code."""
    return f"ran {len(code)} characters"


@server.tool()
def chart() -> Image:
    """Draws a chart."""
    return Image(data=PIXEL, format="png")


@server.tool()
def report() -> dict[str, int]:
    """Returns structured content."""
    return {"files": 4}


@server.tool()
def fail() -> str:
    """Always fails."""
    raise ToolError("the ledger is closed")


@server.tool()
async def hang(started: str = "") -> str:
    """Never returns."""
    if started:
        Path(started).touch()
    try:
        await asyncio.Event().wait()
    finally:
        if started:
            Path(started).with_suffix(".cancelled").touch()
    raise AssertionError


@server.tool()
def freeze() -> str:
    """Blocks the whole server."""
    import threading

    threading.Event().wait()
    raise AssertionError


@server.tool()
def crash() -> str:
    """Ends the server."""
    os._exit(1)


@server.tool()
def large(size: int) -> str:
    """Returns a long text."""
    return "x" * size


@server.tool()
def echo(query: str) -> str:
    """Returns the text."""
    return query


@server.tool()
def variable(name: str) -> str:
    """Returns an environment variable."""
    return os.environ.get(name, "")


@server.tool()
def pid() -> int:
    """Returns the number of the process."""
    return os.getpid()


@server.tool()
async def grow(context: Context[Any]) -> str:
    """Adds a tool."""
    server.add_tool(lambda: "new", name="grown", description="Is new.")
    await context.notify_tools_changed()
    return "grown"


@server.tool()
def header(field: str, context: Context[Any]) -> str:
    """Returns a header of the request."""
    headers = context.headers
    return "" if headers is None else headers.get(field, "")


def more(number: int) -> None:
    server.add_tool(lambda: str(number), name=f"report_{number}", description=f"Returns report {number}.")


for count in range(46 - 15):
    more(count)


def main() -> None:
    if not sys.argv[1:]:
        server.run("stdio")
        return
    import uvicorn

    with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
        app = server.streamable_http_app(host="127.0.0.1")
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listener])


if __name__ == "__main__":
    main()
