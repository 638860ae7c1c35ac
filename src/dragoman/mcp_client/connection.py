"""One connection to an MCP server, kept by a task of its own until the server ends it or `close` is called.

The SDK opens and closes a connection in one task, so this task does both; calls come from the tasks of requests. It
asks a server for 2026-07-28 and, if the server is older, begins again with the handshake of the versions before.
"""

import asyncio
import errno
import logging
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dragoman.mcp_client.config import McpServerConfig, request_headers
from dragoman.mcp_client.limits import limit_response
from dragoman.mcp_client.program_output import ProgramErrors
from dragoman.process_reaper.reaper import Reaper

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client._transport import ReadStream, TransportStreams

log = logging.getLogger("dragoman.mcp_client")

_WORKER: Final = Path(__file__).with_name("program_worker.py")
_RESUBSCRIBE_S: Final = 1.0
"""Time between the loss of a subscription and the next; it doubles with each that fails."""
_MAX_RESUBSCRIBE_S: Final = 60.0
_CLOSE_S: Final = timedelta(seconds=10).total_seconds()
"""Time for a connection to close; the SDK ends a program within six seconds."""


class Connection:
    """An open connection."""

    def __init__(self, name: str, client: "Client", closed: asyncio.Event) -> None:
        self._name, self.client, self._closed = name, client, closed
        self._stop = asyncio.Event()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        self._users = 0
        self._retired: asyncio.Task[None] | None = None
        self._is_retired = False
        self._was_subscribed = False
        self.tools_changed = False
        """The server reported that its tools changed."""
        self.received_at = 0.0
        """Time of the last message from the server, by `time.monotonic`."""
        self.http_status = 0
        """Status of the last HTTP response that was an error; 0: none."""
        self.http_problem = ""
        """That status, or the kind of error if there was no response; empty: none."""
        self.errors = ProgramErrors()
        """What the program writes to standard error."""

    @property
    def is_closed(self) -> bool:
        """Whether the server has ended it, or `close` was called."""
        return self._closed.is_set() or self._stop.is_set() or self._task is None or self._task.done()

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of it."""
        return self._task is None or self._task.done()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Keeps a retired connection open while the body runs."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._close_if_unused()

    def retire(self) -> None:
        """Closes the connection in the background when the calls that use it have ended."""
        self._is_retired = True
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._is_retired and not self._users and self._retired is None:
            self._retired = asyncio.create_task(self.close())

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
        tools = self.client.server_capabilities.tools
        try:
            delay = _RESUBSCRIBE_S
            while tools is not None and tools.list_changed and await self._listen(subscribed):
                subscribed.set()
                delay = _RESUBSCRIBE_S if self._was_subscribed else min(2 * delay, _MAX_RESUBSCRIBE_S)
                await asyncio.sleep(delay)
        finally:
            subscribed.set()

    async def _listen(self, subscribed: asyncio.Event) -> bool:
        """Listens until the subscription is lost; returns whether another attempt makes sense."""
        from mcp import MCPError
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
        from mcp.types import CONNECTION_CLOSED, INTERNAL_ERROR

        self._was_subscribed = False
        try:
            async with self.client.listen(tools_list_changed=True) as changes:
                self._was_subscribed = True
                self.tools_changed = self.tools_changed or subscribed.is_set()
                subscribed.set()
                async for _ in changes:
                    self.tools_changed = True
        except SubscriptionLost:
            pass
        except ListenNotSupportedError:
            return False
        except MCPError as error:  # the server may not support it, or may be unreachable for a while
            return error.code in (CONNECTION_CLOSED, INTERNAL_ERROR)
        except Exception as error:  # noqa: BLE001 such as a timeout; the SDK and its transports raise any
            log.debug("listening to the MCP server %s failed: %s", self._name, type(error).__name__)
        return True


def new_connection(
    name: str, config: McpServerConfig, environ: Mapping[str, str], reaper: Reaper | None = None
) -> Connection:
    """Returns a connection that is not open yet.

    Args:
        name: The name of the server.
        config: Its settings.
        environ: The environment variables.
        reaper: Ends the server's program if the gateway exits without closing the connection; None: nothing does.
    """
    from mcp import Client
    from mcp.types import Implementation, ToolListChangedNotification

    from dragoman import __version__

    closed = asyncio.Event()

    async def on_message(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            connection.tools_changed = True

    @asynccontextmanager
    async def transport() -> "AsyncIterator[TransportStreams]":
        async with _transport(connection, config, environ, reaper) as (received, sent):
            yield _Received(received, connection, closed.set), sent

    client = Client(
        transport(),
        message_handler=on_message,
        client_info=Implementation(name="dragoman", version=__version__),
        cache=None,
    )
    connection = Connection(name, client, closed)
    return connection


def _require_program(program: str, cwd: str, path: str) -> None:
    """Raises `FileNotFoundError` if there is no such program."""
    found = shutil.which(os.path.join(cwd, program) if os.path.dirname(program) else program, path=path)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)


@asynccontextmanager
async def _watched(errors: ProgramErrors, reaper: Reaper | None) -> AsyncIterator[None]:
    """Has the program ended if the gateway exits while the body runs."""
    pid = 0 if reaper is None else await asyncio.wrap_future(errors.pid)
    if reaper is None or not pid:
        yield
        return
    await reaper.start()
    reaper.watch_group(pid)
    try:
        yield
    finally:
        reaper.forget_group(pid)


@asynccontextmanager
async def _transport(
    connection: Connection, config: McpServerConfig, environ: Mapping[str, str], reaper: Reaper | None
) -> "AsyncIterator[TransportStreams]":
    if config.command:
        from mcp import StdioServerParameters
        from mcp.client.stdio import stdio_client

        variables = {name: environ[name] for name in config.env}
        program, *arguments = config.command
        command = [os.path.expanduser(program), *arguments]
        is_watched = reaper is not None and sys.platform != "win32"  # there the SDK uses job objects, which end with us
        if is_watched:
            _require_program(command[0], config.cwd, variables.get("PATH", environ.get("PATH", os.defpath)))
            command = [sys.executable, "-I", "-S", str(_WORKER), *command]
        parameters = StdioServerParameters(command=command[0], args=command[1:], env=variables, cwd=config.cwd or None)
        with connection.errors.opened(has_pid=is_watched) as errors:
            async with stdio_client(parameters, errlog=errors) as streams:
                errors.close()
                async with _watched(connection.errors, reaper if is_watched else None):
                    yield streams
        return
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    class Http(httpx2.AsyncClient):
        async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
            try:
                return await super().send(request, **options)
            except httpx2.TransportError as error:  # the SDK would end the connection, with the calls of all others
                connection.http_problem = type(error).__name__
                return httpx2.Response(httpx2.codes.BAD_GATEWAY, request=request)

    async def on_response(response: httpx2.Response) -> None:
        if response.status_code >= httpx2.codes.BAD_REQUEST:
            connection.http_problem = f"HTTP status {response.status_code}"
            connection.http_status = response.status_code
        limit_response(response)

    timeout = httpx2.Timeout(config.timeout_s, read=None)  # each call has a timeout of its own
    headers = {"accept-encoding": "identity", **request_headers(config, environ)}
    async with (
        Http(headers=headers, timeout=timeout, event_hooks={"response": [on_response]}) as http,
        streamable_http_client(config.url, http_client=http) as streams,
    ):
        yield streams


class _Received:
    """A stream of messages that reports its end and the time of each message."""

    def __init__(self, stream: "ReadStream[Any]", connection: Connection, on_end: Callable[[], None]) -> None:
        self._stream, self._connection, self._on_end = stream, connection, on_end

    async def receive(self) -> Any:
        message = await self._stream.receive()
        self._connection.received_at = time.monotonic()
        return message

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> "_Received":
        return self

    async def __anext__(self) -> Any:
        try:
            message = await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_end()
            raise
        self._connection.received_at = time.monotonic()
        return message

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
