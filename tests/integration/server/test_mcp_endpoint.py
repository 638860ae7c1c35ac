"""The tools of the configured MCP servers at /mcp, with the SDK's client."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult

from dragoman.compose import vendor_tools
from dragoman.config import Config
from dragoman.core.events import TextDelta
from dragoman.gateway.gateway import Gateway
from dragoman.mcp_client import endpoint
from dragoman.mcp_client.config import McpServerConfig
from dragoman.mcp_client.pool import McpServers
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


async def test_no_stream_stays_open() -> None:
    async with serving(gateway(books=stdio())) as (_, url), httpx2.AsyncClient() as http:
        for method in ("GET", "DELETE"):
            answer = await http.request(method, f"{url}/mcp", headers={"accept": "text/event-stream"})
            assert (answer.status_code, answer.headers["allow"]) == (405, "POST, OPTIONS")


async def test_call_does_not_ask_other_servers(tmp_path: Path) -> None:
    started = tmp_path / "started"
    other = McpServerConfig(command=(sys.executable, "-c", f"open({str(started)!r}, 'w').close()"), serve=True)
    async with (
        serving(gateway(books=stdio(), other=other)) as (_, url),
        Client(streamable_http_client(f"{url}/mcp"), mode="2026-07-28") as client,
    ):
        result = await client.session.send_request(
            CallToolRequest(params=CallToolRequestParams(name="books__add", arguments={"a": 2, "b": 3})),
            CallToolResult,
        )
    assert result.structured_content == {"result": 5}
    assert not started.exists()


async def test_only_servers_for_clients_are_served() -> None:
    async with (
        serving(gateway(books=stdio(), hidden=stdio(serve=False))) as (_, url),
        Client(streamable_http_client(f"{url}/mcp")) as client,
    ):
        assert len((await client.list_tools()).tools) == 46
        assert (await client.call_tool("hidden__add", {"a": 2, "b": 3})).is_error
    async with serving(gateway(hidden=stdio(serve=False))) as (_, url), httpx2.AsyncClient() as http:
        assert (await http.post(f"{url}/mcp", json={})).status_code == 404


async def test_failed_start_of_the_endpoint_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(endpoint, "combined_server", fail)
    app = endpoint.McpEndpoint(McpServers({}, {}))
    for _ in range(2):
        async with asyncio.timeout(30):
            with pytest.raises(RuntimeError):
                await app({}, unused, unused)


async def unused(*_: object) -> Any:
    raise AssertionError


async def test_nothing_is_served_without_servers() -> None:
    async with serving(gateway()) as (_, url), httpx2.AsyncClient() as http:
        assert (await http.post(f"{url}/mcp", json={})).status_code == 404
