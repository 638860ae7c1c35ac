"""The HTTP client: requests, kept connections, timeouts, flow control and content encodings."""

import asyncio
import contextlib
import gzip
import os
import socket
import zlib

import pytest

from dragoman.backends.http.client import http_client
from dragoman.backends.http.client.errors import (
    ConnectTimeout,
    DecodingError,
    LocalProtocolError,
    ReadError,
    ReadTimeout,
)
from dragoman.backends.http.client.http_client import HttpClient
from support.raw_server import (
    CHUNKED,
    COUNTED,
    TIMEOUT_S,
    RawServer,
    answers,
    chunked,
    fetch,
    opened,
    raw_server,
)
from support.scripted_backend import eventually

pytestmark = pytest.mark.asyncio


# Requests and the pool


async def test_request_head_is_complete() -> None:
    async with (
        raw_server(answers(COUNTED, closes=False)) as server,
        opened(server.url, {"authorization": "Bearer k", "accept": "text/x"}) as client,
    ):
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
        monkeypatch.setattr(http_client, "IDLE_LIMIT_S", 0.01)
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
        async with (
            raw_server(answers(head, *(chunked(part)[:-5] for part in parts), b"0\r\n\r\n")) as server,
            opened(server.url) as client,
        ):
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
        ("gzip", gzip.compress(TEXT, mtime=0)[:-3], "truncated gzip"),
        ("gzip", gzip.compress(TEXT, mtime=0) + b"x", "data after the end of gzip"),
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


async def test_endless_empty_blocks_are_rejected() -> None:
    """Without content, a reader's limit of decoded bytes would never be reached."""
    blocks = b"\x78\x9c" + b"\x00\x00\x00\xff\xff" * 40_000
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nContent-Encoding: deflate\r\n\r\n" % (len(blocks) + 1)
    async with raw_server(answers(head + blocks, closes=False)) as server, opened(server.url) as client:
        with pytest.raises(DecodingError, match="without content"):
            await fetch(client)


async def test_given_addresses_are_used_and_the_name_is_not_resolved() -> None:
    async with raw_server(answers(COUNTED)) as server:
        address = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port))
        async with opened(f"http://name.invalid:{server.port}", addresses=[address]) as client:
            assert await fetch(client) == (200, b"Hello, world")
    assert f"host: name.invalid:{server.port}".encode() in server.requests[0]
