"""Gateways and workers that are restarted in turn under load: no request is refused, and no stream breaks."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from dragoman.core.events import AnyEvent, Finish, Start, TextDelta
from dragoman.core.messages import Request
from support import nginx
from support.gateway import CHAT, DEADLINE_S, Gateway, running, until
from support.http_client import http_client
from support.ports import free_port
from support.scripted_backend import Scripted, in_thread
from support.workers import processes_of

CLIENTS = 8
DELTAS = 8
BODY = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
SETTINGS = {"embedded.enabled": "false", "server.drain_delay_s": 0.5}


async def paced(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    for _ in range(DELTAS):
        await asyncio.sleep(0.02)
        yield TextDelta("word ")
    yield Finish("stop")


@pytest.fixture
def upstream() -> Iterator[str]:
    with in_thread(paced) as url:
        yield url


class Load:
    """Clients that send streaming requests one after the other, over kept connections or new ones."""

    def __init__(self, url: str, *, keep: bool) -> None:
        self._url, self._keep = url, keep
        self.results: Counter[str] = Counter()

    async def _client(self, stop: asyncio.Event) -> None:
        limits = httpx2.Limits(max_keepalive_connections=1 if self._keep else 0)
        async with http_client(self._url, limits=limits) as client:
            while not stop.is_set():
                self.results[await self._request(client)] += 1

    async def _request(self, client: httpx2.AsyncClient) -> str:
        try:
            response = await client.post(CHAT, json=BODY)
        except httpx2.HTTPError as error:
            return repr(error)
        whole = response.text.count("word ") == DELTAS and response.text.endswith("data: [DONE]\n\n")
        return "whole" if response.status_code == 200 and whole else f"{response.status_code} {response.text[-200:]}"

    async def __aenter__(self) -> "Load":
        self._stop = asyncio.Event()
        self._tasks = [asyncio.create_task(self._client(self._stop)) for _ in range(CLIENTS)]
        await self.more()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def more(self) -> None:
        """Waits until each client had time for another request."""
        seen = self.results.total()
        async with asyncio.timeout(DEADLINE_S):
            while self.results.total() < seen + 2 * CLIENTS:
                await asyncio.sleep(0.01)


async def test_gateways_restart_in_turn_behind_nginx(upstream: str, tmp_path: Path) -> None:
    ports = [free_port() for _ in range(3)]
    with ExitStack() as opened:
        folder = tmp_path / "nginx"
        folder.mkdir()

        def start(port: int) -> Gateway:
            args = ("--upstream", f"{upstream}/v1", "--port", str(port))
            gateway = Gateway(tmp_path, *args, settings={**SETTINGS, "server.workers": 1})
            opened.callback(gateway.stop)
            return gateway.ready()

        gateways = [await asyncio.to_thread(start, port) for port in ports[1:]]
        url = opened.enter_context(nginx.running(folder, ports[0], ports[1:]))
        async with Load(url, keep=True) as load:
            for gateway, port in zip(gateways, ports[1:], strict=True):
                assert await asyncio.to_thread(gateway.stop) == 0
                await load.more()
                await asyncio.to_thread(start, port)
                await load.more()
    assert load.results.keys() == {"whole"}, (load.results, (folder / "error.log").read_text())


@pytest.mark.every
async def test_workers_restart_in_turn(upstream: str, tmp_path: Path) -> None:
    settings = {**SETTINGS, "server.workers": 2}
    with running(tmp_path, "--upstream", f"{upstream}/v1", settings=settings) as gateway:
        async with Load(gateway.url, keep=False) as load:
            for worker in processes_of(gateway, "gateway_worker"):
                os.kill(worker, signal.SIGTERM)
                await asyncio.to_thread(gateway.line, f"(process {worker}) ended")
                await asyncio.to_thread(until, lambda: len(processes_of(gateway, "gateway_worker")) == 2)
                await load.more()
    assert load.results.keys() == {"whole"}, load.results
