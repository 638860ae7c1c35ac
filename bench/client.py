"""A load client, HTTP/1.1 with keep-alive over asyncio streams, and the server process that it loads."""

import asyncio
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

Kind = Literal["dragoman", "floor", "upstreams", "claude"]
ROOT = Path(__file__).parent.parent
STAMP = re.compile(rb"@(\d+)@")
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
LAST_CHUNK = b"0\r\n\r\n"


class Usage(msgspec.Struct):
    """CPU time and memory of a server process since its start."""

    cpu_ns: int
    memory_bytes: int


@dataclass
class Response:
    """When the bytes of a response arrived; times in nanoseconds since the request."""

    body: bytes = b""
    first_byte_ns: int = 0
    """Arrival of the first byte of the body."""
    total_ns: int = 0
    """Arrival of the last byte."""
    delays_ns: list[int] = field(default_factory=list)
    """Delay of each time stamp in the response."""


class Connection:
    """One connection, one request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def request(self, path: str, body: bytes = b"", *, until_stamp: bool = False) -> Response:
        """Sends POST with the body (GET without) and reads the response; `until_stamp`: up to its first time stamp."""
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        method = b"POST" if body else b"GET"
        head = b"%s %s HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n" % (method, path.encode(), len(body))
        started = time.monotonic_ns()
        self._writer.write(head + body)
        response, head = Response(), await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"expected 200 from {path}, got {head!r}")
        if length := LENGTH.search(head):
            response.body = await self._reader.readexactly(int(length[1]))
            response.first_byte_ns = response.total_ns = time.monotonic_ns() - started
            return response
        pieces: list[bytes] = []
        while not pieces or not pieces[-1].endswith(LAST_CHUNK):
            pieces.append(await self._reader.read(65536))
            now = time.monotonic_ns()
            response.first_byte_ns = response.first_byte_ns or now - started
            response.delays_ns += [now - int(at) for at in STAMP.findall(pieces[-1])]
            if not pieces[-1]:
                raise RuntimeError(f"{path}: the stream ended early")
            if until_stamp and response.delays_ns:
                break
        response.body, response.total_ns = b"".join(pieces), time.monotonic_ns() - started
        return response

    async def close(self) -> None:
        """Closes the connection."""
        if self._writer is not None:
            self._writer.close()
            with suppress(ConnectionError):
                await self._writer.wait_closed()


class Server:
    """A running `bench.server`, and a client of it."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.pid = pid
        self._control = Connection(port)

    async def usage(self) -> Usage:
        """Returns what the process has used so far."""
        return msgspec.json.decode((await self._control.request("/usage")).body, type=Usage)

    async def close(self) -> None:
        """Closes the control connection."""
        await self._control.close()

    async def load(self, path: str, body: bytes, times: int, at_once: int) -> list[Response]:
        """Sends the same request repeatedly over several connections.

        Args:
            path: path of the API.
            body: the request.
            times: number of requests, of all connections together.
            at_once: number of connections.
        """
        responses: list[Response] = []

        async def client() -> None:
            connection = Connection(self.port)
            for _ in left:
                responses.append(await connection.request(path, body))
            await connection.close()

        left = iter(range(times))  # of all clients together
        await asyncio.gather(*(client() for _ in range(at_once)))
        return responses


@contextmanager
def serving(kind: Kind, *arguments: str) -> Iterator[Server]:
    """Runs `bench.server` with these arguments in a process of its own."""
    command = [sys.executable, "-m", "bench.server", kind, *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            if not url:
                raise RuntimeError(f"the server did not start: {' '.join(command)}")
            yield Server(int(url.rpartition(":")[2]), process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
