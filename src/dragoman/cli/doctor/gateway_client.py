"""Requests to a running gateway, for commands that ask it about itself."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from dragoman.backends.http.client.errors import HttpError
from dragoman.backends.http.client.http_client import HttpClient, Response
from dragoman.config.server import ServerConfig
from dragoman.core.errors import BackendUnavailableError, ConfigError, UpstreamError
from dragoman.wire.sse import Decoder, ServerSentEvent

_TIMEOUT_S: Final = 5.0
_OK: Final = 200
_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""A gateway that listens on all addresses is reached on this machine's own."""
_ROOT_LIMIT_BYTES: Final = 4096
_LIMIT_BYTES: Final = 64 * 1024 * 1024


class ForeignError(ConfigError):
    """The program that responds is not a gateway."""


class _Root(msgspec.Struct):
    name: str = ""
    version: str = ""


def gateway_url(config: ServerConfig) -> str:
    """Returns the URL of a gateway with these settings on this machine."""
    host = _ANY_ADDRESS.get(config.host, config.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{config.port}"


class GatewayClient:
    """A connection to a gateway."""

    def __init__(self, url: str, version: str, client: HttpClient, api_key: str) -> None:
        self.url, self.version = url, version
        self._client, self._api_key = client, api_key

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        timeout_s: float = _TIMEOUT_S,
        more: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Returns the status and the body of a response.

        Args:
            method: such as POST.
            path: such as `/health`.
            body: what is sent as JSON; None: nothing.
            timeout_s: time for the whole response.
            more: further headers, names in lower case.

        Raises:
            BackendUnavailableError: the gateway does not respond.
        """
        headers = {**self._authorization(), **(more or {})}
        data = None
        if body is not None:
            data, headers["content-type"] = msgspec.json.encode(body), "application/json"
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._client.send(method, path, data, headers, timeout_s=timeout_s)
                try:
                    return response.status, await response.read_body(_LIMIT_BYTES)
                finally:
                    response.close()
        except (HttpError, TimeoutError) as error:
            raise BackendUnavailableError(f"the gateway at {self.url} does not respond") from error

    async def events(self, path: str, idle_timeout_s: float) -> AsyncGenerator[ServerSentEvent, None]:
        """Yields server-sent events until the stream ends.

        Args:
            path: such as `/console/api/traffic/stream`.
            idle_timeout_s: time without any bytes, also of pings, after which the gateway does not respond.

        Raises:
            BackendUnavailableError: the gateway does not respond, does not serve the stream, or it broke.
        """
        try:
            response = await self._client.send("GET", path, None, self._authorization(), timeout_s=_TIMEOUT_S)
        except HttpError as error:
            raise BackendUnavailableError(f"the gateway at {self.url} does not respond") from error
        try:
            if response.status != _OK:
                raise BackendUnavailableError(f"the gateway at {self.url} refused {path}: status {response.status}")
            response.set_read_timeout(idle_timeout_s)
            async for event in _events(response):
                yield event
        except (HttpError, UpstreamError) as error:
            raise BackendUnavailableError(f"the connection to the gateway at {self.url} was lost") from error
        finally:
            response.close()

    def _authorization(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._api_key}"} if self._api_key else {}


async def _events(response: Response) -> AsyncGenerator[ServerSentEvent, None]:
    decoder = Decoder()
    while piece := await response.read():
        for event in decoder.feed(piece):
            yield event


@asynccontextmanager
async def open_gateway(url: str, api_key: str) -> AsyncGenerator[GatewayClient, None]:
    """Connects to the gateway at a URL.

    Args:
        url: without a path.
        api_key: one of its keys; "": none. It is sent to gateways only.

    Raises:
        BackendUnavailableError: nothing listens there.
        ForeignError: another program does.
    """
    client = HttpClient(url)
    try:
        root = await _root(client, url)
        if root is None:
            raise ForeignError(f"what answers at {url} is not a gateway; server.port chooses another port")
        yield GatewayClient(url, root.version, client, api_key)
    finally:
        await client.close()


async def _root(client: HttpClient, url: str) -> _Root | None:
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            response = await client.send("GET", "/", headers={}, timeout_s=_TIMEOUT_S)
            try:
                body = await response.read_body(_ROOT_LIMIT_BYTES)
            finally:
                response.close()
    except (HttpError, TimeoutError) as error:
        raise BackendUnavailableError(f"no gateway answers at {url}") from error
    try:
        root = msgspec.json.decode(body, type=_Root)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return root if root.name == "dragoman" else None
