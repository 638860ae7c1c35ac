"""Which servers run on this machine: whoever answers on the ports that known kinds listen on unless told otherwise."""

import asyncio
from collections.abc import Iterable

from msgspec import Struct

from dragoman.backends.http_config import HttpConfig
from dragoman.backends.probe.reach import connected
from dragoman.backends.probe.telling import MODELS, Telling
from dragoman.profiles import servers

_CONNECT_S = 1.0


class Near(Struct, frozen=True):
    """A server on this machine."""

    url: str
    kind: str
    """A row of profiles/servers.toml; empty: none fits."""
    title: str
    models: tuple[str, ...]


def usual_ports() -> tuple[int, ...]:
    """Those of all kinds."""
    return tuple(sorted({kind.port for kind in servers.kinds() if kind.port}))


async def around(ports: Iterable[int]) -> list[Near]:
    """The servers on these ports of the loopback that list models, or are of a known kind; only GETs are sent."""
    found = await asyncio.gather(*map(_at, ports))
    return [near for near in found if near is not None]


async def _at(port: int) -> Near | None:
    config = HttpConfig(url=f"http://127.0.0.1:{port}/v1", connect_timeout_s=_CONNECT_S)
    async with connected(config, {}) as connection:
        telling = Telling(connection, config.url)
        if await telling.said(MODELS) is None:
            return None
        kind, models = await telling.kind(), await telling.models()
        if kind is None and not models:
            return None
        return Near(config.url, kind.name if kind else "", kind.title if kind else "", models)
