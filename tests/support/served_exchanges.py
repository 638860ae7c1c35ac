"""A console of a gateway with a scripted upstream server, and the views of its exchanges."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.gateway.gateway import Gateway
from support.console import ServedConsole, served_console
from support.fake_upstream import Play, Server, server


@contextlib.asynccontextmanager
async def console_of(play: Play, **settings: Any) -> AsyncIterator[tuple[ServedConsole, Server]]:
    """A console of a gateway with a scripted upstream, which captures in memory."""
    async with server(play) as far:
        config = HttpConfig(
            **{"url": f"{far.url}/v1", "models": ("m",), "max_retries": 0, "auto_probe": False, **settings}
        )
        async with served_console(Gateway([HttpBackend("far", config, {})])) as console:
            await console.capture()
            yield console, far


async def view_of(console: ServedConsole, id: str) -> dict[str, Any]:
    response = await console.get(f"/exchanges/{id}")
    assert response.status_code == 200, response.text
    return dict(response.json())


def text_of(view: dict[str, Any], lane: str, link: str = "") -> str:
    [found] = [each for each in view["lanes"] if each["name"] == lane]
    return "".join(
        s["text"] for b in found["blocks"] for s in b["segments"] if not link or link in (s["link"], b["link"])
    )
