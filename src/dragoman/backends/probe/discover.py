"""Discovers model servers on this machine, at the default ports of the known providers."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Final, NamedTuple

from dragoman.backends.http.config import HttpConfig
from dragoman.backends.probe.connect import open_connection
from dragoman.backends.probe.server_info import ServerInfo
from dragoman.catalog import servers
from dragoman.catalog.servers import Provider
from dragoman.core.errors import DragomanError

HOST: Final = "127.0.0.1"
CONNECT_TIMEOUT_S: Final = 0.5
"""Timeout for opening a connection on loopback."""
IDENTIFY_TIMEOUT_S: Final = 5.0
"""Timeout for all requests to one server."""


class DiscoveredServer(NamedTuple):
    """A server that responds."""

    url: str
    """Base URL, `http://127.0.0.1:1234/v1`."""
    provider: Provider | None
    """None: it lists models, but the provider is not known."""
    models: tuple[str, ...]
    """The models that it lists; empty if nothing is loaded, or if it requires a key."""


def default_ports() -> list[int]:
    """Returns the default ports, each once, in the order of the provider table."""
    return list(dict.fromkeys(provider.port for provider in servers.providers() if provider.port))


async def discover_servers(environ: Mapping[str, str], among: Iterable[int] | None = None) -> list[DiscoveredServer]:
    """Returns the servers at these ports of loopback (default: all default ports); no request is sent to a model.

    Ports where another program listens, or that do not respond in time, are ignored.
    """
    servers = await asyncio.gather(
        *(_identify(port, environ) for port in (default_ports() if among is None else among))
    )
    return [each for each in servers if each is not None]


async def _identify(port: int, environ: Mapping[str, str]) -> DiscoveredServer | None:
    if not await _is_open(port):
        return None
    config = HttpConfig(url=f"http://{HOST}:{port}/v1", connect_timeout_s=CONNECT_TIMEOUT_S)
    try:
        async with asyncio.timeout(IDENTIFY_TIMEOUT_S), open_connection(config, environ) as connection:
            server_info = ServerInfo(connection, config.url)
            provider, models = await server_info.find_provider(), await server_info.models()
    except (DragomanError, TimeoutError):
        return None
    return DiscoveredServer(config.url, provider, models) if provider or models else None


async def _is_open(port: int) -> bool:
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(HOST, port)
    except (OSError, TimeoutError):
        return False
    with closing(writer):
        return True
