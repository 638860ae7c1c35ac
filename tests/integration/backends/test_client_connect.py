"""How the HTTP client connects: addresses, TLS and proxies; and that no outcome leaves a socket open."""

import asyncio
import contextlib
import os
import socket
import ssl
from typing import Any

import pytest
import trustme

from dragoman.backends.http.client import connect as client_connect
from dragoman.backends.http.client.errors import (
    ConnectError,
    ProxyError,
)
from support.gateway import DEADLINE_S
from support.raw_server import (
    CHUNKED,
    COUNTED,
    TIMEOUT_S,
    Handler,
    RawServer,
    answers,
    fetch,
    opened,
    raw_server,
)
from support.scripted_backend import eventually

pytestmark = pytest.mark.asyncio


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
    async with (
        raw_server(answers(COUNTED)) as server,
        opened(server.url.replace("127.0.0.1", "localhost")) as client,
    ):
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
    async with (
        raw_server(answers(COUNTED)) as server,
        opened(server.url.replace("127.0.0.1", "localhost")) as client,
    ):
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
    async with (
        raw_server(answers(COUNTED), ssl=certified) as server,
        opened(f"https://localhost:{server.port}") as client,
    ):
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
    async with (
        raw_server(answers(COUNTED, closes=False), ssl=certified) as server,
        raw_server(tunnels(server.port)) as proxy,
    ):
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
