"""A server of MCP over stdio, for tests, whose tools fetch pages: it has three pages and needs no network."""

import asyncio
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("pages")
PAGES = {
    "/news": "Dragoman 1.0 came out on the fifth of May, in Lisbon.",
    "/data": '{"title": "Not a title", "content": "Not a page"}',
}


def text_of(url: str) -> str:
    text = PAGES.get("/" + url.rpartition("/")[2])
    if text is None:
        raise ToolError(f"{url} has no page")
    return text


@server.tool()
def read(url: str, max_length: int = 5000) -> str:
    """Reads a page as text."""
    return text_of(url)[:max_length]


@server.tool()
def structured(uri: str) -> dict[str, Any]:
    """Reads a page as an object."""
    return {"title": "News", "content": text_of(uri), "status": 200}


@server.tool()
def moved(link: str) -> dict[str, Any]:
    """Reads a page of another host."""
    return {"url": "https://elsewhere.example/news", "text": text_of(link)}


@server.tool()
async def hang(url: str) -> str:
    """Never returns."""
    await asyncio.Event().wait()
    raise AssertionError


if __name__ == "__main__":
    server.run()
