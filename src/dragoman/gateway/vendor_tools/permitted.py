"""The vendor tools that an API key may use."""

from collections.abc import Mapping

from dragoman.core.client import Permissions
from dragoman.core.errors import RequestError, quote
from dragoman.gateway.vendor_tools.tool_search import BUILT_IN
from dragoman.host_names import host_name
from dragoman.vendor_tools.executor import ToolExecutor, ToolServers
from dragoman.vendor_tools.remote import RemoteServer
from dragoman.vendor_tools.tool import ToolRunResult, VendorTool, VendorToolCall

_OF_SETTINGS = "mcp:"


def permitted_executors(executors: Mapping[str, ToolExecutor], permissions: Permissions) -> dict[str, ToolExecutor]:
    """Returns the executors that the key may use, by kind of tool; a tool search runs nothing, so it stays."""
    permitted: dict[str, ToolExecutor] = {}
    for kind, executor in executors.items():
        if isinstance(executor, ToolServers):
            permitted[kind] = _PermittedServers(executor, permissions)
        elif kind in BUILT_IN or permissions.admits_tool(kind):
            permitted[kind] = executor
    return permitted


class _PermittedServers(ToolServers):
    """MCP servers, of which the key may use some."""

    def __init__(self, servers: ToolServers, permissions: Permissions) -> None:
        self._servers, self._permissions = servers, permissions
        self.timeout_s, self.models = servers.timeout_s, servers.models

    def offered(self, *models: str) -> list[VendorTool]:
        """See `ToolServers.offered`."""
        return [tool for tool in self._servers.offered(*models) if tool.server and self._admits(tool.server)]

    def served(self) -> list[VendorTool]:
        """See `ToolServers.served`."""
        return [tool for tool in self._servers.served() if tool.server and self._admits(tool.server)]

    async def list_tools(self, tool: VendorTool) -> ToolRunResult:
        """See `ToolServers.list_tools`."""
        server = tool.server
        if server is not None and not self._admits(server):
            raise RequestError(f"this API key may not use the MCP server {quote(_name(server))}", server.path)
        return await self._servers.list_tools(tool)

    async def run(self, call: VendorToolCall) -> ToolRunResult:
        """Calls a tool, which `list_tools` returned."""
        return await self._servers.run(call)

    def _admits(self, server: RemoteServer) -> bool:
        return self._permissions.admits_tool(f"{_OF_SETTINGS}{_name(server)}")


def _name(server: RemoteServer) -> str:
    """Returns the name of a server of the settings, or the host of another one."""
    if not server.url:
        return server.label
    if server.url.startswith(_OF_SETTINGS):
        return server.url.removeprefix(_OF_SETTINGS)
    return host_name(server.url) or server.url
