"""Servers of models that run on this machine, at the ports on which their kinds listen unless told otherwise."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Final, NamedTuple

from dragoman.backends.http.config import HttpConfig
from dragoman.backends.probe.connect import connected
from dragoman.backends.probe.server_info import Telling
from dragoman.catalog import servers
from dragoman.catalog.servers import ServerKind
from dragoman.core.errors import DragomanError

HOST: Final = "127.0.0.1"
OPEN_S: Final = 0.5
"""Time to open a connection on loopback."""
TELL_S: Final = 5.0
"""Time for all that a server is asked."""


class Nearby(NamedTuple):
    """One that answers."""

    url: str
    """As clients of its API are told, `http://127.0.0.1:1234/v1`."""
    kind: ServerKind | None
    """None: it lists models, and gives no sign of what it is."""
    models: tuple[str, ...]
    """Those that it lists; none where nothing is loaded, or it wants a key."""


def ports() -> list[int]:
    """Where such servers listen, each once, in the order of the table of kinds."""
    return list(dict.fromkeys(kind.port for kind in servers.server_kinds() if kind.port))


async def nearby(environ: Mapping[str, str], among: Iterable[int] | None = None) -> list[Nearby]:
    """Those that answer at these ports of loopback (all of `ports()`); each is asked what it is, and no model of it.

    What listens there and is no such server is passed over; so is one that does not answer in time.
    """
    found = await asyncio.gather(*(_at(port, environ) for port in (ports() if among is None else among)))
    return [each for each in found if each is not None]


async def _at(port: int, environ: Mapping[str, str]) -> Nearby | None:
    if not await _open(port):
        return None
    config = HttpConfig(url=f"http://{HOST}:{port}/v1", connect_timeout_s=OPEN_S)
    try:
        async with asyncio.timeout(TELL_S), connected(config, environ) as connection:
            telling = Telling(connection, config.url)
            kind, models = await telling.kind(), await telling.models()
    except (DragomanError, TimeoutError):
        return None
    return Nearby(config.url, kind, models) if kind or models else None


async def _open(port: int) -> bool:
    try:
        async with asyncio.timeout(OPEN_S):
            _, writer = await asyncio.open_connection(HOST, port)
    except (OSError, TimeoutError):
        return False
    with closing(writer):
        return True
