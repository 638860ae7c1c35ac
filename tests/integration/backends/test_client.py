"""The HTTP client, against a server that sends raw bytes: framing, limits, early ends, TLS, proxies, and no leaks."""

import asyncio
import contextlib
import gzip
import os
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import trustme

from dragoman.backends.http import client as clients
from dragoman.backends.http import client_connect, client_protocol
from dragoman.backends.http.client import HttpClient
from dragoman.backends.http.client_errors import (
    ConnectError,
    ConnectTimeout,
    DecodingError,
    LocalProtocolError,
    ProxyError,
    ReadError,
    ReadTimeout,
    RemoteDisconnected,
    RemoteProtocolError,
)
from support.gateway import DEADLINE_S
from support.scripted_backend import eventually

pytestmark = pytest.mark.asyncio

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


# Framing


class Fed:
    """A connection whose bytes come from the test, without a socket."""

    def __init__(self) -> None:
        self.aborted = False
        self.connection = client_protocol.ClientConnection(lambda connection: None)
        self.connection.connection_made(self)  # type: ignore[arg-type]

    def write(self, data: bytes) -> None: ...

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True

    async def reply(self, *parts: bytes, closes: bool = False) -> bytes:
        """Returns the body of a response that arrives in these parts."""
        connection = self.connection
        sending = asyncio.ensure_future(connection.send(b"GET / HTTP/1.1\r\n\r\n", b"", TIMEOUT_S))
        await asyncio.sleep(0)
        for part in parts:
            connection.data_received(part)
        if closes or self.aborted:
            connection.connection_lost(None)
        await sending
        body = bytearray()
        while piece := await connection.read():
            body += piece
        return bytes(body)


@pytest.mark.parametrize("name", FRAMINGS)
async def test_response_split_at_each_position_is_read(name: str) -> None:
    data, is_kept = FRAMINGS[name], name != "uncounted"
    for at in range(1, len(data)):
        fed = Fed()
        assert await fed.reply(data[:at], data[at:], closes=not is_kept) == b"Hello, world", at
        assert fed.connection.status == 200
        assert fed.connection.headers["x-a"] == "1"
        assert "x-b" not in fed.connection.headers
        assert "link" not in fed.connection.headers
        assert fed.connection.is_reusable == is_kept


@pytest.mark.parametrize("name", FRAMINGS)
async def test_response_in_single_bytes_is_read(name: str) -> None:
    data = FRAMINGS[name]
    fed = Fed()
    assert await fed.reply(*(data[at : at + 1] for at in range(len(data))), closes=True) == b"Hello, world"


@pytest.mark.parametrize("name", ["chunked", "counted", "interim", "trailers"])
async def test_end_of_connection_at_each_position_is_reported(name: str) -> None:
    data = FRAMINGS[name]
    head = data.index(b"HTTP/1.1 200")
    head = data.index(b"\r\n\r\n", head) + 4
    for at in range(len(data)):
        expected = RemoteDisconnected if at < head else ReadError
        with pytest.raises(expected):
            await Fed().reply(data[:at], closes=True)


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\nfoo",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 17 + b"\r\nok\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: a\0b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-A: 0123456789\r\n" * 5000,
        b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 70_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 3000,
        CHUNKED[:-2].replace(b"Hello, ", b"")[: CHUNKED.index(b"\r\n\r\n") + 4] + b"0\r\n" + b"X-B: 1\r\n" * 12_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 90_000,
    ],
    ids=lambda data: repr(data[:40]),
)
async def test_invalid_response_is_rejected(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        await Fed().reply(*(data[at : at + 9999] for at in range(0, len(data), 9999)))


async def test_head_with_many_headers_is_read() -> None:
    many = b"".join(b"X-%d: %d\r\n" % (n, n) for n in range(300))
    fed = Fed()
    assert await fed.reply(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + many + b"\r\n") == b""
    assert fed.connection.headers["x-299"] == "299"


@pytest.mark.parametrize("status", [204, 304])
async def test_status_without_body_ends_at_its_head(status: int) -> None:
    fed = Fed()
    assert await fed.reply(b"HTTP/1.1 %d X\r\nContent-Length: 5\r\n\r\n" % status) == b""
    assert fed.connection.is_reusable


@pytest.mark.parametrize(
    "garbage", [b"x", b"HTTP/1.1 200 OK\r\n", COUNTED, b"\0" * 10, b"\xff"], ids=lambda data: repr(data[:10])
)
@pytest.mark.parametrize("name", ["chunked", "counted"])
async def test_connection_with_data_after_response_is_not_reused(name: str, garbage: bytes) -> None:
    fed = Fed()
    assert await fed.reply(FRAMINGS[name] + garbage) == b"Hello, world"
    assert not fed.connection.is_reusable
    fed = Fed()
    assert await fed.reply(FRAMINGS[name], garbage) == b"Hello, world"
    assert not fed.connection.is_reusable
    fed = Fed()
    await fed.reply(FRAMINGS[name])
    fed.connection.reset(15)
    fed.connection.data_received(garbage)
    assert fed.connection.is_closed


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n",
    ],
)
async def test_connection_that_server_closes_is_not_reused(head: bytes) -> None:
    fed = Fed()
    assert await fed.reply(head + b"ok") == b"ok"
    assert not fed.connection.is_reusable


async def test_pieces_that_arrived_together_are_returned_in_one() -> None:
    connection = Fed().connection
    sending = asyncio.ensure_future(connection.send(b"", b"", TIMEOUT_S))
    await asyncio.sleep(0)
    for part in (CHUNKED[:-5] + chunked(b"!", b"?")[:-5], chunked(b"more")):
        connection.data_received(part)
    await sending
    assert await connection.read() == b"Hello, world!?more"
    assert await connection.read() == b""
    assert await connection.read() == b""


async def test_bytes_before_an_error_are_delivered() -> None:
    connection = Fed().connection
    sending = asyncio.ensure_future(connection.send(b"", b"", TIMEOUT_S))
    await asyncio.sleep(0)
    connection.data_received(CHUNKED[:-5] + b"zz\r\n")
    await sending
    assert await connection.read() == b"Hello, world"
    with pytest.raises(RemoteProtocolError):
        await connection.read()


# Requests and the pool


async def test_request_head_is_complete() -> None:
    async with raw_server(answers(COUNTED, closes=False)) as server:
        async with opened(server.url, {"authorization": "Bearer k", "accept": "text/x"}) as client:
            await fetch(client, b"body")
            await fetch(client, b"", headers={"x-one": "é"})
            await fetch(client, headers={"accept": "text/y"})
            response = await client.send("GET", "/v1/a b?c=%20d#e", timeout_s=TIMEOUT_S)
            await response.read_body(99)
            response.close()
    first, second, third, get = (request.decode().split("\r\n") for request in server.requests)
    assert first[0] == "POST /v1/x HTTP/1.1"
    fields = dict(line.split(": ", 1) for line in first[1:-2])
    assert fields.pop("user-agent").startswith("dragoman/")
    assert fields == {
        "host": f"127.0.0.1:{server.port}",
        "accept": "text/x",
        "accept-encoding": "identity",
        "authorization": "Bearer k",
        "content-length": "4",
    }
    assert first[-1] == "body"
    assert {"x-one: é", "content-length: 0", "accept: text/x"} <= set(second)
    assert "accept: text/y" in third
    assert "accept: text/x" not in third
    assert get[0] == "GET /v1/a%20b?c=%20d HTTP/1.1"
    assert not any(line.startswith("content-length") for line in get)
    assert server.connections == 1


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb", "a\0b"])
async def test_header_with_line_break_is_refused(value: str) -> None:
    with pytest.raises(LocalProtocolError):
        HttpClient("http://127.0.0.1:9", {"x-key": value})
    async with opened("http://127.0.0.1:9") as client:
        for headers in ({"x-one": value}, {value: "x"}, {"accept": value}):
            with pytest.raises(LocalProtocolError):
                await fetch(client, headers=headers)


@pytest.mark.parametrize("url", ["127.0.0.1:9", "ftp://a", "http://", "http://a:x"])
async def test_url_without_origin_is_refused(url: str) -> None:
    with pytest.raises(LocalProtocolError):
        HttpClient(url)


async def test_user_of_url_is_sent() -> None:
    async with raw_server(answers(COUNTED)) as server, opened(server.url.replace("//", "//user:w%3Ard@")) as client:
        await fetch(client)
    assert b"authorization: Basic dXNlcjp3OnJk\r\n" in server.requests[0]


async def test_connection_used_last_is_reused_first_and_idle_ones_close(monkeypatch: pytest.MonkeyPatch) -> None:
    async with raw_server(answers(COUNTED, closes=False)) as server, opened(server.url) as client:
        await asyncio.gather(*(fetch(client) for _ in range(3)))
        assert server.connections == 3
        last = client._idle[-1]
        for _ in range(4):
            await fetch(client)
            assert client._idle[-1] is last
        assert (server.connections, client.active) == (3, 0)
        monkeypatch.setattr(clients, "IDLE_LIMIT_S", 0.01)
        await fetch(client)
        await eventually(lambda: len(client._idle) == 2)
        await eventually(lambda: len(server.tasks) == 2)


async def test_response_closed_before_its_end_closes_the_connection() -> None:
    async with raw_server(answers(CHUNKED[:-9], closes=False)) as server, opened(server.url) as client:
        response = await client.send("POST", "/", b"", timeout_s=TIMEOUT_S)
        assert await response.read()
        response.close()
        response.close()
        await eventually(lambda: not server.tasks)
        assert client.active == 0


async def test_retry_uses_a_new_connection() -> None:
    async with raw_server(answers(COUNTED, closes=False)) as server, opened(server.url) as client:
        await asyncio.gather(*(fetch(client) for _ in range(2)))
        await fetch(client, is_retry=True)
        assert server.connections == 3


async def test_kept_connection_that_server_closes_is_dropped() -> None:
    async with raw_server(answers(COUNTED, closes=True)) as server, opened(server.url) as client:
        await fetch(client)
        await eventually(lambda: not client._open)
        await fetch(client)
        assert server.connections == 2


async def test_cancelled_request_closes_its_connection_at_once() -> None:
    for sent in (b"", CHUNKED[:20], CHUNKED[:-9]):
        async with raw_server(answers(sent, closes=False)) as server, opened(server.url) as client:
            fetching = asyncio.ensure_future(fetch(client))
            await eventually(lambda: server.requests)
            fetching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await fetching
            assert client.active == 0 or client._open.pop().is_closed
            await eventually(lambda: not server.tasks)


async def test_closing_client_ends_requests() -> None:
    async with raw_server(answers(CHUNKED[:-9], closes=False)) as server:
        async with opened(server.url) as client:
            response = await client.send("POST", "/", b"", timeout_s=TIMEOUT_S)
        assert await response.read()
        with pytest.raises(ReadError):
            await response.read()
        response.close()


# Timeouts and flow control


async def test_each_wait_is_limited() -> None:
    async with raw_server(answers(CHUNKED[:20], closes=False)) as server, opened(server.url) as client:
        with pytest.raises(ReadTimeout):
            await fetch(client, timeout_s=0.05)
        await eventually(lambda: not server.tasks)
    async with raw_server(answers(CHUNKED[:-9], closes=False)) as server, opened(server.url) as client:
        response = await client.send("POST", "/", b"", timeout_s=TIMEOUT_S)
        assert await response.read()
        response.set_read_timeout(0.05)
        with pytest.raises(ReadTimeout):
            await response.read()
        response.close()
        await eventually(lambda: not server.tasks)


async def test_slow_head_does_not_extend_the_limit() -> None:
    async def trickles(server: RawServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nX-A: ")
        while not reader.at_eof():
            writer.write(b"a")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.01)

    async with raw_server(trickles) as server, opened(server.url) as client:
        with pytest.raises(ReadTimeout):
            await fetch(client, timeout_s=0.1)
        await eventually(lambda: not server.tasks)


async def test_time_in_the_pool_and_of_a_busy_reader_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    async with raw_server(answers(CHUNKED[:-9], CHUNKED[-9:], closes=False)) as server, opened(server.url) as client:
        response = await client.send("POST", "/", b"", timeout_s=0.3)
        await asyncio.sleep(0.4)  # the timer fires in between
        assert await response.read_body(99) == b"Hello, world"
        response.close()
        await asyncio.sleep(0.4)
        assert (await fetch(client))[1] == b"Hello, world"
        assert server.connections == 1


async def test_connect_timeout_includes_tls() -> None:
    async def silent(server: RawServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with raw_server(silent) as server:
        url = server.url.replace("http:", "https:")
        async with opened(url, connect_timeout_s=0.1) as client:
            with pytest.raises(ConnectTimeout):
                await fetch(client)
        async with opened("https://far.test", proxy=server.url, connect_timeout_s=0.1) as client:
            with pytest.raises(ConnectTimeout):
                await fetch(client)
        await eventually(lambda: not server.tasks)


async def test_server_that_does_not_read_the_body_times_out() -> None:
    async def deaf(server: RawServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.get_running_loop().create_future()

    async with raw_server(deaf) as server, opened(server.url) as client:
        with pytest.raises(ReadTimeout):
            await fetch(client, b"x" * 30_000_000, timeout_s=0.1)


async def test_long_body_arrives() -> None:
    body = os.urandom(5_000_000)
    async with raw_server(answers(COUNTED, closes=False), limit=2**24) as server, opened(server.url) as client:
        for _ in range(2):
            assert await fetch(client, body) == (200, b"Hello, world")
        assert server.connections == 1
    assert all(request.endswith(b"\r\n\r\n" + body) for request in server.requests)


async def test_response_before_the_end_of_the_body_is_read() -> None:
    refusal = b"HTTP/1.1 413 X\r\nContent-Length: 2\r\n\r\nno"

    async def refuses(server: RawServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(refusal)
        await asyncio.get_running_loop().create_future()

    async with raw_server(refuses) as server, opened(server.url) as client:
        assert await fetch(client, b"x" * 30_000_000) == (413, b"no")
        assert not client._idle, "the rest of the body is missing"
        await eventually(lambda: not client._open)


async def test_reading_pauses_while_nothing_is_taken() -> None:
    size, sent = 60_000_000, 0

    async def floods(server: RawServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await server.request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while sent < size:
            writer.write(b"x" * 100_000)
            sent += 100_000
            await writer.drain()
        await reader.read()

    async with raw_server(floods) as server, opened(server.url) as client:
        response = await client.send("POST", "/", b"", timeout_s=TIMEOUT_S)
        await eventually(lambda: response._connection is not None and response._connection._read_paused)
        assert sent < size
        assert len(await response.read_body(2 * size)) == size
        response.close()
        assert len(client._idle) == 1


# Encodings


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKED = {"gzip": gzip.compress, "X-GZip": gzip.compress, "deflate": zlib.compress, "Deflate": raw_deflate}
TEXT = b"Hello, world " * 50


@pytest.mark.parametrize("encoding", PACKED)
async def test_compressed_body_is_decoded(encoding: str) -> None:
    data = PACKED[encoding](TEXT)
    for parts in ((data,), tuple(data[at : at + 1] for at in range(len(data)))):
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: %s\r\n\r\n" % encoding.encode()
        async with raw_server(answers(head, *(chunked(part)[:-5] for part in parts), b"0\r\n\r\n")) as server:
            async with opened(server.url) as client:
                response = await client.send("POST", "/", b"", timeout_s=TIMEOUT_S)
                assert await response.read_body(9999) == TEXT
                assert "content-encoding" not in response.headers
                response.close()


@pytest.mark.parametrize(
    ("encoding", "data", "why"),
    [
        ("br", TEXT, "content-encoding br, which was not requested"),
        ("gzip, gzip", TEXT, "content-encoding gzip, gzip, "),
        ("gzip", TEXT, "invalid gzip"),
        ("gzip", gzip.compress(TEXT)[:-3], "truncated gzip"),
        ("gzip", gzip.compress(TEXT) + b"x", "data after the end of gzip"),
        ("deflate", b"x", "truncated deflate"),
        ("deflate", b"\xff\xff\xff", "invalid deflate"),
        ("gzip", b"", "truncated gzip"),
    ],
)
async def test_invalid_compressed_body_is_rejected(encoding: str, data: bytes, why: str) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(data)}\r\nContent-Encoding: {encoding}\r\n\r\n"
    async with raw_server(answers(head.encode() + data)) as server, opened(server.url) as client:
        with pytest.raises(DecodingError, match=why):
            await fetch(client)


async def test_decompression_bomb_is_decoded_in_limited_pieces() -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nContent-Encoding: gzip\r\n\r\n" % len(bomb)
    async with raw_server(answers(head + bomb)) as server, opened(server.url) as client:
        response = await client.send("POST", "/", b"", timeout_s=TIMEOUT_S)
        for _ in range(9):
            assert 0 < len(await response.read()) <= 256 * 1024
        response.close()


# Addresses, TLS and proxies


async def test_localhost_reaches_a_server_on_one_of_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def both(host: str, port: int, **more: Any) -> list[tuple[Any, ...]]:
        with socket.create_server(("127.0.0.2", 0)) as taken:
            closed = taken.getsockname()[1]
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", address)
            for address in (("127.0.0.2", closed), ("127.0.0.1", port))
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", both)
    async with raw_server(answers(COUNTED)) as server:
        async with opened(server.url.replace("127.0.0.1", "localhost")) as client:
            assert await fetch(client) == (200, b"Hello, world")
    async with opened(server.url.replace("127.0.0.1", "localhost")) as client:
        with pytest.raises(ConnectError):
            await fetch(client)


async def test_silent_address_does_not_delay_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async def both(host: str, port: int, **more: Any) -> list[tuple[Any, ...]]:
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, ("127.0.0.9", port)), (*kind, ("127.0.0.1", port))]

    connect_socket, cancelled = client_connect._connect_socket, asyncio.Event()

    async def connect(address: tuple[Any, ...]) -> socket.socket:
        if address[4][0] == "127.0.0.9":
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                cancelled.set()
        return await connect_socket(address)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", both)
    monkeypatch.setattr(client_connect, "_connect_socket", connect)
    async with raw_server(answers(COUNTED)) as server:
        async with opened(server.url.replace("127.0.0.1", "localhost")) as client:
            assert await fetch(client) == (200, b"Hello, world")
    assert cancelled.is_set()


async def test_ipv6_literal_is_reached() -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    handler = answers(COUNTED)
    server = RawServer(handler)
    async with await asyncio.start_server(server.serve, "::1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        async with opened(f"http://[::1]:{port}") as client:
            assert await fetch(client) == (200, b"Hello, world")
    assert b"host: [::1]:%d\r\n" % port in server.requests[0]


async def test_host_name_that_is_not_one_is_reported() -> None:
    async with opened(f"http://{'a' * 70}.test") as client:
        with pytest.raises(ConnectError):
            await fetch(client)


@pytest.fixture
def certified(monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """The context of a server that the client trusts."""
    authority = trustme.CA()
    context, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("far.test", "127.0.0.1").configure_cert(context)
    authority.configure_trust(trusting)
    monkeypatch.setattr(client_connect, "tls_context", lambda: trusting)
    return context


async def test_tls_with_trusted_certificate(certified: ssl.SSLContext) -> None:
    async with raw_server(answers(COUNTED, closes=False), ssl=certified) as server:
        async with opened(server.url.replace("http:", "https:")) as client:
            for body in (b"{}", b"x" * 60_000, b"{}"):
                assert await fetch(client, body) == (200, b"Hello, world")
        assert server.connections == 1


async def test_name_of_certificate_is_checked(certified: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    async with raw_server(answers(COUNTED), ssl=certified) as server:
        async with opened(f"https://localhost:{server.port}") as client:
            with pytest.raises(ConnectError) as refused:
                await fetch(client)
    assert isinstance(refused.value.os_error, ssl.SSLCertVerificationError)


def tunnels(port: int, status: bytes = b"200 Connection established", more: bytes = b"") -> Handler:
    """A proxy that forwards each tunnel to this port."""

    async def handler(server: RawServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.request(reader)
        writer.write(b"HTTP/1.1 " + status + b"\r\n\r\n" + more)
        if not status.startswith(b"200"):
            return
        there, here = await asyncio.open_connection("127.0.0.1", port)

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while data := await source.read(65536):
                    target.write(data)
                target.close()

        try:
            await asyncio.gather(copy(reader, here), copy(there, writer))
        finally:
            here.close()

    return handler


async def test_https_is_sent_through_a_tunnel(certified: ssl.SSLContext) -> None:
    async with raw_server(answers(COUNTED, closes=False), ssl=certified) as server:
        async with raw_server(tunnels(server.port)) as proxy:
            through = proxy.url.replace("//", "//us%40er:word@")
            async with opened("https://far.test", {"authorization": "Bearer k"}, proxy=through) as client:
                for _ in range(2):
                    assert await fetch(client) == (200, b"Hello, world")
            assert proxy.requests == [
                b"CONNECT far.test:443 HTTP/1.1\r\nHost: far.test:443\r\n"
                b"Proxy-Authorization: Basic dXNAZXI6d29yZA==\r\n\r\n"
            ]
            async with opened("https://other.test", proxy=proxy.url) as client:
                with pytest.raises(ConnectError):
                    await fetch(client)
    assert b"authorization: Bearer k\r\n" in server.requests[0]
    assert b"proxy-authorization" not in server.requests[0]


@pytest.mark.parametrize(
    "answer", [(b"407 Proxy Authentication Required",), (b"403 X",), (b"200 X", b"data"), (b"1",)], ids=str
)
async def test_refused_tunnel_is_reported(answer: tuple[bytes, ...], certified: ssl.SSLContext) -> None:
    async with raw_server(tunnels(9, *answer)) as proxy, opened("https://far.test", proxy=proxy.url) as client:
        with pytest.raises(ProxyError):
            await fetch(client)


async def test_proxy_with_tls_gets_absolute_urls(certified: ssl.SSLContext) -> None:
    async with raw_server(answers(COUNTED), ssl=certified) as proxy:
        through = proxy.url.replace("http://", "https://u:p@")
        async with opened("http://far.test:81", proxy=through) as client:
            assert await fetch(client) == (200, b"Hello, world")
    (request,) = proxy.requests
    assert request.startswith(b"POST http://far.test:81/v1/x HTTP/1.1\r\nhost: far.test:81\r\n")
    assert b"proxy-authorization: Basic dTpw\r\n" in request


# Leaks


def open_sockets() -> int:
    return sum(map(is_socket, os.listdir("/proc/self/fd")))


def is_socket(fd: str) -> bool:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
    return False


async def test_no_outcome_leaves_a_socket(certified: ssl.SSLContext) -> None:
    before = open_sockets()
    for handler in (
        answers(COUNTED, closes=False),
        answers(CHUNKED[:-9]),
        answers(b"nonsense"),
        answers(b""),
        answers(CHUNKED[:-9], closes=False),
        tunnels(9, b"407 X"),
    ):
        for tls in (None, certified):
            async with raw_server(handler, ssl=tls) as server:
                for scheme, proxy in (("http", None), ("https", None), ("http", server.url), ("https", server.url)):
                    url = f"{scheme}://127.0.0.1:{server.port}"
                    async with opened(url, proxy=proxy, connect_timeout_s=0.2) as client:
                        for timeout_s in (TIMEOUT_S, 0.05):
                            fetching = asyncio.ensure_future(fetch(client, timeout_s=timeout_s))
                            if timeout_s == TIMEOUT_S:
                                await asyncio.wait([fetching], timeout=0.05)
                                fetching.cancel()
                            await asyncio.wait([fetching], timeout=DEADLINE_S)
                            assert fetching.done()
                            if not fetching.cancelled():
                                fetching.exception()
    await eventually(lambda: open_sockets() == before)
