"""Requests to a running gateway, for commands that ask it about itself."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from dragoman.backends.http.client.errors import HttpError
from dragoman.backends.http.client.http_client import HttpClient
from dragoman.config.server import ServerConfig
from dragoman.core.errors import BackendUnavailableError, ConfigError

_TIMEOUT_S: Final = 5.0
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
        self, method: str, path: str, body: object = None, *, timeout_s: float = _TIMEOUT_S
    ) -> tuple[int, bytes]:
        """Returns the status and the body of a response.

        Args:
            method: such as POST.
            path: such as `/health`.
            body: what is sent as JSON; None: nothing.
            timeout_s: time for the whole response.

        Raises:
            BackendUnavailableError: the gateway does not respond.
        """
        headers = {"authorization": f"Bearer {self._api_key}"} if self._api_key else {}
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
