"""The bare stack as a reference: uvicorn, uvloop, httptools and msgspec forward a request with nothing else.

`python -m bench.proxies.floor PORT UPSTREAM_PORT lean|aiohttp`. `lean` is an HTTP client of one class over an asyncio
protocol and httptools; `aiohttp` is that library. Both keep connections open and forward each part as it arrives.
"""

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, Final, Protocol, cast

import aiohttp
import httptools
import msgspec
import uvicorn

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_HOST: Final = "127.0.0.1"


class Routed(msgspec.Struct):
    """The fields that a router needs; msgspec validates the JSON of the others and skips them."""

    model: str
    stream: bool = False


_decode = msgspec.json.Decoder(Routed).decode


class Client(Protocol):
    """Sends a request to the upstream server."""

    def forward(self, path: str, body: bytes) -> AsyncIterator[bytes | tuple[int, Headers]]:
        """Yields the status with the headers, then each part of the body."""
        ...


class _Connection(asyncio.Protocol):
    """One upstream connection, with one request at a time."""

    def __init__(self) -> None:
        self._parts: deque[bytes | tuple[int, Headers]] = deque()
        self._progress = asyncio.Event()
        self._headers: Headers = []
        self.is_done = False
        self.is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's class does not inherit from it

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self.is_closed = True
        self._progress.set()

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self._parser.feed_data(data)
        self._progress.set()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self._parts.append((self._parser.get_status_code(), self._headers))

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self.is_done = True

    async def forward(self, request: bytes) -> AsyncIterator[bytes | tuple[int, Headers]]:
        """Yields the parts of the response."""
        self._parser = httptools.HttpResponseParser(self)
        self._headers, self.is_done = [], False
        self.transport.write(request)
        while not self.is_done and not self.is_closed:
            await self._progress.wait()
            self._progress.clear()
            while self._parts:
                yield self._parts.popleft()


class LeanClient:
    """A pool of `_Connection`."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: deque[_Connection] = deque()

    async def forward(self, path: str, body: bytes) -> AsyncIterator[bytes | tuple[int, Headers]]:
        """Yields the status with the headers, then each part of the body."""
        connection = self._idle.pop() if self._idle else None
        if connection is None or connection.is_closed:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(_Connection, _HOST, self._port)
        fields = f"host: {_HOST}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        head = f"POST {path} HTTP/1.1\r\n{fields}\r\n\r\n"
        try:
            async for part in connection.forward(head.encode() + body):
                yield part
        finally:
            if connection.is_done:
                self._idle.append(connection)
            else:
                connection.transport.close()


class AiohttpClient:
    """A session of aiohttp."""

    def __init__(self, port: int) -> None:
        self._url = f"http://{_HOST}:{port}"
        self._session: aiohttp.ClientSession | None = None

    async def forward(self, path: str, body: bytes) -> AsyncIterator[bytes | tuple[int, Headers]]:
        """Yields the status with the headers, then each part of the body."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None),
                connector=aiohttp.TCPConnector(limit=0),
                auto_decompress=False,
            )
        headers = {"content-type": "application/json"}
        async with self._session.post(self._url + path, data=body, headers=headers) as response:
            yield response.status, [(name.lower(), value) for name, value in response.raw_headers]
            async for part in response.content.iter_any():
                yield part


class App:
    """The ASGI application."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        _decode(body)
        tasks = [asyncio.ensure_future(self._forward(scope["path"], body, send)), asyncio.ensure_future(receive())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)  # a message: the client disconnected
        for task in tasks:
            task.cancel()

    async def _forward(self, path: str, body: bytes, send: Send) -> None:
        async for part in self._client.forward(path, body):
            if isinstance(part, bytes):
                await send({"type": "http.response.body", "body": part, "more_body": True})
                continue
            status, headers = part
            forwarded = [header for header in headers if header[0] not in (b"transfer-encoding", b"connection")]
            await send({"type": "http.response.start", "status": status, "headers": forwarded})
        await send({"type": "http.response.body", "body": b""})


def main(port: int, upstream: int, client: str) -> None:
    """Serves until SIGTERM."""
    app = App(LeanClient(upstream) if client == "lean" else AiohttpClient(upstream))
    config = uvicorn.Config(
        app,
        host=_HOST,
        port=port,
        loop="uvloop",
        http="httptools",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_level="warning",
        backlog=4096,
    )
    uvicorn.Server(config).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
