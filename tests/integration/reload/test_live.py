"""Replaced configurations in one process: what they share, when they are closed, and that nothing of them stays."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import signature
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman import compose
from dragoman.backends.http.config import HttpConfig
from dragoman.compose.reload import rebuild_gateway
from dragoman.config import Config
from dragoman.config.server import CaptureConfig
from dragoman.core.errors import ConfigError
from dragoman.gateway.gateway import Gateway
from dragoman.mcp_client.config import McpServerConfig
from dragoman.server.app import App
from dragoman.server.reload.live import LiveConfiguration


def config(**upstreams: HttpConfig) -> Config:
    return Config(upstreams=upstreams)


def server(port: int = 9, **more: Any) -> HttpConfig:
    return HttpConfig(f"http://127.0.0.1:{port}/v1", models=("m",), **more)


@asynccontextmanager
async def live(settings: Config, max_drain_s: float = 60.0) -> AsyncIterator[tuple[App, LiveConfiguration]]:
    gateway = compose.build_gateway(settings, embedded=False)
    app = App(gateway, settings.server)
    made = LiveConfiguration(app, settings, rebuild_gateway, max_drain_s)
    await gateway.start()
    del gateway
    try:
        yield app, made
    finally:
        await made.close()


async def test_equal_parts_are_reused() -> None:
    before = config(a=server(), b=server(10), c=server(11))
    async with live(before) as (app, reload):
        first = app.snapshot.gateway
        await reload.apply(
            msgspec.structs.replace(config(c=server(11), a=server(), b=server(10, max_queue=3)), keys={})
        )
        second = app.snapshot.gateway
        (a, b, c), (c2, a2, b2) = first.backends, second.backends
        assert (a2, c2) == (a, c)
        assert b2 is not b
        assert second.response_store is first.response_store
        assert second.seal is first.seal
        assert second.vendor_tools.shares_executors(first.vendor_tools)
        assert getattr(b2, "reply_store") is getattr(b, "reply_store")  # noqa: B009 only upstream servers have it
        changed = msgspec.structs.replace(before, mcp={"files": McpServerConfig(command=("true",))})
        await reload.apply(changed)
        assert not app.snapshot.gateway.vendor_tools.shares_executors(second.vendor_tools)


def test_successor_has_every_part_of_a_gateway() -> None:
    parts = set(signature(Gateway).parameters)
    assert parts == {*signature(Gateway.successor).parameters} - {"self"} | {"response_store", "seal"}


async def test_nothing_of_replaced_configurations_remains(tmp_path: Path) -> None:
    """Reference counts suffice: a full garbage collection is rare in a gateway."""
    capture = CaptureConfig(dir=str(tmp_path))
    gc.collect()
    gc.disable()
    try:
        async with live(config(a=server(), same=server(10))) as (app, reload):
            replaced: list[weakref.ref[Any]] = []
            for number in range(50):
                snapshot = app.snapshot
                replaced += map(weakref.ref, (snapshot, snapshot.gateway, snapshot.gateway.backends[0]))
                snapshot = None
                changed = config(a=server(max_queue=number), same=server(10))
                await reload.apply(msgspec.structs.replace(changed, capture=capture))
                await asyncio.sleep(0)
            deadline = asyncio.get_running_loop().time() + 5
            while remaining := [each() for each in replaced if each() is not None]:
                assert asyncio.get_running_loop().time() < deadline, remaining
                del remaining
                await asyncio.sleep(0.01)
    finally:
        gc.enable()


async def test_request_uses_configuration_from_its_beginning_to_its_end() -> None:
    """Otherwise, a replaced configuration would be closed too early, or after `max_drain_s` only."""
    async with live(config(a=server())) as (app, reload):
        first = app.snapshot
        scope = {"type": "http", "method": "GET", "path": "/health", "headers": [(b"host", b"localhost")]}
        used: list[tuple[int, int]] = []

        async def send(message: Any) -> None:
            if not used:
                await reload.apply(config(b=server()))
            used.append((first.exchanges, app.snapshot.exchanges))

        await app(scope, receive, send)
        assert set(used) == {(1, 0)}
        assert first.exchanges == 0
        await closing_of(first.gateway.backends[0])

        async def send_nothing(message: Any) -> None:
            raise ConnectionResetError

        with pytest.raises(ConnectionResetError):
            await app(scope, receive, send_nothing)
        assert app.snapshot.exchanges == 0


async def receive() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def test_replaced_backend_is_closed_after_its_last_request() -> None:
    async with live(config(a=server(), same=server(10)), max_drain_s=600) as (app, reload):
        first = app.snapshot
        first.begin()
        first.begin()
        await reload.apply(config(b=server(), same=server(10)))
        closed = [is_closed(each) for each in first.gateway.backends]
        assert closed == [False, False]
        first.end()
        assert first.exchanges == 1
        assert not is_closed(first.gateway.backends[0])
        first.end()
        assert first.exchanges == 0
        await closing_of(first.gateway.backends[0])
        assert not is_closed(first.gateway.backends[1])


async def closing_of(backend: Any) -> None:
    """Waits until the backend is closed, well below the time after which a replaced configuration is closed anyway."""
    async with asyncio.timeout(10):
        while not is_closed(backend):
            await asyncio.sleep(0)


async def test_requests_of_replaced_configuration_have_a_limit() -> None:
    async with live(config(a=server()), max_drain_s=0.01) as (app, reload):
        first = app.snapshot
        first.begin()
        await reload.apply(config(b=server()))
        await closing_of(first.gateway.backends[0])
        first.end()


async def test_rejected_configuration_is_closed() -> None:
    async with live(config(a=server())) as (app, reload):
        before = app.snapshot
        wrong = msgspec.structs.replace(config(a=server(), b=server(10)), model_aliases={"x": "nothing"})
        with pytest.raises(ConfigError, match="no backend serves 'nothing'"):
            await reload.apply(wrong)
        assert app.snapshot is before
        assert not is_closed(before.gateway.backends[0])
        await reload.prepare(config(c=server(11)))
        await reload.abort()
        reload.commit()
        assert app.snapshot is before


def is_closed(backend: Any) -> bool:
    return bool(backend._connection._client._is_closed)
