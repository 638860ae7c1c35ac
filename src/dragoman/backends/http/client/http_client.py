"""HTTP/1.1 client for one server, over asyncio and httptools, with a pool of kept-alive connections.

    client = HttpClient("https://api.example.com", {"authorization": "Bearer KEY"})
    response = await client.send("POST", "/v1/chat/completions", body, timeout_s=600)
    try:
        while piece := await response.read():
            ...
    finally:
        response.close()        # read to its end: the connection is kept; otherwise it is closed at once

No redirects, cookies, HTTP/2 or compression; a body that is compressed all the same is decoded. Why there is a client
of its own: docs/design.md.

Source: https://www.rfc-editor.org/rfc/rfc9112 (2026-11).
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import quote

from dragoman import __version__
from dragoman.backends.http.client.connect import SocketAddress, connect, origin_of, tls_context
from dragoman.backends.http.client.content_decoding import ContentDecoder
from dragoman.backends.http.client.errors import LocalProtocolError
from dragoman.backends.http.client.protocol import ClientConnection

IDLE_LIMIT_S: Final = 15.0
"""How long an unused connection is kept; servers close theirs after 5 to 75 s."""
_MAX_HEADS: Final = 64
"""Maximum number of paths whose headers are kept."""
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FORBIDDEN: Final = re.compile(r"[\0\r\n]")
_SAFE: Final = "/%:?@!$&'()*+,;=~[]"
"""Characters of a request target that are not escaped."""
_DEFAULT_HEADERS: Final = {"accept": "*/*", "accept-encoding": "identity", "user-agent": f"dragoman/{__version__}"}


class Response:
    """A response, whose head has arrived."""

    __slots__ = ("_client", "_connection", "_decoder", "_pieces", "headers", "read", "status")

    def __init__(self, client: "HttpClient", connection: ClientConnection) -> None:
        """
        Args:
            client: the client, which gets the connection back.
            connection: the connection, from which the body is read.

        Raises:
            DecodingError: the body has an encoding that is not supported.
        """
        self._client = client
        self._connection: ClientConnection | None = connection
        self.status = connection.status
        self.headers: Mapping[str, str] = connection.headers
        """Names in lower case, as the body is read."""
        self.read: Callable[[], Awaitable[bytes]] = connection.read
        """Returns the next bytes of the body, all that have arrived; b"" at its end. Raises HttpError."""
        encoding = connection.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            self._decoder = ContentDecoder(encoding)
            self._pieces: Iterator[bytes] = iter(())
            self.read = self._read_decoded
            for name in ("content-encoding", "content-length"):
                connection.headers.pop(name, None)

    async def read_body(self, max_bytes: int) -> bytes:
        """Returns the rest of the body, at most `max_bytes`.

        Raises:
            HttpError: the rest does not arrive.
        """
        body = bytearray()
        while len(body) < max_bytes and (piece := await self.read()):
            body += piece
        return bytes(body[:max_bytes])

    def set_read_timeout(self, timeout_s: float) -> None:
        """Limits each later wait for bytes of the body."""
        if self._connection is not None:
            self._connection.read_timeout_s = timeout_s

    def close(self) -> None:
        """Gives the connection back if the response has arrived to its end, and otherwise closes it at once."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self.read = connection.read  # not a method of this object, which would then refer to itself
            self._client.release(connection)

    async def _read_decoded(self) -> bytes:
        while True:
            if piece := next(self._pieces, b""):
                return piece
            if self._connection is None or not (data := await self._connection.read()):
                self._decoder.close()
                return b""
            self._pieces = self._decoder.feed(data)


class HttpClient:
    """The connections to one server."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        proxy: str | None = None,
        connect_timeout_s: float = 10.0,
        addresses: Sequence[SocketAddress] = (),
    ) -> None:
        """
        Args:
            url: URL of the server; its path is ignored, its user and password are sent.
            headers: headers of every request, names in lower case.
            proxy: URL of the proxy; None: no proxy.
            connect_timeout_s: limit for connecting, including TLS and the proxy.
            addresses: connects to these, as `getaddrinfo` returns them, and does not resolve the host; only without a
                proxy. Host header and TLS use the host of the URL all the same.

        Raises:
            LocalProtocolError: a header contains line breaks, or a URL is invalid.
        """
        try:
            self._origin, self._proxy = origin_of(url), origin_of(proxy) if proxy else None
        except ValueError as e:
            raise LocalProtocolError(str(e)) from None
        self._connect_timeout_s = connect_timeout_s
        self._addresses = addresses
        self._headers = {"host": self._origin.netloc, **_DEFAULT_HEADERS}
        if self._origin.authorization:
            self._headers["authorization"] = self._origin.authorization
        self._target_prefix = ""
        if self._proxy is not None and self._origin.scheme == "http":
            self._target_prefix = f"http://{self._origin.netloc}"
            if self._proxy.authorization:
                self._headers["proxy-authorization"] = self._proxy.authorization
        self._headers |= headers or {}
        _header_lines(self._headers)
        self._heads: dict[tuple[str, str], bytes] = {}
        self._idle: list[ClientConnection] = []
        self._open: set[ClientConnection] = set()
        self._connecting = 0
        self._is_closed = False
        self._all_lost: asyncio.Event | None = None

    @property
    def active(self) -> int:
        """The number of connections that carry a request or are being established."""
        return self._connecting + len(self._open) - len(self._idle)

    def start(self) -> None:
        """Reads the certificates now, not during the first request; opens a closed client again."""
        self._is_closed, self._all_lost = False, None
        if self._origin.scheme == "https" or (self._proxy is not None and self._proxy.scheme == "https"):
            tls_context()

    async def send(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float,
        is_retry: bool = False,
    ) -> Response:
        """Sends a request and returns its response once the head has arrived. Close the response in any case.

        Args:
            method: the method, such as POST.
            target: path and query.
            body: the body; None: no body.
            headers: headers of this request, which replace those of all requests; names in lower case.
            timeout_s: limit from the connection to the head of the response, and of each wait for bytes of the body.
            is_retry: uses a new connection, as the server may have closed the kept ones.

        Raises:
            HttpError: there is no response.
        """
        head = self._head(method, target, headers)
        end = b"\r\n" if body is None else b"content-length: %d\r\n\r\n" % len(body)
        connection = None if is_retry else self._take_idle()
        if connection is None:
            connection = await self._connect()
        try:
            await connection.send(head + end, body or b"", timeout_s)
            return Response(self, connection)
        except BaseException:
            connection.abort()
            raise

    def release(self, connection: ClientConnection) -> None:
        """Takes a connection back; `Response.close` calls this."""
        if self._is_closed or not connection.is_reusable:
            connection.abort()
            return
        connection.reset(IDLE_LIMIT_S)
        self._idle.append(connection)

    async def close(self) -> None:
        """Closes all connections, also those that carry a request."""
        self._is_closed = True
        self._all_lost = asyncio.Event()
        for connection in self._open:
            connection.abort()
        if self._open:
            await self._all_lost.wait()

    def _take_idle(self) -> ClientConnection | None:
        """Returns the connection that was used last."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed:
                return connection
        return None

    async def _connect(self) -> ClientConnection:
        self._connecting += 1
        try:
            connection = await connect(
                self._origin, self._proxy, self._on_lost, self._connect_timeout_s, self._addresses
            )
        finally:
            self._connecting -= 1
        self._open.add(connection)
        if self._is_closed:
            connection.abort()
        return connection

    def _on_lost(self, connection: ClientConnection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if self._all_lost is not None and not self._open:
            self._all_lost.set()

    def _head(self, method: str, target: str, headers: Mapping[str, str] | None) -> bytes:
        """Returns the request line and the headers, without `content-length` and the empty line."""
        if headers and not self._headers.keys().isdisjoint(headers):
            return self._request_line(method, target) + _header_lines({**self._headers, **headers})
        head = self._heads.get((method, target))
        if head is None:
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            head = self._request_line(method, target) + _header_lines(self._headers)
            self._heads[method, target] = head
        return head + _header_lines(headers) if headers else head

    def _request_line(self, method: str, target: str) -> bytes:
        target = quote(target.partition("#")[0], safe=_SAFE)
        return f"{method} {self._target_prefix}{target} HTTP/1.1\r\n".encode()


def _header_lines(headers: Mapping[str, str]) -> bytes:
    """
    Raises:
        LocalProtocolError: a name is not one, or a value contains line breaks.
    """
    for name, value in headers.items():
        if _FORBIDDEN.search(value) or not _NAME.fullmatch(name):
            raise LocalProtocolError(f"expected a header without line breaks, got one in {name!r}")
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()]).encode("utf-8", "surrogateescape")
