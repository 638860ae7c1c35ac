"""The way to a server behind: a pool of connections, and what goes wrong on them, in our words.

aiohttp, because its parser in C keeps a streamed chunk cheap (docs/performance.md). Redirects are not followed, and no
proxy of the environment is used.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import aiohttp

from dragoman.backends.http_config import HttpConfig
from dragoman.core.errors import BackendError, SilenceError
from dragoman.core.upstream_errors import answered_error

HEAD_BYTES: Final = 64 * 1024
"""As much of a body as one looks at where it is an error."""
SHORT_S: Final = 5.0
"""For questions beside the answers, such as the list of models, which must not hold anything up."""


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
        self._name, self._config, self._key = name, config, key
        self._headers = {"content-type": "application/json", **headers}
        self._versioned = versioned
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Open the pool."""
        limits = aiohttp.ClientTimeout(
            total=None, sock_connect=self._config.connect_timeout_s, sock_read=self._config.silence_s
        )
        self._session = aiohttp.ClientSession(
            timeout=limits,
            headers=self._headers,
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),  # what a server sets for one client is not for the others
        )

    async def close(self) -> None:
        """Close it."""
        if self._session is not None:
            await self._session.close()

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """The bytes of the answer as they come.

        Raises: UpstreamError: the server's own error. BackendError: it cannot be reached, or broke off.
            SilenceError.
        """
        try:
            async with await self._sent(self.url(path), body, headers) as response:
                if response.status >= 300:
                    retry_after = response.headers.get("retry-after", "")
                    raise answered_error(response.status, self._hidden(await _head(response)), retry_after)
                async for piece in response.content.iter_any():
                    yield piece
        except aiohttp.SocketTimeoutError:
            raise SilenceError(f"{self._name} said nothing for {self._config.silence_s:g} s") from None
        except aiohttp.ServerTimeoutError:
            raise BackendError(f"{self._name} could not be reached at {self.where} in time") from None
        except aiohttp.ClientConnectorError as e:
            raise BackendError(f"{self._name} cannot be reached at {self.where}: {e.os_error.strerror}") from None
        except aiohttp.ClientError as e:
            raise BackendError(f"{self._name} broke the connection off: {type(e).__name__}") from None

    async def asked(self, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Said:
        """A short answer: to GET, or to POST where there is a body; whatever its status.

        Raises: BackendError: there is none in time.
        """
        session, method = self._open(), "GET" if body is None else "POST"
        try:
            async with (
                asyncio.timeout(SHORT_S),
                session.request(method, self.url(path), data=body, headers=headers, allow_redirects=False) as response,
            ):
                got = self._hidden(await _head(response)) if response.status >= 300 else await response.read()
                fields = {name.lower(): value for name, value in response.headers.items()}
                return Said(response.status, fields, got)
        except (aiohttp.ClientError, TimeoutError) as e:
            raise BackendError(str(e) or type(e).__name__) from None

    def url(self, path: str) -> str:
        """Where this path is: a base URL of OpenAI's APIs has their version in it, unless it is a bare host."""
        base = self._config.url.rstrip("/")
        if base.endswith("/v1"):
            return base.removesuffix("/v1") + path
        own = self._versioned and urlsplit(base).path.strip("/")
        return base + (path.removeprefix("/v1") if own else path)

    def _open(self) -> aiohttp.ClientSession:
        assert self._session is not None, "not started"
        return self._session

    def _hidden(self, words: bytes) -> bytes:
        """Without the key, which some servers repeat."""
        return words.replace(self._key.encode(), "…".encode()) if self._key else words

    async def _sent(self, url: str, body: bytes, headers: Mapping[str, str]) -> aiohttp.ClientResponse:
        """The answer's beginning; asked again where a connection that was kept open had just been closed."""
        session = self._open()
        try:
            return await session.post(url, data=body, headers=headers, allow_redirects=False)
        except aiohttp.ServerDisconnectedError:
            return await session.post(url, data=body, headers=headers, allow_redirects=False)


async def _head(response: aiohttp.ClientResponse) -> bytes:
    """As much of a body as one looks at."""
    head = b""
    async for piece in response.content.iter_any():
        head += piece
        if len(head) >= HEAD_BYTES:
            break
    return head[:HEAD_BYTES]
