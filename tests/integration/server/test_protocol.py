"""Limits for clients before they are authenticated."""

import asyncio
import contextlib
import gc
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from dragoman.config.server import ServerConfig
from dragoman.gateway.gateway import Gateway
from dragoman.server.protocol import MAX_HEAD_BYTES, MAX_HEADERS, LimitedProtocol
from dragoman.server.run import serving
from support.gateway import CHAT, DEADLINE_S, http_request
from support.scripted_backend import Scripted, body, eventually, plain

SMALL = json.dumps(body(stream=False)).encode()


@contextlib.asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator["Client"]:
    config = ServerConfig(port=0, **settings)
    async with serving(Gateway([Scripted(plain)]), config) as url:
        yield Client(int(url.rpartition(":")[2]))


class Client:
    def __init__(self, port: int) -> None:
        self._port = port

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port)

    async def sent(self, data: bytes) -> bytes:
        """Sends the data, and returns everything received until the connection closes."""
        reader, writer = await self.connect()
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            await writer.drain()
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await read(reader)
        finally:
            writer.close()


async def read(reader: asyncio.StreamReader) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(2**16):
            found += piece
    return found


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def of(answer: bytes) -> Any:
    return json.loads(answer.partition(b"\r\n\r\n")[2])


LONG = b"x" * MAX_HEAD_BYTES


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"".join(b"x-%d: 1\r\n" % n for n in range(MAX_HEADERS)) + b"\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + LONG + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + 4 * LONG,
        b"GET /" + LONG + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /" + 4 * LONG,
        b"\r\n" * MAX_HEAD_BYTES,
    ],
    ids=["headers", "value", "value without an end", "path", "path without an end", "empty lines"],
)
async def test_oversized_request_head_is_rejected(head: bytes) -> None:
    async with opened() as client:
        answer = await client.sent(head)
    assert status(answer) == 431
    assert b"x-request-id: req_" in answer
    assert of(answer)["error"]["message"].startswith("expected a request head of at most")


async def test_trailers_are_not_headers_and_are_bounded() -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    chunk = f"{len(SMALL):x}\r\n".encode() + SMALL + b"\r\n0\r\n"
    async with opened(api_keys=("secret",)) as client:
        trailed = await client.sent(head.encode() + chunk + b"x-api-key: secret\r\nhost: evil.com\r\n\r\n")
        endless = await client.sent(head.encode() + chunk[:-3] + b"0\r\nx: " + 8 * LONG)
    assert status(trailed) == 401
    assert endless == b"" or status(endless) in (401, 431)


async def test_request_head_times_out() -> None:
    async with opened(body_timeout_s=0.2) as client:
        partial, silent, again = await asyncio.gather(
            client.sent(b"GET / HTTP/1.1\r\nhost:"),
            client.sent(b""),
            client.sent(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\nGET / HTTP/1.1\r\nhost:"),
        )
    assert status(partial) == 408
    assert silent == b""
    assert status(again) == 200


async def test_number_of_connections_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(max_connections=2) as client:
        held = [await client.connect() for _ in range(2)]
        for _, writer in held:  # a response shows that the connection was accepted
            writer.write(b"HEAD / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        for reader, _ in held:
            await reader.readuntil(b"\r\n\r\n")
        answers = [await client.sent(b"") for _ in range(3)]
        for _, writer in held:
            writer.close()
    assert [status(answer) for answer in answers] == [503, 503, 503]
    assert sum("server.max_connections" in record.message for record in caplog.records) == 1


async def test_pipelined_requests_are_answered_in_order() -> None:
    """A body as large as the head limit, directly followed by the next request."""
    large = SMALL[:-1] + b', "metadata": {"x": "' + LONG + b'"}}'
    async with opened() as client:
        answer = await client.sent(2 * http_request(CHAT, large) + http_request(CHAT, SMALL, connection="close"))
    assert answer.count(b"HTTP/1.1 200 OK") == 3


async def test_non_http_request_gets_json_error() -> None:
    async with opened() as client:
        answer = await client.sent(b"\x16\x03\x01\x02\x00\x01")
    assert status(answer) == 400
    assert of(answer)["error"]["message"].startswith("expected a request of HTTP/1.1")


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


PIPELINED = 2 * http_request(CHAT, SMALL)
HALF = http_request(CHAT, SMALL)[:-20]


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("request_bytes", [http_request(CHAT, SMALL), PIPELINED, HALF], ids=["whole", "two", "half"])
async def test_closed_connection_is_freed_without_garbage_collection(request_bytes: bytes) -> None:
    """The gateway collects garbage so rarely that a reference cycle of each connection would be a leak."""
    before = sum(isinstance(each, LimitedProtocol) for each in gc.get_objects())
    async with opened() as client:
        for reads in (True, False):
            reader, writer = await client.connect()
            writer.write(request_bytes)
            await writer.drain()
            if reads and request_bytes is not HALF:
                await reader.read(1)
            writer.close()
        await eventually(
            lambda: sum(isinstance(each, LimitedProtocol) for each in gc.get_objects()) == before, DEADLINE_S
        )
