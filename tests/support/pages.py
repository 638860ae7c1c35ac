"""A real server of web pages, and fetches from it by names that a test's own resolver knows."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from dragoman.tool_executors.config import WebFetchConfig
from dragoman.tool_executors.fetch.address_guard import SocketAddress
from dragoman.tool_executors.fetch.web_fetch import WebFetch
from dragoman.vendor_tools.tool import ToolRunResult, VendorTool, VendorToolCall
from support.raw_server import RawServer, raw_server

TOOL: Final = VendorTool("web_fetch", "web_fetch", "web_fetch_20250910")


def page(body: bytes | str, content_type: str = "text/html; charset=utf-8", status: int = 200, **headers: str) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    fields = {"content-type": content_type, "content-length": str(len(data)), **headers}
    lines = [f"HTTP/1.1 {status} X", *(f"{name.replace('_', '-')}: {value}" for name, value in fields.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + data


def redirect(location: str, status: int = 302) -> bytes:
    return page("", status=status, location=location)


class Site:
    """Responds to each path with these bytes."""

    def __init__(self, server: RawServer, pages: dict[str, bytes]) -> None:
        self.server = server
        self.pages = pages

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def paths(self) -> list[str]:
        return [request.split()[1].decode() for request in self.server.requests]

    def url(self, path: str, host: str = "pages.example") -> str:
        return f"http://{host}:{self.port}{path}"


@contextlib.asynccontextmanager
async def site(pages: Mapping[str, bytes], **settings: Any) -> AsyncIterator[Site]:
    contents = dict(pages)

    async def respond(server: RawServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await server.request(reader)
        writer.write(contents.get(head.split()[1].decode(), page("", status=404)))
        await writer.drain()

    async with raw_server(respond, **settings) as server:
        yield Site(server, contents)


class Resolver:
    """Resolves every name to these addresses, one list for each lookup; the last one for all later ones."""

    def __init__(self, *responses: Sequence[str]) -> None:
        self.responses = responses or (["127.0.0.1"],)
        self.lookups: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[SocketAddress]:
        self.lookups.append(host)
        found = self.responses[min(len(self.lookups), len(self.responses)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]


def fetcher(port: int, resolver: Resolver | None = None, **settings: Any) -> WebFetch:
    """A fetcher that reaches the site as `pages.example`."""
    fields = {"allow_private": ("pages.example",), "allowed_ports": (80, 443, port), "any_url": True, **settings}
    return WebFetch(WebFetchConfig("http", **fields), resolver or Resolver())


async def fetched(fetch: WebFetch, url: str, tool: VendorTool = TOOL) -> ToolRunResult:
    return await fetch.run(VendorToolCall("1", tool, json.dumps({"url": url})))
