"""Answers the requests of other processes with the backends of this one, over a Unix domain socket.

A connection is one call, which its first frame names; closing the connection cancels the call.

    ["generate", backend, request, context]   → ["events", batch]*, ["done"]; also the frames of `answer.Reports`, and
                                                ["attempt", tool mode, format, queue_s, prompt_s]
    ["watch"]                                 → ["state", {backend: {"models", "names", "health",
                                                "images", "forwarded"}}] now and after each change, of
                                                which those by a response arrive before its first event
    ["count_tokens", backend, request] and the other calls of `answer.CALLS` → ["result", value]

Instead of the last frame of each, ["error", error] or ["bug", text] may follow. The client acknowledges the frames of
a response, ["ack", count]. At most `WINDOW` frames are sent that are not acknowledged, so a slow client of the gateway
stops the model here too.
"""

import asyncio
import contextlib
import os
import stat
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

from dragoman.backends.shared import codec
from dragoman.backends.shared.answer import answer, state_of
from dragoman.core.backend import Backend

WINDOW: Final = 64
"""Frames of one response that are sent before the client acknowledges them."""
STATE_INTERVAL_S: Final = 0.2
"""Time between two looks at the state of the backends."""
FIRST_FRAME_S: Final = 30.0
"""Time for the first frame of a connection to arrive."""


class BackendServer:
    """Serves backends, which must have been started, by their names."""

    def __init__(self, backends: Mapping[str, Backend]) -> None:
        self._backends = dict(backends)
        self._running: set[asyncio.Task[None]] = set()
        self._watching: dict[_Link, object] = {}
        """The processes that watch the state, and what each was last sent."""
        self._server: asyncio.Server | None = None

    async def listen(self, path: Path) -> None:
        """Begins to accept connections at this path; a socket that is left there is replaced.

        Raises: OSError: the socket cannot be created.
        """
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(path.stat().st_mode):
                path.unlink()
        self._server = await asyncio.start_unix_server(self._accept, path)
        os.chmod(path, 0o600)

    async def close(self) -> None:
        """Cancels all calls."""
        if self._server is not None:
            self._server.close()
        running = set(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            async with asyncio.timeout(FIRST_FRAME_S):
                first = await codec.read_frame(reader)
            if first is not None:
                acks = _Acks()
                await _until_closed(self._answer(first, _Link(writer, acks)), acks.receive(reader))
        except (ConnectionError, TimeoutError):
            pass
        except asyncio.CancelledError:
            pass  # `close`; asyncio would log the cancellation of a connection's task
        finally:
            self._running.discard(task)
            writer.close()

    async def _answer(self, first: list[Any], link: "_Link") -> None:
        if first[0] == "watch":
            await self._watch(link)
        else:
            await answer(self._backends, first, link, self._publish_state)
        await link.drain()

    async def _watch(self, link: "_Link") -> None:
        self._watching[link] = None
        try:
            while True:
                self._publish_state()
                await asyncio.sleep(STATE_INTERVAL_S)
        finally:
            del self._watching[link]

    def _publish_state(self) -> None:
        """Sends the state of the backends to all that watch it, if it has changed."""
        state = {name: state_of(backend) for name, backend in self._backends.items()}
        for link, sent in self._watching.items():
            if state != sent:
                link.send("state", state)
                self._watching[link] = state


async def _until_closed(answer: Coroutine[Any, Any, None], closed: Coroutine[Any, Any, None]) -> None:
    """Runs the answer until it ends, or the client closes the connection, which cancels it."""
    tasks = asyncio.ensure_future(answer), asyncio.ensure_future(closed)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    if not tasks[0].cancelled():
        tasks[0].result()


class _Acks:
    """Counts the frames that the client has not acknowledged yet."""

    def __init__(self) -> None:
        self._open = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def receive(self, reader: asyncio.StreamReader) -> None:
        """Reads acknowledgements until the client closes the connection."""
        while (frame := await codec.read_frame(reader)) is not None:
            self._open -= frame[1]
            self._has_room.set()

    async def wait(self) -> None:
        """Waits until another frame may be sent, and counts it."""
        while self._open >= WINDOW:
            self._has_room.clear()
            await self._has_room.wait()
        self._open += 1


class _Link:
    """Sends the frames of one call."""

    def __init__(self, writer: asyncio.StreamWriter, acks: _Acks) -> None:
        self._writer, self._acks = writer, acks

    def send(self, *frame: object) -> None:
        """Sends a frame that is not counted."""
        self._writer.write(codec.encode(frame))

    async def send_counted(self, *frame: object) -> None:
        """Sends a frame once the client has taken most of the earlier ones."""
        await self._acks.wait()
        self.send(*frame)
        await self.drain()

    async def drain(self) -> None:
        """Waits until the socket accepts more."""
        await self._writer.drain()
