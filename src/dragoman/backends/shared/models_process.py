"""The connection of one gateway process to the process that runs the models (`server`), over its Unix domain socket."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dragoman.backends.shared import codec
from dragoman.backends.shared.server import WINDOW
from dragoman.core.errors import BackendUnavailableError
from dragoman.off_loop import off_loop

ENDED: Final = "the process that runs the models ended; it is being restarted"
RECONNECT_S: Final = 20.0
"""Time that a call waits for the process to be there again."""
RETRY_AFTER_S: Final = 3.0
BLOCKING_S: Final = 2.0
"""Timeout of the calls that captures make, which hold the event loop."""
_POLL_S: Final = 0.05


class ModelsProcess:
    """The connection of one gateway process to the process that runs the models."""

    def __init__(self, path: Path) -> None:
        """`path` is the socket of the process."""
        self._path = path
        self._watching: asyncio.Task[None] | None = None
        self._known = asyncio.Event()
        self._states: dict[str, dict[str, Any]] = {}
        self.ended = ENDED
        self.is_connected = False

    async def start(self) -> None:
        """Connects, and waits until the state of the backends is known; does nothing if that has happened.

        Raises: BackendUnavailableError: the process is not there.
        """
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        try:
            async with asyncio.timeout(RECONNECT_S):
                await self._known.wait()
        except TimeoutError:
            raise BackendUnavailableError("the process that runs the models does not answer") from None

    async def close(self) -> None:
        """Closes the connection."""
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.wait({watching})

    def state(self, name: str) -> Mapping[str, Any]:
        """Returns the last known state of a backend; {} before `start`."""
        return self._states.get(name, {})

    def update(self, name: str, state: dict[str, Any]) -> None:
        """Replaces the state of a backend."""
        self._states[name] = state

    async def _watch(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_unix_connection(self._path)
                try:
                    writer.write(codec.encode(["watch"]))
                    while (frame := await codec.read_frame(reader)) is not None:
                        self._states = frame[1]
                        self.is_connected = True
                        self._known.set()
                finally:
                    self.is_connected = False
                    writer.close()
            await asyncio.sleep(_POLL_S)

    @contextlib.asynccontextmanager
    async def call(self, *frame: object, large: bool = False) -> AsyncIterator["CallConnection"]:
        """Sends a call; the connection is closed at the end of the block, which cancels the call.

        Args:
            frame: the method and its arguments.
            large: whether the frame is encoded in a thread.

        Raises:
            BackendUnavailableError: the process is not there, also not after `RECONNECT_S`.
        """
        reader, writer = await self._connect()
        try:
            writer.write(await off_loop(large, codec.encode, frame))
            yield CallConnection(reader, writer)
        finally:
            writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + RECONNECT_S
        while True:
            try:
                return await asyncio.open_unix_connection(self._path)
            except OSError:
                if loop.time() >= until_s:
                    raise BackendUnavailableError(ENDED, retry_after_s=RETRY_AFTER_S) from None
            await asyncio.sleep(_POLL_S)

    def call_blocking(self, *frame: object) -> Any:
        """Returns the result of a call, while the event loop waits.

        Raises: DragomanError: the call failed, or the process is not there.
        """
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(BLOCKING_S)
                connection.connect(str(self._path))
                connection.sendall(codec.encode(frame))
                return result_of(codec.receive_frame(connection))
        except OSError:
            raise BackendUnavailableError(ENDED, retry_after_s=RETRY_AFTER_S) from None


class CallConnection:
    """The connection of one call."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._unconfirmed = 0

    async def next_frame(self) -> Any:
        """Returns the next frame; None if the other process has ended."""
        return await codec.read_frame(self._reader)

    def acknowledge(self) -> None:
        """One more counted frame was taken; reports it to the other process from time to time."""
        self._unconfirmed += 1
        if self._unconfirmed >= WINDOW // 2:
            self._writer.write(codec.encode(["ack", self._unconfirmed]))
            self._unconfirmed = 0


def result_of(frame: Sequence[Any]) -> Any:
    """Returns the result of a call.

    Raises: DragomanError: the call failed. RuntimeError: there is a bug in the other process.
    """
    match frame:
        case ["error", error]:
            raise error
        case ["bug", text]:
            raise RuntimeError(text)
        case _:
            return frame[1]
