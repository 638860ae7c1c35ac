"""The tools of the configured MCP servers at /mcp, with the SDK's client."""

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from dragoman.compose import vendor_tools
from dragoman.config import Config
from dragoman.core.events import TextDelta
from dragoman.gateway.gateway import Gateway
from dragoman.mcp_client.config import McpServerConfig
from support.mcp_servers import stdio
from support.scripted_backend import Scripted, serving
from support.vendor_tools import scripted

KEY = "a-long-key"


def gateway(**servers: McpServerConfig) -> Gateway:
    return Gateway([Scripted(scripted([TextDelta("a")], asked=[]))], vendor_tools=vendor_tools(Config(mcp=servers)))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_tools_are_served_to_clients_with_a_key(mode: str) -> None:
    async with serving(gateway(books=stdio()), api_keys=(KEY,)) as (_, url):
        async with (
            httpx2.AsyncClient(headers={"authorization": f"Bearer {KEY}"}) as http,
            Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
        ):
            assert len((await client.list_tools()).tools) == 46
            assert (await client.call_tool("books__add", {"a": 2, "b": 3})).structured_content == {"result": 5}
        async with httpx2.AsyncClient() as http:
            assert (await http.post(f"{url}/mcp", json={})).status_code == 401
            assert (
                await http.post(f"{url}/mcp", json={}, headers={"origin": "https://evil.example"})
            ).status_code == 403
            assert (await http.post(f"{url}/mcp", json={}, headers={"host": "evil.example"})).status_code == 403


async def test_nothing_is_served_without_servers() -> None:
    async with serving(gateway()) as (_, url), httpx2.AsyncClient() as http:
        assert (await http.post(f"{url}/mcp", json={})).status_code == 404
