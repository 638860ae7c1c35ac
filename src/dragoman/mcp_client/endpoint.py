"""The combined server by streamable HTTP, as an ASGI application that another one mounts and protects.

Requests are independent of each other, without sessions, so any of several gateway processes can answer them.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, TypeAlias

from dragoman.mcp_client.combined_server import combined_server
from dragoman.mcp_client.pool import McpServers

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

_Message: TypeAlias = MutableMapping[str, Any]


class McpEndpoint:
    """Serves the tools of the servers that clients may use; it starts with the first request."""

    def __init__(self, servers: McpServers) -> None:
        """`servers`: the servers of the settings."""
        self._servers = servers
        self._manager: asyncio.Future[StreamableHTTPSessionManager] | None = None
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __call__(
        self,
        scope: _Message,
        receive: Callable[[], Awaitable[_Message]],
        send: Callable[[_Message], Awaitable[None]],
    ) -> None:
        """Answers one request."""
        if self._manager is None:
            self._manager = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._run(self._manager))
        manager = await asyncio.shield(self._manager)
        await manager.handle_request(scope, receive, send)

    async def close(self) -> None:
        """Ends all requests."""
        self._stop.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self, opened: "asyncio.Future[StreamableHTTPSessionManager]") -> None:
        """Keeps the SDK's manager open, which is opened and closed in one task."""
        try:
            from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

            manager = StreamableHTTPSessionManager(combined_server(self._servers.served()), stateless=True)
            async with manager.run():
                opened.set_result(manager)
                await self._stop.wait()
        except Exception as error:
            if opened.done():
                raise
            opened.set_exception(error)
            self._manager = None
