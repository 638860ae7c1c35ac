"""The way to a server behind: a pool of connections, and what goes wrong on them, in our words.

    a place (`places`) → it may be asked (`breaker`) → connected within connect_timeout_s → the first byte within
    first_byte_s → each further one within silence_s; where no answer has begun, it may be asked again (`again`)

Any byte is a sign of life, a comment of the server's too; a connection that broke is told at once. What waits in any of
these can leave: closing the generator closes the connection.

aiohttp, because its parser in C keeps a streamed chunk cheap (docs/performance.md). Redirects are not followed; a
proxy is used as `proxies` has it.
"""

import asyncio
import io
import logging
import os
import random
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import aiohttp

from dragoman.backends.concurrency_limit import Places
from dragoman.backends.http import retry
from dragoman.backends.http.circuit_breaker import Breaker
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.http.hide_key import Secrets
from dragoman.backends.http.proxy import proxy_for
from dragoman.backends.http.retry import FailedError
from dragoman.core.errors import BackendError, RemoteError, SilenceError, logged
from dragoman.wire.upstream_errors import answered_error

log = logging.getLogger("dragoman.backends.http.connection")

HEAD_BYTES: Final = 64 * 1024
"""As much of a body as one looks at where it is an error."""
MOST_BYTES: Final = 16 * 1024 * 1024
"""Of a short answer: far more than the largest list of models."""
SHORT_S: Final = 5.0
"""For questions beside the answers, such as the list of models, which must not hold anything up."""

_REST_S: Final = 0.25
"""For the end of HTTP behind that of a stream; a new connection over the network takes about as long."""
_AT_ONCE_BYTES: Final = 2**20
"""A longer body is sent in pieces, or it would hold up all other answers."""


class Said(NamedTuple):
    """A short answer, whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection:
    """To one server."""

    def __init__(self, name: str, config: HttpConfig, headers: Mapping[str, str], *, versioned: bool, key: str) -> None:
        """`headers` go with each request; `key` is not shown to anybody."""
        at = urlsplit(config.url)
        self.where = f"{at.scheme}://{at.netloc.rpartition('@')[2]}"
        """For people: neither a password in the URL nor what stands behind the host."""
        self._name, self._config, self.key = name, config, key
        self.secrets = Secrets(key, config.url)
        """What clients must not read, though some servers repeat it."""
        self._headers = {"content-type": "application/json", **headers}
        self._versioned = versioned
        self._proxy = proxy_for(config.url, config.proxy, os.environ, f"servers.{name}.proxy")
        self._session: aiohttp.ClientSession | None = None
        self._places = Places(name, config.parallel, config.queue)
        self._breaker = Breaker(name)

    async def start(self) -> None:
        """Open the pool."""
        config = self._config
        limits = aiohttp.ClientTimeout(total=None, connect=config.connect_timeout_s, sock_read=config.first_byte_s)
        self._session = aiohttp.ClientSession(
            timeout=limits,
            proxy=self._proxy,  # which would get headers of the session too, with the server's key
            connector=aiohttp.TCPConnector(limit=0, socket_factory=_socket),
            cookie_jar=aiohttp.DummyCookieJar(),  # what a server sets for one client is not for the others
        )

    async def close(self) -> None:
        """Close it."""
        if self._session is not None:
            await self._session.close()

    def state(self) -> Mapping[str, object]:
        """Facts for /health."""
        return {"active": self._places.active, "waiting": self._places.waiting, "breaker": self._breaker.state}

    async def post(
        self,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        is_trial: bool = False,
        began: Callable[[Mapping[str, str]], None] = lambda headers: None,
    ) -> AsyncGenerator[bytes, None]:
        """The bytes of the answer as they come. A trial, of what the server may not know, is asked once, and how it
        ends says nothing of how the server is. `began` gets the headers of an answer that is none of errors.

        Raises: UpstreamError: the server's own error. BackendError: it cannot be reached, broke off, or is left alone
            for a while. SilenceError. BusyError: too many wait already.
        """
        self._breaker.check()
        async with self._places.one():
            once = is_trial or self._breaker.state != "closed"  # a server that failed so often is tried, not begged
            with nullcontext(_nothing) if is_trial else self._breaker.watching() as heard:
                retries = 0 if once else self._config.retries
                async with await self._sent(self.url(path), body, headers, retries) as response:
                    began({name.lower(): value for name, value in response.headers.items()})
                    begun = False
                    try:
                        async for piece in response.content.iter_any():
                            if not begun:
                                begun = True
                                heard()
                                self._begins(response)
                            yield piece
                    except aiohttp.ClientError as e:
                        raise self._broken(e, begun=begun) from None

    async def asked(
        self,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        within_s: float = SHORT_S,
    ) -> Said:
        """A short answer: to GET, or to POST where there is a body; whatever its status.

        Raises: BackendError: there is none in time, or the server is left alone for a while; it still may be asked
            what there is to GET. Its cause is the OSError if there is no connection.
        """
        if body is not None:
            self._breaker.check()
        session, method = self._open(), "GET" if body is None else "POST"
        try:
            async with (
                asyncio.timeout(within_s),
                session.request(
                    method, self.url(path), data=body, headers=self._all(headers), allow_redirects=False
                ) as response,
            ):
                is_error = response.status >= 300
                got = await _head(response, HEAD_BYTES if is_error else MOST_BYTES)
                fields = {name.lower(): value for name, value in response.headers.items()}
                return Said(response.status, fields, self.secrets.hidden_data(got) if is_error else got)
        except aiohttp.ClientConnectorError as e:
            raise BackendError(_why(e.os_error)) from e.os_error
        except TimeoutError:
            raise BackendError(f"no answer within {within_s:g} s") from None
        except aiohttp.ClientError as e:
            raise BackendError(str(e) or type(e).__name__) from None

    def url(self, path: str) -> str:
        """Where this path is: a base URL of OpenAI's APIs has their version in it, unless it is a bare host."""
        base = self._config.url.rstrip("/")
        if base.endswith("/v1"):
            return base.removesuffix("/v1") + path
        own = self._versioned and urlsplit(base).path.strip("/")
        return base + (path.removeprefix("/v1") if own else path)

    def _all(self, headers: Mapping[str, str] | None) -> Mapping[str, str]:
        """Those of one request, and those that go with each."""
        return {**self._headers, **(headers or {})}

    def _open(self) -> aiohttp.ClientSession:
        assert self._session is not None, "not started"
        return self._session

    async def _sent(self, url: str, body: bytes, headers: Mapping[str, str], retries: int) -> aiohttp.ClientResponse:
        """The beginning of an answer, asked for again where that may help."""
        tried = 0
        while True:
            try:
                return await self._asked(url, body, headers)
            except FailedError as failed:
                wait_s = retry.wait_s(failed, tried, retries, random.random())
                if wait_s is None:
                    raise failed.error from None
                log.warning("%s is asked again in %.1f s: %s", self._name, wait_s, logged(failed.error))
            tried += 1
            await retry.pause(wait_s)

    async def _asked(self, url: str, body: bytes, headers: Mapping[str, str]) -> aiohttp.ClientResponse:
        """The same, asked for once."""
        config, session = self._config, self._open()
        try:
            # aiohttp's own limit does not count while the server takes nothing of a long body.
            async with asyncio.timeout(config.connect_timeout_s + config.first_byte_s):
                data = body if len(body) <= _AT_ONCE_BYTES else io.BytesIO(body)
                response = await session.post(url, data=data, headers=self._all(headers), allow_redirects=False)
                if response.status < 300:
                    return response
                async with response:
                    raise self._refused(response, await _head(response, HEAD_BYTES))
        except (aiohttp.ClientError, TimeoutError) as e:
            raise FailedError(self._broken(e, begun=False), dropped=_is_closed(e)) from None

    def _refused(self, response: aiohttp.ClientResponse, head: bytes) -> FailedError:
        fields = {name.lower(): value for name, value in response.headers.items()}
        wait_s = retry.retry_after_s(fields, datetime.now(UTC))
        head, setting = self.secrets.hidden_data(head), f"servers.{self._name}.url"
        error = self.secrets.clean(answered_error(response.status, head, wait_s, fields, setting))
        return FailedError(error, for_good=fields.get("x-should-retry") == "false")

    def _begins(self, response: aiohttp.ClientResponse) -> None:
        """The first byte is here: from now on the limit is that of silence."""
        if response.connection is not None and (protocol := response.connection.protocol) is not None:
            protocol.read_timeout = self._config.silence_s  # else the answer is here to its end
            protocol.start_timeout()

    def _broken(self, error: Exception, *, begun: bool) -> RemoteError:
        """What went wrong on the way, and which setting is about that."""
        config = self._config
        match error:
            case aiohttp.ConnectionTimeoutError():
                told = f"{self._name} could not be reached at {self.where} within {config.connect_timeout_s:g} s"
                return BackendError(f"{told} (setting connect_timeout_s)")
            case TimeoutError() if begun:
                return SilenceError(f"{self._name} fell silent for {config.silence_s:g} s (setting silence_s)")
            case TimeoutError():
                told = f"{self._name} said nothing for {config.first_byte_s:g} s after it was asked"
                return SilenceError(f"{told} (setting first_byte_s)")
            case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
                told = f"{self._name} cannot be reached at {self.where}"
                return BackendError(f"{told}: the proxy is not there, or refuses (setting proxy, HTTPS_PROXY)")
            case aiohttp.ClientConnectorError():
                return BackendError(f"{self._name} cannot be reached at {self.where}: {_why(error.os_error)}")
            case _ if not begun and _is_closed(error):
                return BackendError(f"{self._name} closed the connection before it answered")
            case aiohttp.ClientResponseError():
                return BackendError(f"{self._name} at {self.where} sent what is no HTTP")
            case _:
                return BackendError(f"{self._name} broke the connection off in its answer")


def _why(error: OSError) -> str:
    """Why there is no connection; the number alone says it, but for TLS and for names that are not found."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted, {error.verify_message}"
        case ssl.SSLError():
            return f"it does not speak TLS, {error.reason.lower().replace('_', ' ')}"
        case OSError(errno=int(number)) if number > 0:
            return os.strerror(number)
        case _:
            return error.strerror or type(error).__name__


async def rest(pieces: AsyncGenerator[bytes, None]) -> None:
    """Wait for the end of an answer whose last event has come, so that its connection can be used again."""
    with suppress(TimeoutError, RemoteError):
        async with asyncio.timeout(_REST_S):
            async for _ in pieces:
                pass


def _is_closed(error: Exception) -> bool:
    """The connection was closed by the other end, and not merely never made."""
    match error:
        case aiohttp.ClientConnectorError():
            return False
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError():
            return True
        case _:
            return False


def _nothing() -> None:
    """Of a trial the breaker hears nothing."""


def _socket(address: Any) -> socket.socket:
    """One whose other end is looked for, so that a machine that is gone is noticed before a long answer's limits."""
    made = socket.socket(*address[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _LOOKED_FOR.items():
        if option := getattr(socket, name, None):  # Linux has all of them
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


_LOOKED_FOR: Final = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""After so many seconds, each so many, so often in vain."""


async def _head(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    """As much of a body as one looks at."""
    head = bytearray()
    async for piece in response.content.iter_any():
        head += piece
        if len(head) >= most_bytes:
            break
    return bytes(head[:most_bytes])
