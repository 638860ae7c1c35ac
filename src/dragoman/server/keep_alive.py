"""Pings on one stream while its backend is silent.

    async with KeepAlive(first_delay_s, interval_s, send_ping) as pings:
        async for batch in events:
            while (ping := pings.pause()) is not None:
                await ping              # which is being sent
            await write(batch)
            pings.resume()

The stream stays in its own task. One timer serves all of it, and is not set again for each event: that, and no queue
between two tasks, halve the cost of an event that arrives alone.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType


class KeepAlive:
    """Calls `send_ping` after each silence; never while the stream is written."""

    def __init__(self, first_delay_s: float, interval_s: float, send_ping: Callable[[], Awaitable[None]]) -> None:
        """
        Args:
            first_delay_s: Silence before the first ping, in seconds.
            interval_s: Silence before each further ping.
            send_ping: Sends a ping.
        """
        self._loop = asyncio.get_running_loop()
        self._interval_s, self._send_ping = interval_s, send_ping
        self._due_s = self._loop.time() + first_delay_s
        self._timer = self._loop.call_at(self._due_s, self._on_timer)
        self._ping: asyncio.Task[None] | None = None
        self._error: Exception | None = None
        """Why a ping could not be sent; raised by the next write."""
        self._paused = self._closed = False

    async def __aenter__(self) -> "KeepAlive":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        self._timer.cancel()
        if self._ping is not None:
            self._ping.cancel()
            await asyncio.wait({self._ping})

    def pause(self) -> "asyncio.Task[None] | None":
        """Call it before a write: no ping begins until `resume`. Returns the ping that is being sent now.

        Raises:
            Exception: What sending a ping has raised.
        """
        self._paused = True
        if self._error is not None:
            raise self._error
        return self._ping

    def resume(self) -> None:
        """Call it after a write: the silence begins here."""
        self._paused = False
        self._due_s = self._loop.time() + self._interval_s
        if self._timer.when() > self._due_s:  # the timer of a longer first delay
            self._timer.cancel()
            self._timer = self._loop.call_at(self._due_s, self._on_timer)

    def _on_timer(self) -> None:
        now_s = self._loop.time()
        if self._paused:  # the client is slow; a ping would only wait behind what is being written
            self._due_s = now_s + self._interval_s
        if now_s < self._due_s:
            self._timer = self._loop.call_at(self._due_s, self._on_timer)
        else:
            self._ping = self._loop.create_task(self._send())

    async def _send(self) -> None:
        try:
            await self._send_ping()
        except Exception as error:  # noqa: BLE001 whatever the server raises belongs to the stream's task
            self._error = error
        finally:
            self._ping = None
            self._due_s = self._loop.time() + self._interval_s
            if not self._closed:
                self._timer = self._loop.call_at(self._due_s, self._on_timer)
