"""A gateway with its console, in this event loop, and clients as its page and other pages are."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
import msgspec

from dragoman.backends.http.config import HttpConfig
from dragoman.compose import vendor_tools
from dragoman.config import Config
from dragoman.config.console import ConsoleConfig
from dragoman.config.server import CaptureConfig, ServerConfig
from dragoman.console.install import console_installer
from dragoman.gateway.gateway import Gateway
from dragoman.mcp_client.config import McpServerConfig
from dragoman.records.config import RecordsConfig
from dragoman.server.app import App
from dragoman.server.keys.ring import KeyRing
from dragoman.server.reload.snapshot import Snapshot
from dragoman.usage_limits.admission import UsageLimits
from support.http_client import http_client
from support.scripted_backend import AS_PLAYED, Script, Scripted, serving

API: Final = "/console/api"
CHANGE: Final = {"x-dragoman-console": "1"}
"""The header of requests that change something."""


class ServedConsole:
    """The gateway, and a client of it without cookies of its own."""

    def __init__(self, url: str, client: httpx2.AsyncClient, app: App) -> None:
        self.url, self.client, self.app = url, client, app

    def replace_keys(self, keys: KeyRing) -> None:
        """Puts other API keys in force, as a reload of the settings does."""
        snapshot = self.app.snapshot
        self.app.replace(Snapshot(snapshot.gateway, snapshot.config, keys=keys))

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        """A request of the page for this path of its API."""
        return await self.client.get(f"{API}{path}", headers=headers)

    async def change(self, method: str, path: str, body: object, **headers: str) -> httpx2.Response:
        """A request of the page that changes something."""
        return await self.client.request(method, f"{API}{path}", json=body, headers={**CHANGE, **headers})

    async def capture(self, is_on: bool = True) -> None:
        """Switches the captures in memory."""
        assert (await self.change("PUT", "/capture", {"on": is_on})).status_code == 200

    async def events(self, path: str) -> AsyncIterator[tuple[str, Any]]:
        """Names and values of the events of a stream."""
        async with self.client.stream("GET", f"{API}{path}") as response:
            assert response.status_code == 200
            name = ""
            async for line in response.aiter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    yield name, json.loads(line.removeprefix("data: "))


@asynccontextmanager
async def served_console(
    script: Script | Gateway,
    names: Sequence[str] = (),
    keys: KeyRing | None = None,
    capture: CaptureConfig | None = None,
    records: RecordsConfig | None = None,
    upstreams: Mapping[str, HttpConfig] | None = None,
    limits: UsageLimits | None = None,
    mcp: Mapping[str, McpServerConfig] | None = None,
    **settings: Any,
) -> AsyncIterator[ServedConsole]:
    """Serves a gateway with a console; without records, unless their settings are given."""
    config = Config(
        server=ServerConfig(**settings),
        console=ConsoleConfig(enabled=True),
        records=records or RecordsConfig(enabled=False),
        capture=capture or CaptureConfig(),
        upstreams=dict(upstreams or {}),
        mcp=dict(mcp or {}),
    )
    gateway = script
    if not isinstance(gateway, Gateway):
        gateway = Gateway([Scripted(gateway, names)], policy=AS_PLAYED, vendor_tools=vendor_tools(config))
    install, apps = console_installer(config, limits=limits), list[App]()

    def set_up(app: App) -> None:
        install(app)
        apps.append(app)

    async with (
        serving(gateway, keys=keys, limits=limits, capture=config.capture, set_up=set_up, **settings) as (_, url),
        http_client(url) as client,
    ):
        yield ServedConsole(url, client, *apps)


def as_json(value: object) -> Any:
    """The value as a client reads it."""
    return json.loads(msgspec.json.encode(value))
