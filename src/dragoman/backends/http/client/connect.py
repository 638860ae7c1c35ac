"""Connects to a server for the HTTP client: addresses, TCP, TLS, and the tunnel through a proxy.

Addresses are tried in the order of the resolver, IPv6 and IPv4 in turn; the next one after `_STAGGER_S`, or as soon as
the one before has failed, so `localhost` also reaches a server that listens on one of its addresses only.

Source: https://www.rfc-editor.org/rfc/rfc8305 (2026-11).
"""

import asyncio
import base64
import functools
import itertools
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from dragoman.backends.http.client.errors import ConnectError, ConnectTimeout, HttpError, ProxyError
from dragoman.backends.http.client.protocol import ClientConnection

_STAGGER_S: Final = 0.25
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_KEEPALIVE_OPTIONS: Final = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""Seconds before the first probe, seconds between probes, and probes without an answer before the connection fails."""
SocketAddress = tuple[Any, ...]
"""What `getaddrinfo` returns: family, type, protocol, name, address."""


class Origin(NamedTuple):
    """Where a URL is served."""

    scheme: str
    host: str
    """In ASCII; an IPv6 address without brackets."""
    port: int
    authorization: str
    """The header value for the user and password of the URL; empty: none."""

    @property
    def netloc(self) -> str:
        """Host and port; without the port if it is the default."""
        return self.authority if self.port != _DEFAULT_PORTS[self.scheme] else self._bracketed

    @property
    def authority(self) -> str:
        """Host and port."""
        return f"{self._bracketed}:{self.port}"

    @property
    def _bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def origin_of(url: str) -> Origin:
    """Returns the origin of a URL.

    Raises:
        ValueError: the URL is not one of HTTP.
    """
    at = urlsplit(url)
    if at.scheme not in _DEFAULT_PORTS or not at.hostname:
        raise ValueError(f"expected a URL like http://host:port, got {at.scheme}://")
    host = at.hostname if at.hostname.isascii() else at.hostname.encode("idna").decode()
    user = f"{unquote(at.username or '')}:{unquote(at.password or '')}"
    authorization = f"Basic {base64.b64encode(user.encode()).decode()}" if at.username or at.password else ""
    try:
        port = at.port
    except ValueError:  # whose message may contain a part of a password
        raise ValueError("expected a port number in the URL, got something else") from None
    return Origin(at.scheme, host, port or _DEFAULT_PORTS[at.scheme], authorization)


@functools.cache
def tls_context() -> ssl.SSLContext:
    """Returns the context of all connections: the system's certificates, or those of SSL_CERT_FILE and SSL_CERT_DIR.

    It is created once, as reading the certificates takes 30 ms.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


async def connect(
    origin: Origin,
    proxy: Origin | None,
    on_lost: Callable[[ClientConnection], None],
    timeout_s: float,
    addresses: Sequence[SocketAddress] = (),
) -> ClientConnection:
    """Returns a new connection to a server.

    Args:
        origin: the server.
        proxy: the proxy: one for http gets absolute URLs, one for https a tunnel.
        on_lost: is called once the connection is closed.
        timeout_s: limit for everything, from the host name to TLS.
        addresses: the server's addresses, if it is not resolved here; only without a proxy.

    Raises:
        ConnectTimeout: it took too long.
        ConnectError: there is no connection, or TLS fails.
        ProxyError: the proxy cannot be reached, or refused.
    """
    try:
        async with asyncio.timeout(timeout_s) as limit:
            if proxy is None:
                return await _open(origin, on_lost, addresses)
            try:
                connection = await _open(proxy, on_lost)
            except OSError as e:
                raise ProxyError(str(e)) from None
            if origin.scheme == "http":
                return connection
            return await _tunnel(connection, origin, proxy, on_lost, timeout_s)
    except TimeoutError as e:
        if limit.expired():
            raise ConnectTimeout from None
        raise ConnectError(e) from None  # of the system
    except OSError as e:
        raise ConnectError(e) from None


async def _open(
    at: Origin, on_lost: Callable[[ClientConnection], None], addresses: Sequence[SocketAddress] = ()
) -> ClientConnection:
    sock = await _connect_any(addresses or await _resolve(at.host, at.port))
    is_tls = at.scheme == "https"
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: ClientConnection(on_lost),
        sock=sock,
        ssl=tls_context() if is_tls else None,
        server_hostname=at.host if is_tls else None,
    )
    return connection


async def _tunnel(
    connection: ClientConnection,
    origin: Origin,
    proxy: Origin,
    on_lost: Callable[[ClientConnection], None],
    timeout_s: float,
) -> ClientConnection:
    """Asks the proxy for a tunnel to the server, and starts TLS in it."""
    lines = [f"CONNECT {origin.authority} HTTP/1.1", f"Host: {origin.authority}"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    try:
        try:
            await connection.send("\r\n".join((*lines, "", "")).encode(), b"", timeout_s)
            if connection.status // 100 != 2:
                raise ProxyError(f"the proxy answered {connection.status}")
            transport = connection.release_transport()
        except HttpError as e:
            raise ProxyError(str(e)) from None
        inner = ClientConnection(on_lost)
        encrypted = await asyncio.get_running_loop().start_tls(
            transport, inner, tls_context(), server_hostname=origin.host
        )
        if encrypted is None:
            raise ConnectionResetError
        inner.connection_made(encrypted)
    except BaseException:
        connection.abort()
        raise
    return inner


async def _resolve(host: str, port: int) -> Sequence[SocketAddress]:
    """Returns the addresses of a host, IPv6 and IPv4 in turn."""
    with suppress(socket.gaierror, UnicodeError):  # an IP address, for which no thread is needed
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:  # a part of the name is empty or too long
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None
    families = list(dict.fromkeys(address[0] for address in found))
    by_family = ([address for address in found if address[0] == family] for family in families)
    return [address for row in itertools.zip_longest(*by_family) for address in row if address is not None]


async def _connect_any(addresses: Sequence[SocketAddress]) -> socket.socket:
    """Returns a socket that is connected to the first of these addresses that responds.

    Raises:
        OSError: none does; the error of the last one that failed.
    """
    if len(addresses) == 1:
        return await _connect_socket(addresses[0])
    last_error: BaseException = OSError("the host has no address")
    attempts: set[asyncio.Task[socket.socket]] = set()
    left = list(addresses)
    try:
        while left or attempts:
            if left:
                attempts.add(asyncio.ensure_future(_connect_socket(left.pop(0))))
            done, attempts = await asyncio.wait(
                attempts, timeout=_STAGGER_S if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            connected = [task.result() for task in done if task.exception() is None]
            for extra in connected[1:]:
                extra.close()
            if connected:
                return connected[0]
            last_error = next((e for task in done if (e := task.exception())), last_error)
        raise last_error
    finally:
        for task in attempts:
            task.add_done_callback(_discard)
            task.cancel()


def _discard(attempt: "asyncio.Task[socket.socket]") -> None:
    """Closes the socket of an attempt that is no longer needed."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()


async def _connect_socket(address: SocketAddress) -> socket.socket:
    sock = _new_socket(address)
    try:
        await asyncio.get_running_loop().sock_connect(sock, address[4])
    except BaseException:
        sock.close()
        raise
    return sock


def _new_socket(address: SocketAddress) -> socket.socket:
    """Makes a socket with TCP keepalive, which detects an unreachable machine before a timeout does."""
    sock = socket.socket(*address[:3])
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE_OPTIONS.items():
        if option := getattr(socket, name, None):  # Linux has all of them
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    return sock
