"""An MCP server as the gateway uses it: its tools and calls, whether it runs, has crashed or hangs.

A server is started on first use, by a task of its own, so that no request delays or ends it for others. If it ends,
calls in progress fail with an error that names it, and the next call starts it again. If it cannot be started, it is
not tried again for a while, so that requests fail at once. Only a server that does not respond is restarted: a failed
call has no effect on other calls.
"""

import asyncio
import json
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dragoman.core.errors import ConfigError, nearest
from dragoman.extras import install_command, missing_extras
from dragoman.mcp_client.config import McpServerConfig, check_server, request_headers, url_secrets
from dragoman.mcp_client.connection import Connection, new_connection
from dragoman.mcp_client.result import McpResult, McpServerError, read_result, select_tools
from dragoman.process_reaper.reaper import Reaper
from dragoman.redaction.redact import Redactor
from dragoman.vendor_tools.remote import RemoteTool

if TYPE_CHECKING:
    from mcp.types import CallToolResult, Tool

T = TypeVar("T")

log = logging.getLogger("dragoman.mcp_client")

_LAST_OUTPUT_S: Final = 0.5
"""Time to read what a program wrote before its start failed."""

_SOON_S: Final = 10.0
"""Time that a request waits for tools which the gateway offers by itself."""
_SESSION_ENDED: Final = re.compile(
    r"session (?:terminated|not found|expired)|(?:no valid|invalid|unknown) session", re.IGNORECASE
)
"""Errors with which servers reject a session that they do not know; the call was not run."""
_ADVICE: Final = {
    401: "; check its authorization (headers_env)",
    403: "; check its authorization (headers_env)",
    404: "; check its URL",
}
_FIRST_DELAY_S: Final = 0.5
_MAX_DELAY_S: Final = 60.0
"""Bounds of the time without a new attempt after a failed start; it doubles with each."""
_MAX_TIMEOUTS: Final = 2
"""Consecutive calls that time out until the server is restarted."""
_SECRET_CHARS: Final = 6
"""Minimum length of a secret; a shorter value could not be redacted, as it occurs in other words."""
_MAX_PAGES: Final = 100
"""Maximum pages of a list of tools."""


class _SessionEndedError(McpServerError):
    """The server does not know the session any more, such as after a restart."""


class McpServer:
    """A server of the settings, or one that a client named."""

    def __init__(
        self,
        name: str,
        config: McpServerConfig,
        environ: Mapping[str, str] = os.environ,
        reaper: Reaper | None = None,
    ) -> None:
        """Args:
        name: The name of the server, for messages.
        config: Its settings.
        environ: The environment variables, for `env` and `headers_env`.
        reaper: Ends its program if the gateway is killed; None: nothing does.

        Raises:
            ConfigError: The extra `tools` is not installed, or a setting is wrong.
        """
        if missing_extras("tools"):
            raise ConfigError(f"MCP servers need more than is installed: {install_command('tools')}")
        check_server(name, config, environ)
        self.name, self.config = name, config
        self._environ, self._reaper = environ, reaper
        self._redactor = Redactor(self.secret_values())
        self._connection: Connection | None = None
        self._retired: list[Connection] = []
        self.last_output = ""
        """The end of what its program wrote to standard error before it could not be started."""
        self._starting: asyncio.Task[Connection] | None = None
        self._listing: asyncio.Task[tuple[RemoteTool, ...]] | None = None
        self._tools: tuple[RemoteTool, ...] | None = None
        self._listed_by: Connection | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._problem = ""
        self._timeouts = 0
        self._timed_out_at = 0.0
        self._is_over = False

    async def tools(self) -> tuple[RemoteTool, ...]:
        """Returns the tools that may be used, from the cache unless they changed.

        Raises:
            McpServerError: The server does not respond.
        """
        if self._tools is not None and self._is_listed():
            return self._tools
        return await self._finished(self._begin_listing())

    async def tools_soon(self) -> tuple[RemoteTool, ...]:
        """Returns the tools that were listed last, and lists them again in the background if they changed.

        If they were never listed, this waits for a few seconds.

        Raises:
            McpServerError: The server does not respond, or not yet.
        """
        if self._tools is not None:
            if not self._is_listed():
                self._begin_listing()
            return self._tools
        listing = self._begin_listing()
        done, _ = await asyncio.wait([listing], timeout=_SOON_S)
        if not done:
            raise McpServerError(f"the MCP server {self.name} is still being started")
        return await self._finished(listing)

    def input_schema(self, tool: str) -> dict[str, Any] | None:
        """Returns the schema of a tool's arguments if it was listed; else None."""
        found = next((each for each in self._tools or () if each.name == tool), None)
        return json.loads(found.parameters) if found is not None else None

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
        try:
            return await self._call(tool, arguments)
        except _SessionEndedError:  # the server has not run the call
            return await self._call(tool, arguments)

    async def _call(self, tool: str, arguments: Mapping[str, Any]) -> "CallToolResult":
        connection = await self._connected()
        async with self._asking(connection, f"answer the call of {tool}"):
            return await connection.client.call_tool(tool, dict(arguments))

    def secret_values(self) -> list[str]:
        """Returns the values of headers and named variables, which must not appear in logs or captures."""
        values = request_headers(self.config, self._environ).values()
        bare = [value.partition(" ")[2] for value in values]  # without "Bearer"
        named = [self._environ[name] for name in self.config.env]
        secrets = (*values, *bare, *named, *url_secrets(self.config.url))
        return [value for value in secrets if len(value) >= _SECRET_CHARS]

    async def close(self) -> None:
        """Ends the server; it is not started again."""
        self._is_over = True
        tasks = [task for task in (self._starting, self._listing) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._retire(self._connection)
        await asyncio.gather(*(each.close() for each in self._retired), return_exceptions=True)

    def _is_listed(self) -> bool:
        """Whether the list of tools is of the open connection, which has not reported a change since."""
        connection = self._connection
        if connection is None or connection.is_closed or connection.tools_changed:
            return False
        return connection is self._listed_by

    def _begin_listing(self) -> "asyncio.Task[tuple[RemoteTool, ...]]":
        """Returns the task that lists the tools; it goes on if the requests that wait for it are cancelled."""
        if self._listing is None:
            self._listing = asyncio.create_task(self._list(), name=f"mcp tools {self.name}")
            self._listing.add_done_callback(_retrieved)
        return self._listing

    async def _list(self) -> tuple[RemoteTool, ...]:
        try:
            connection = await self._connected()
            connection.tools_changed = False
            listed: list[RemoteTool] = []
            try:
                async with self._asking(connection, "list its tools"):
                    listed += [_tool(tool) async for tool in _all_tools(connection)]
            except BaseException:
                connection.tools_changed = True
                raise
            self._tools = select_tools(listed, self.config.allowed_tools)
            self._listed_by = connection
            return self._tools
        finally:
            self._listing = None

    async def _connected(self) -> Connection:
        """Returns an open connection, and starts the server if necessary."""
        if self._connection is not None and not self._connection.is_closed:
            return self._connection
        if self._starting is None:
            if self._is_over or asyncio.get_running_loop().time() < self._retry_at:
                raise McpServerError(f"the MCP server {self.name} could not be started{self._problem}")
            # A task of its own, because the request that begins it may be cancelled while others wait for it.
            self._starting = asyncio.create_task(self._start(), name=f"mcp start {self.name}")
            self._starting.add_done_callback(_retrieved)
        return await self._finished(self._starting)

    async def _finished(self, task: "asyncio.Task[T]") -> "T":
        """Returns the result of a task that is not cancelled with the caller."""
        await asyncio.wait([task])
        if task.cancelled():
            raise McpServerError(f"the MCP server {self.name} could not be started")
        return task.result()

    async def _start(self) -> Connection:
        self._retire(self._connection)
        connection = new_connection(self.name, self.config, self._environ, self._reaper)
        try:
            async with asyncio.timeout(self.config.timeout_s):
                await connection.open()
        except Exception as error:  # noqa: BLE001 the SDK and its transports raise any
            self._problem = f": {self._start_problem(error, connection)}"
            if self.config.command:
                await asyncio.to_thread(connection.errors.wait_for_end, _LAST_OUTPUT_S)
            self.last_output = tail = self._redactor.redact_text(connection.errors.tail)
            detail = f"; it wrote: {tail}" if tail else ""
            log.warning("the MCP server %s could not be started%s%s", self.name, self._problem, detail)
            raise McpServerError(f"the MCP server {self.name} could not be started{self._problem}") from None
        else:
            self._timeouts = 0
            self._connection = connection
            return connection
        finally:  # until it has answered a request, its end also counts as a failed start
            delay = min(_MAX_DELAY_S, _FIRST_DELAY_S * 2 ** min(self._failures, 20))
            self._retry_at = asyncio.get_running_loop().time() + delay
            self._failures += 1
            self._starting = None

    def _start_problem(self, error: BaseException, connection: Connection) -> str:
        if isinstance(error, TimeoutError):
            return f"it did not respond within {self.config.timeout_s:g} s"
        if connection.http_problem:
            return connection.http_problem + _ADVICE.get(connection.http_status, "")
        return _cause(error)

    def _retire(self, connection: Connection | None) -> None:
        """Replaces a connection: the calls that use it go on, the next starts another."""
        self._retired = [each for each in self._retired if not each.is_over]
        if connection is None:
            return
        connection.retire()
        if connection not in self._retired:
            self._retired.append(connection)
        if self._connection is connection:
            self._connection = None

    @asynccontextmanager
    async def _asking(self, connection: Connection, what: str) -> AsyncIterator[None]:
        """Runs a request within the timeout, and turns the SDK's errors into `McpServerError`."""
        from mcp import MCPError

        started = time.monotonic()
        try:
            with connection.used():
                async with asyncio.timeout(self.config.timeout_s):
                    yield
        except TimeoutError:
            self._note_timeout(connection, started)
            problem, detail = f"did not {what} within {self.config.timeout_s:g} s", ""
        except MCPError as error:
            if self.config.url and _SESSION_ENDED.search(error.message):
                self._retire(connection)
                raise _SessionEndedError(f"the MCP server {self.name} ended the session") from None
            if connection.is_closed:
                problem, detail = f"ended before it could {what}", ""
            else:
                problem = f"could not {what}"
                detail = f": {self._redactor.redact_text(error.message[:500])}"
                log.warning("the MCP server %s responded with error %d", self.name, error.code)
        except (RuntimeError, ValueError, RecursionError):
            problem, detail = (
                f"could not {what}",
                ": its result does not match the protocol or the tool's output schema",
            )
        except Exception as error:  # noqa: BLE001 the SDK and its transports raise any
            problem, detail = f"could not {what}", f": {_cause(error)}"
        else:
            self._timeouts = self._failures = 0
            self._retry_at = 0.0
            return
        log.warning("the MCP server %s %s", self.name, problem)
        raise McpServerError(f"the MCP server {self.name} {problem}{detail}")

    def _note_timeout(self, connection: Connection, started: float) -> None:
        """Replaces a connection on which nothing arrived during several calls, one after the other."""
        if connection.received_at > started:
            self._timeouts = 0
        elif started >= self._timed_out_at:
            self._timeouts += 1
            self._timed_out_at = time.monotonic()
        if self._timeouts >= _MAX_TIMEOUTS and self._connection is connection:
            self._retire(connection)


async def _all_tools(connection: Connection) -> "AsyncIterator[Tool]":
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await connection.client.list_tools(cursor=cursor)
        for tool in page.tools:
            yield tool
        cursor = page.next_cursor
        if not cursor:
            return


def _retrieved(task: "asyncio.Task[Any]") -> None:
    """Marks the task's error as seen: the requests that waited for it may have gone."""
    if not task.cancelled():
        task.exception()


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
