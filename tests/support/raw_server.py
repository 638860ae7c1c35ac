"""A server that sends raw bytes, and the HTTP client in front of it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from dragoman.backends.http.client.http_client import HttpClient

TIMEOUT_S = 30.0
Handler = Callable[["RawServer", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class RawServer:
    """A server whose handler gets the streams of each connection."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.port = 0
        self.connections = 0
        self.requests: list[bytes] = []
        """Head and body of each request."""
        self.tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.tasks[task] = writer
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self.handler(self, reader, writer)
        finally:
            del self.tasks[task]
            writer.close()

    async def request(self, reader: asyncio.StreamReader) -> bytes:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int((head.lower().partition(b"content-length: ")[2] or b"0").split()[0])
        self.requests.append(head + await reader.readexactly(length))
        return head


@contextlib.asynccontextmanager
async def raw_server(handler: Handler, **settings: Any) -> AsyncIterator[RawServer]:
    server = RawServer(handler)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, **settings)
    server.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield server
    tasks = dict(server.tasks)
    for task, writer in tasks.items():
        writer.transport.abort()
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def answers(*parts: bytes, closes: bool = True) -> Handler:
    """Answers each request with these bytes, each part sent apart; then closes the connection or waits for more."""

    async def handler(server: RawServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await server.request(reader)
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            if closes:
                return

    return handler


@contextlib.asynccontextmanager
async def opened(url: str, headers: Any = None, **settings: Any) -> AsyncIterator[HttpClient]:
    """A client that has neither connections nor sockets left at its end."""
    client = HttpClient(url, headers, **settings)
    try:
        yield client
    finally:
        await client.close()
    assert client.active == 0
    assert not client._open
    assert not client._idle


async def fetch(client: HttpClient, body: bytes | None = b"{}", **more: Any) -> tuple[int, bytes]:
    response = await client.send("POST", "/v1/x", body, timeout_s=more.pop("timeout_s", TIMEOUT_S), **more)
    try:
        return response.status, await response.read_body(2**30)
    finally:
        response.close()


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (*pieces, b""))


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n" + chunked(b"Hello, ", b"world")
COUNTED = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nX-A: 1\r\n\r\nHello, world"
UNCOUNTED = b"HTTP/1.1 200 OK\r\nX-A: 1\r\n\r\nHello, world"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + COUNTED
TRAILERS = CHUNKED[:-2] + b"X-B: 2\r\n\r\n"
FRAMINGS = {
    "chunked": CHUNKED,
    "counted": COUNTED,
    "uncounted": UNCOUNTED,
    "interim": INTERIM,
    "trailers": TRAILERS,
}
