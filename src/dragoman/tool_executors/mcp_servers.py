"""Runs the tools of MCP servers that requests declare: those of allowed hosts, and the servers of the settings."""

import json
import logging
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

from dragoman.core.errors import ConfigError, RequestError, nearest, quote
from dragoman.host_names import host_name
from dragoman.mcp_client.config import McpServerConfig
from dragoman.mcp_client.pool import McpServers
from dragoman.mcp_client.result import McpServerError
from dragoman.mcp_client.server import McpServer
from dragoman.vendor_tools.remote import RemoteServer
from dragoman.vendor_tools.tool import ToolRunResult, ToolServers, VendorTool, VendorToolCall, error_result

log = logging.getLogger("dragoman.tool_executors")

_MAX_SERVERS: Final = 32
"""Maximum open connections to servers that requests name."""
_OF_SETTINGS: Final = "mcp:"


class McpServersExecutor(ToolServers):
    """Asks the declared servers."""

    def __init__(self, servers: McpServers, allowed_hosts: Iterable[str] = ()) -> None:
        """Args:
        servers: The servers of the settings.
        allowed_hosts: Hosts that requests may name.
        """
        self._servers = servers
        self._allowed = frozenset(map(host_name, allowed_hosts))
        self._named: dict[tuple[str, tuple[tuple[str, str], ...]], McpServer] = {}
        """Servers that requests named, by URL and headers; the one used last is the last."""

    def offered(self, model: str) -> list[VendorTool]:
        """See `ToolServers.offered`."""
        return [
            VendorTool("mcp", name, "", server=RemoteServer(name, "", f"mcp.{name}"), is_internal=True)
            for name, server in self._servers.by_name.items()
            if any(fnmatchcase(model, pattern) for pattern in server.config.offer_to)
        ]

    async def list_tools(self, tool: VendorTool) -> ToolRunResult:
        """See `ToolServers.list_tools`."""
        assert tool.server is not None
        server = await self._find(tool.server)
        try:
            listed = await server.tools()
        except McpServerError as error:
            return ToolRunResult(str(error), error="unavailable")
        return ToolRunResult("", listed=tuple(each for each in listed if tool.server.offers(each)))

    async def run(self, call: VendorToolCall) -> ToolRunResult:
        """Calls the tool. See `ToolExecutor.run`."""
        tool = call.tool
        assert tool.server is not None
        assert tool.remote is not None
        try:
            arguments = json.loads(call.arguments)
        except ValueError:
            return error_result("invalid_tool_input")
        if not isinstance(arguments, dict):
            return error_result("invalid_tool_input")
        try:
            result = await (await self._find(tool.server)).call(tool.remote.name, arguments)
        except McpServerError as error:
            return ToolRunResult(f"{error}.", error="unavailable")
        return ToolRunResult(result.text, error="unavailable" if result.is_error else None, images=result.images)

    async def close(self) -> None:
        """Closes the connections to servers that requests named."""
        for server in self._named.values():
            await server.close()

    async def _find(self, declared: RemoteServer) -> McpServer:
        """Returns the server.

        Raises:
            RequestError: Requests may not name it.
        """
        if not declared.url or declared.url.startswith(_OF_SETTINGS):
            name = declared.url.removeprefix(_OF_SETTINGS) or declared.label
            server = self._servers.by_name.get(name)
            if server is None:
                hint = nearest(name, self._servers.by_name)
                raise RequestError(
                    f"expected the URL of an MCP server, got the name {quote(name)}{hint}", declared.path
                )
            return server
        if not declared.url.startswith(("http://", "https://")) or host_name(declared.url) not in self._allowed:
            raise RequestError(
                f"this gateway may not connect to the MCP server {quote(host_name(declared.url) or declared.url)}: "
                "add its host to tools.mcp_allowed_hosts in the settings of Dragoman",
                declared.path,
            )
        return await self._connected(declared)

    async def _connected(self, declared: RemoteServer) -> McpServer:
        key = declared.url, tuple(sorted(declared.headers.items()))
        server = self._named.pop(key, None)
        if server is None:
            config = McpServerConfig(url=declared.url, headers=dict(declared.headers))
            try:
                server = McpServer(declared.label, config)
            except ConfigError as error:
                raise RequestError(error.message, declared.path) from None
        self._named[key] = server
        for other in [key for key, each in self._named.items() if each.is_idle][: len(self._named) - _MAX_SERVERS]:
            await self._named.pop(other).close()
        return server
