"""Cancels the work for a client that disconnects or stops reading.

    async with ClientWatch(Client.from_scope(scope, receive, send), 60.0) as watch:
        ...                                     # is cancelled; the block then raises ClientDisconnectedError
        watch.write_started()
        await send(message)
        watch.write_finished()

The work stays in its own task. If the server reports a disconnect (`ON_DISCONNECT`), there is no other one; under any
other ASGI server a second task waits for the message.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeAlias

from dragoman.core.errors import DragomanError

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
OnDisconnect: TypeAlias = Callable[[Callable[[], None] | None], None]
"""Registers a function to be called when the client disconnects; None: no longer."""
ON_DISCONNECT: Final = "dragoman.on_disconnect"
"""Name of the ASGI extension that is an `OnDisconnect`."""
TakeBody: TypeAlias = Callable[[], bytes | None]
"""Returns the body of the request if all of it has arrived, and nothing was received before; else None."""
TAKE_BODY: Final = "dragoman.take_body"
"""Name of the ASGI extension that is a `TakeBody`."""


class Client(NamedTuple):
    """The client of one request, as the ASGI server presents it."""

    receive: Receive
    send: Send
    on_disconnect: OnDisconnect | None = None
    take_body: TakeBody | None = None

    @classmethod
    def from_scope(cls, scope: Scope, receive: Receive, send: Send) -> "Client":
        """Returns the client of a scope, with the extensions that the server has."""
        extensions = scope.get("extensions") or {}
        return cls(receive, send, extensions.get(ON_DISCONNECT), extensions.get(TAKE_BODY))


class ClientDisconnectedError(Exception):
    """The client closed the connection."""


class ClientWatch:
    """Watches the client of one request, from the end of its body on."""

    def __init__(self, client: Client, write_timeout_s: float) -> None:
        self._client = client
        self._disconnected: asyncio.Future[None] | None = None
        self._limit_s = write_timeout_s
        self._loop = asyncio.get_running_loop()
        self._writing_since_s: float | None = None
        """When the write began that the client has not accepted yet, in the event loop's time."""
        self._left = False
        self.finished = False
        """The response is complete: servers send "disconnect" after the last byte too."""

    async def __aenter__(self) -> "ClientWatch":
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        if self._client.on_disconnect is not None:
            self._client.on_disconnect(self._leave)
        else:
            self._disconnected = asyncio.ensure_future(self._until_gone())
        self._timer = self._loop.call_later(self._limit_s, self._look)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client.on_disconnect is not None:
            self._client.on_disconnect(None)
        if self._disconnected is not None:
            self._disconnected.cancel()
            self._disconnected = None  # the CancelledError refers to its frame, and the frame to this object
        self._timer.cancel()
        if not self._left:
            return
        asked_by_us_alone = self._task.uncancel() == 0
        if isinstance(error, DragomanError) or (isinstance(error, asyncio.CancelledError) and asked_by_us_alone):
            raise ClientDisconnectedError from None

    def write_started(self) -> None:
        """A write begins; it waits while the client accepts no data."""
        self._writing_since_s = self._loop.time()

    def write_finished(self) -> None:
        """The client has accepted the write."""
        self._writing_since_s = None

    async def _until_gone(self) -> None:
        while (await self._client.receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        if not (self._left or self.finished):
            self._left = True
            self._task.cancel()

    def _look(self) -> None:
        """Checks now and then whether a write has timed out; a timer for each write would cost more."""
        since_s = self._writing_since_s
        left_s = self._limit_s if since_s is None else since_s + self._limit_s - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
            return
        self.finished = False  # the last write may be the one that is not accepted
        self._leave()
