"""Runs the tools of MCP servers that requests declare: those of allowed hosts, and the servers of the settings."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from dragoman.core.errors import ConfigError, RequestError, nearest, quote
from dragoman.host_names import host_name
from dragoman.mcp_client.config import McpServerConfig
from dragoman.mcp_client.pool import McpServers
from dragoman.mcp_client.result import McpServerError
from dragoman.mcp_client.server import McpServer
from dragoman.text.json_cursor import load_json
from dragoman.vendor_tools.executor import ToolServers, matches_model
from dragoman.vendor_tools.remote import RemoteServer
from dragoman.vendor_tools.tool import ToolRunResult, VendorTool, VendorToolCall, error_result

log = logging.getLogger("dragoman.tool_executors")

_MAX_SERVERS: Final = 32
"""Connections to servers that requests name above which unused ones are closed."""
_IDLE_S: Final = 600.0
"""Time after which an unused connection to such a server is closed."""
_OF_SETTINGS: Final = "mcp:"
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_REJECTED_HEADERS: Final = frozenset(
    (
        *("host", "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "content-length"),
        *("content-type", "content-encoding", "accept", "accept-encoding", "expect", "forwarded", "via"),
        *("last-event-id", "x-real-ip", "x-original-url", "x-rewrite-url"),
    )
)
_REJECTED_PREFIXES: Final = ("mcp-", "proxy-", "x-forwarded-")
_Key: TypeAlias = tuple[str, str, tuple[tuple[str, str], ...]]


class _Named:
    """A server that requests named, and how many use it now."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.users = 0
        self.closing: asyncio.TimerHandle | None = None


class McpServersExecutor(ToolServers):
    """Asks the declared servers."""

    def __init__(self, servers: McpServers, allowed_hosts: Iterable[str] = (), idle_s: float = _IDLE_S) -> None:
        """Args:
        servers: The servers of the settings.
        allowed_hosts: Hosts that requests may name; an entry with a port allows only this port.
        idle_s: Seconds after which an unused connection to a server that requests named is closed.
        """
        self._servers = servers
        self._allowed = frozenset(map(_address, allowed_hosts))
        self._idle_s = idle_s
        self._named: dict[_Key, _Named] = {}
        """Servers that requests named, by label, URL and headers; the one used last is the last."""
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def open_connections(self) -> int:
        """Number of connections to servers that requests named."""
        return len(self._named)

    def offered(self, *models: str) -> list[VendorTool]:
        """See `ToolServers.offered`."""
        return [
            VendorTool("mcp", name, "", server=RemoteServer(name, "", f"mcp.{name}"), is_internal=True)
            for name, server in self._servers.by_name.items()
            if matches_model(server.config.offer_to, models)
        ]

    def served(self) -> list[VendorTool]:
        """See `ToolServers.served`."""
        return [
            VendorTool("mcp", name, "mcp", server=RemoteServer(name, "", f"mcp.{name}"))
            for name in self._servers.served()
        ]

    async def list_tools(self, tool: VendorTool) -> ToolRunResult:
        """See `ToolServers.list_tools`."""
        assert tool.server is not None
        try:
            async with self._used(tool) as server:
                listed = await (server.tools_soon() if tool.is_internal else server.tools())
        except McpServerError as error:
            return ToolRunResult(str(error), error="unavailable")
        return ToolRunResult("", listed=tuple(each for each in listed if tool.server.offers(each)))

    async def run(self, call: VendorToolCall) -> ToolRunResult:
        """Calls the tool. See `ToolExecutor.run`."""
        tool = call.tool
        assert tool.server is not None
        assert tool.remote is not None
        try:
            arguments = load_json(call.arguments)
        except (ValueError, RecursionError):
            return error_result("invalid_tool_input")
        if not isinstance(arguments, dict):
            return error_result("invalid_tool_input")
        try:
            async with self._used(tool) as server:
                result = await server.call(tool.remote.name, arguments)
        except McpServerError as error:
            return ToolRunResult(f"{error}.", error="unavailable")
        except RequestError as error:
            return ToolRunResult(f"{error.message}.", error="unavailable")
        return ToolRunResult(result.text, error="unavailable" if result.is_error else None, images=result.images)

    async def close(self) -> None:
        """Closes the connections to servers that requests named."""
        for key in list(self._named):
            self._close(key)
        await asyncio.gather(*self._closing, return_exceptions=True)

    @asynccontextmanager
    async def _used(self, tool: VendorTool) -> AsyncIterator[McpServer]:
        """Yields the server, which is not closed while the body runs.

        Raises:
            RequestError: Requests may not name it.
        """
        declared = tool.server
        assert declared is not None
        if not declared.url or declared.url.startswith(_OF_SETTINGS):
            yield self._of_settings(declared, is_internal=tool.is_internal)
            return
        if not self._is_allowed(declared.url):
            raise RequestError(
                f"this gateway may not connect to the MCP server {quote(host_name(declared.url) or declared.url)}: "
                "add its host to tools.mcp_allowed_hosts in the settings of Dragoman",
                declared.path,
            )
        key = declared.label, declared.url, tuple(sorted(_sent_headers(declared.headers).items()))
        named = self._reserve(key, declared)
        try:
            yield named.server
        finally:
            self._release(key, named)

    def _of_settings(self, declared: RemoteServer, *, is_internal: bool) -> McpServer:
        name = declared.url.removeprefix(_OF_SETTINGS) or declared.label
        served = self._servers.by_name if is_internal else self._servers.served()
        server = served.get(name)
        if server is not None:
            return server
        if name in self._servers.by_name:
            raise RequestError(
                f"requests may not use the MCP server {quote(name)}: set mcp.{name}.serve = true in the settings of "
                "Dragoman",
                declared.path,
            )
        raise RequestError(
            f"expected the URL of an MCP server, got the name {quote(name)}{nearest(name, served)}", declared.path
        )

    def _is_allowed(self, url: str) -> bool:
        if not url.startswith(("http://", "https://")):
            return False
        host, port = _address(url)
        port = port or _DEFAULT_PORTS[urlsplit(url).scheme]
        return bool(host) and not self._allowed.isdisjoint({(host, None), (host, port)})

    def _reserve(self, key: _Key, declared: RemoteServer) -> _Named:
        named = self._named.pop(key, None)
        if named is None:
            config = McpServerConfig(url=declared.url, headers=_sent_headers(declared.headers))
            try:
                named = _Named(McpServer(declared.label, config))
            except ConfigError as error:
                raise RequestError(error.message, declared.path) from None
        named.users += 1
        if named.closing is not None:
            named.closing.cancel()
        self._named[key] = named
        unused = [other for other, each in self._named.items() if not each.users]
        for other in unused[: max(0, len(self._named) - _MAX_SERVERS)]:
            self._close(other)
        return named

    def _release(self, key: _Key, named: _Named) -> None:
        named.users -= 1
        if not named.users and self._named.get(key) is named:
            named.closing = asyncio.get_running_loop().call_later(self._idle_s, self._close, key)

    def _close(self, key: _Key) -> None:
        """Closes a connection in the background, so that no request waits for it."""
        named = self._named.pop(key)
        if named.closing is not None:
            named.closing.cancel()
        task = asyncio.create_task(named.server.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _address(text: str) -> tuple[str, int | None]:
    """Returns the host and the port of a URL or an address; None: it has no port."""
    host = host_name(text)
    if text.count(":") > 1 and "[" not in text and "/" not in text:
        return host, None  # an IPv6 address
    try:
        return host, urlsplit(text if "//" in text else f"//{text}").port
    except ValueError:
        return "", None


def _sent_headers(declared: Mapping[str, str]) -> dict[str, str]:
    """Returns the headers without those that say where and how a request is sent, which are the gateway's."""
    names = {name: name.strip().lower() for name in declared}
    return {
        name: value
        for name, value in declared.items()
        if names[name] not in _REJECTED_HEADERS and not names[name].startswith(_REJECTED_PREFIXES)
    }
