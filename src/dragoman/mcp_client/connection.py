"""One connection to an MCP server, kept by a task of its own until the server ends it or `close` is called.

The SDK opens and closes a connection in one task, so this task does both; calls come from the tasks of requests. It
asks a server for 2026-07-28 and, if the server is older, begins again with the handshake of the versions before.
"""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TextIO

from dragoman.mcp_client.config import McpServerConfig, request_headers

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client._transport import ReadStream, Transport, TransportStreams

log = logging.getLogger("dragoman.mcp_client")

_RESUBSCRIBE_S: Final = 1.0
"""Time between the loss of a subscription and the next."""
_CLOSE_S: Final = timedelta(seconds=10).total_seconds()
"""Time for a connection to close; the SDK ends a program within six seconds."""


class Connection:
    """An open connection."""

    def __init__(self, name: str, client: "Client", closed: asyncio.Event) -> None:
        self._name, self.client, self._closed = name, client, closed
        self._stop = asyncio.Event()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        self.tools_changed = False
        """The server reported that its tools changed."""

    @property
    def is_closed(self) -> bool:
        """Whether the server has ended it, or `close` was called."""
        return self._closed.is_set() or self._stop.is_set() or self._task is None or self._task.done()

    async def open(self) -> None:
        """Opens the connection. Raises any error of the SDK."""
        self._task = asyncio.create_task(self._keep(), name=f"mcp {self._name}")
        try:
            await asyncio.shield(self._opened)
        except asyncio.CancelledError:
            self._opened.cancel()
            await self.close()
            raise

    async def close(self) -> None:
        """Closes the connection and ends the server's program."""
        self._stop.set()
        if self._task is None:
            return
        if not self._opened.done() or self._opened.cancelled():
            self._task.cancel()
        await asyncio.wait([self._task], timeout=_CLOSE_S)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task], timeout=_CLOSE_S)

    async def _keep(self) -> None:
        try:
            async with self.client:
                subscribed = asyncio.Event()
                watch = asyncio.create_task(self._watch_tools(subscribed))
                try:
                    await subscribed.wait()  # tools that are listed before may have changed
                    if not self._opened.done():
                        self._opened.set_result(None)
                    await self._until_over()
                finally:
                    watch.cancel()
                    await asyncio.wait([watch])
        except Exception as error:  # noqa: BLE001 the SDK and its transports raise any
            if not self._opened.done():
                self._opened.set_exception(error)
            else:
                log.warning("the connection to the MCP server %s ended: %s", self._name, type(error).__name__)
        finally:
            self._closed.set()
            if not self._opened.done():
                self._opened.cancel()

    async def _until_over(self) -> None:
        waiting = [asyncio.create_task(event.wait()) for event in (self._stop, self._closed)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    async def _watch_tools(self, subscribed: asyncio.Event) -> None:
        """Notes when the tools change, from 2026-07-28 on, where a client has to subscribe to that.

        Args:
            subscribed: Is set when the server has accepted that, or does not support it.
        """
        from mcp import MCPError
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

        tools = self.client.server_capabilities.tools
        try:
            while tools is not None and tools.list_changed:
                with suppress(SubscriptionLost):
                    async with self.client.listen(tools_list_changed=True) as changes:
                        self.tools_changed = self.tools_changed or subscribed.is_set()
                        subscribed.set()
                        async for _ in changes:
                            self.tools_changed = True
                await asyncio.sleep(_RESUBSCRIBE_S)
        except (ListenNotSupportedError, MCPError):
            pass
        finally:
            subscribed.set()


def new_connection(
    name: str, config: McpServerConfig, environ: Mapping[str, str], stderr: TextIO | None = None
) -> Connection:
    """Returns a connection that is not open yet.

    Args:
        name: The name of the server.
        config: Its settings.
        environ: The environment variables.
        stderr: Standard error of the program; None: that of Dragoman.
    """
    from mcp import Client
    from mcp.types import Implementation, ToolListChangedNotification

    from dragoman import __version__

    closed = asyncio.Event()

    async def on_message(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            connection.tools_changed = True

    client = Client(
        _reporting_end(_transport(config, environ, stderr), closed.set),
        message_handler=on_message,
        client_info=Implementation(name="dragoman", version=__version__),
        cache=None,
    )
    connection = Connection(name, client, closed)
    return connection


@asynccontextmanager
async def _transport(
    config: McpServerConfig, environ: Mapping[str, str], stderr: TextIO | None
) -> "AsyncIterator[TransportStreams]":
    if config.command:
        from mcp import StdioServerParameters
        from mcp.client.stdio import stdio_client

        variables = {name: environ[name] for name in config.env}
        program, *arguments = config.command
        parameters = StdioServerParameters(
            command=os.path.expanduser(program), args=arguments, env=variables, cwd=config.cwd or None
        )
        async with stdio_client(parameters, errlog=stderr or sys.stderr) as streams:
            yield streams
        return
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    timeout = httpx2.Timeout(config.timeout_s, read=None)  # each call has a timeout of its own
    async with (
        httpx2.AsyncClient(headers=request_headers(config, environ), timeout=timeout) as http,
        streamable_http_client(config.url, http_client=http) as streams,
    ):
        yield streams


@asynccontextmanager
async def _reporting_end(transport: "Transport", on_end: Callable[[], None]) -> "AsyncIterator[TransportStreams]":
    """Yields the streams of the transport; `on_end` is called when the server has closed its own."""
    async with transport as (received, sent):
        yield _Received(received, on_end), sent


class _Received:
    """A stream of messages that reports its end."""

    def __init__(self, stream: "ReadStream[Any]", on_end: Callable[[], None]) -> None:
        self._stream, self._on_end = stream, on_end

    async def receive(self) -> Any:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> "_Received":
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_end()
            raise

    async def __aenter__(self) -> "_Received":
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        self._on_end()
        return await self._stream.__aexit__(*error)

    @property
    def last_context(self) -> Any:
        """Context of the message that was received last, which the SDK restores."""
        return getattr(self._stream, "last_context", None)
