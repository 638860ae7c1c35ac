"""An MCP server as the gateway uses it: its tools and calls, whether it runs, has crashed or hangs.

A server is started on first use. If it ends, calls in progress fail with an error that names it, and the next call
starts it again. If it cannot be started, it is not tried again for a while, so that requests fail at once.
"""

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

from dragoman.core.errors import ConfigError, nearest
from dragoman.extras import install_command, missing_extras
from dragoman.mcp_client.config import McpServerConfig, check_server, request_headers
from dragoman.mcp_client.connection import Connection, new_connection
from dragoman.mcp_client.result import McpResult, McpServerError, read_result, select_tools
from dragoman.vendor_tools.remote import RemoteTool

if TYPE_CHECKING:
    from mcp.types import CallToolResult, Tool

log = logging.getLogger("dragoman.mcp_client")

_FIRST_DELAY_S: Final = 0.5
_MAX_DELAY_S: Final = 60.0
"""Bounds of the time without a new attempt after a failed start; it doubles with each."""
_MAX_TIMEOUTS: Final = 2
"""Consecutive calls that time out until the server is restarted."""
_SECRET_CHARS: Final = 6
"""Minimum length of a secret; a shorter value could not be redacted, as it occurs in other words."""
_MAX_PAGES: Final = 100
"""Maximum pages of a list of tools."""


class McpServer:
    """A server of the settings, or one that a client named."""

    def __init__(
        self,
        name: str,
        config: McpServerConfig,
        environ: Mapping[str, str] = os.environ,
        stderr: TextIO | None = None,
    ) -> None:
        """Args:
        name: The name of the server, for messages.
        config: Its settings.
        environ: The environment variables, for `env` and `headers_env`.
        stderr: Standard error of the program, a file with a descriptor; None: that of Dragoman.

        Raises:
            ConfigError: The extra `tools` is not installed, or a setting is wrong.
        """
        if missing_extras("tools"):
            raise ConfigError(f"MCP servers need more than is installed: {install_command('tools')}")
        check_server(name, config, environ)
        self.name, self.config = name, config
        self._environ, self._stderr = environ, stderr
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None
        self._tools: tuple[RemoteTool, ...] | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._timeouts = 0
        self._is_over = False
        self._running = 0

    @property
    def is_idle(self) -> bool:
        """Whether no request runs."""
        return not self._running

    async def tools(self) -> tuple[RemoteTool, ...]:
        """Returns the tools that may be used, from the cache unless they changed.

        Raises:
            McpServerError: The server does not respond.
        """
        connection = await self._connected()
        if self._tools is not None and not connection.tools_changed:
            return self._tools
        connection.tools_changed = False
        async with self._asking(connection, "list its tools"):
            listed: list[RemoteTool] = []
            cursor: str | None = None
            for _ in range(_MAX_PAGES):
                page = await connection.client.list_tools(cursor=cursor)
                listed += map(_tool, page.tools)
                cursor = page.next_cursor
                if not cursor:
                    break
        self._tools = select_tools(listed, self.config.allowed_tools)
        return self._tools

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> McpResult:
        """Calls a tool and returns its result, which may be an error of the tool.

        Raises:
            McpServerError: The server does not respond, has ended, or the tool may not be used.
        """
        return read_result(await self.call_unread(tool, arguments), with_images=self.config.images)

    async def call_unread(self, tool: str, arguments: Mapping[str, Any]) -> "CallToolResult":
        """Calls a tool and returns its result as the SDK's value. Raises the errors of `call`."""
        if self.config.allowed_tools and tool not in self.config.allowed_tools:
            hint = nearest(tool, self.config.allowed_tools)
            raise McpServerError(f"the MCP server {self.name} has no tool {tool!r} that may be used{hint}")
        connection = await self._connected()
        async with self._asking(connection, f"answer the call of {tool}"):
            return await connection.client.call_tool(tool, dict(arguments))

    def secret_values(self) -> list[str]:
        """Returns the values of headers and named variables, which must not appear in logs or captures."""
        values = request_headers(self.config, self._environ).values()
        bare = [value.partition(" ")[2] for value in values]  # without "Bearer"
        secrets = (*values, *bare, *(self._environ[name] for name in self.config.env))
        return [value for value in secrets if len(value) >= _SECRET_CHARS]

    async def close(self) -> None:
        """Ends the server; it is not started again."""
        self._is_over = True
        async with self._lock:
            await self._disconnect()

    async def _connected(self) -> Connection:
        """Returns an open connection, and starts the server if necessary."""
        connection = self._connection
        if connection is not None and not connection.is_closed:
            return connection
        async with self._lock:
            if self._connection is not None and not self._connection.is_closed:
                return self._connection
            await self._disconnect()
            loop = asyncio.get_running_loop()
            if self._is_over or loop.time() < self._retry_at:
                raise McpServerError(f"the MCP server {self.name} could not be started")
            connection = new_connection(self.name, self.config, self._environ, self._stderr)
            try:
                async with asyncio.timeout(self.config.timeout_s):
                    await connection.open()
            except Exception as error:  # noqa: BLE001 the SDK and its transports raise any
                self._retry_at = loop.time() + min(_MAX_DELAY_S, _FIRST_DELAY_S * 2**self._failures)
                self._failures += 1
                log.warning("the MCP server %s could not be started: %s", self.name, _cause(error))
                raise McpServerError(f"the MCP server {self.name} could not be started") from None
            self._failures = self._timeouts = 0
            self._connection = connection
            return connection

    async def _disconnect(self) -> None:
        self._tools = None
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()

    @asynccontextmanager
    async def _asking(self, connection: Connection, what: str) -> AsyncIterator[None]:
        """Runs a request within the timeout, and turns the SDK's errors into `McpServerError`."""
        from mcp import MCPError

        self._running += 1
        try:
            async with asyncio.timeout(self.config.timeout_s):
                yield
        except TimeoutError:
            self._timeouts += 1
            if self._timeouts >= _MAX_TIMEOUTS:
                await self._drop(connection)
            message = f"the MCP server {self.name} did not {what} within {self.config.timeout_s:g} s"
        except MCPError as error:
            if connection.is_closed:
                message = f"the MCP server {self.name} ended before it could {what}"
            else:
                message = f"the MCP server {self.name} could not {what}: {error.message[:500]}"
            if self.config.url:  # a server that was restarted does not know the session
                await self._drop(connection)
        except Exception as error:  # noqa: BLE001 the SDK and its transports raise any
            await self._drop(connection)
            message = f"the MCP server {self.name} could not {what}: {_cause(error)}"
        else:
            self._timeouts = 0
            return
        finally:
            self._running -= 1
        log.warning("%s", message)
        raise McpServerError(message)

    async def _drop(self, connection: Connection) -> None:
        async with self._lock:
            if self._connection is connection:
                await self._disconnect()


def _tool(tool: "Tool") -> RemoteTool:
    hints = tool.annotations
    return RemoteTool(
        tool.name,
        tool.description or tool.title or "",
        json.dumps(tool.input_schema, ensure_ascii=False),
        hints.model_dump_json(by_alias=True, exclude_none=True) if hints else "",
        bool(hints and hints.read_only_hint),
    )


def _cause(error: BaseException) -> str:
    """Returns the kind of the error, without its text, which may contain a URL or headers."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError):
        return f"there is no program {error.filename}"
    return type(error).__name__
