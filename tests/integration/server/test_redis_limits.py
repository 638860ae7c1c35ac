"""Limits of keys that several gateways count in one Redis server.

client ─HTTP→ two gateways ─→ Debian's redis-server
"""

import asyncio
import shutil
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from dragoman.compose.limits import usage_limits
from dragoman.config import Config
from dragoman.config.keys import KeyConfig
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta
from dragoman.core.messages import Request
from dragoman.gateway.gateway import Gateway
from dragoman.server.keys.ring import KeyRing
from dragoman.usage_limits.config import LimitsConfig
from support.scripted_backend import Scripted, eventually, plain, serving
from support.vendor_tools import body

PROGRAM = shutil.which("redis-server")
pytestmark = [pytest.mark.asyncio, pytest.mark.skipif(PROGRAM is None, reason="redis-server is not installed")]
PATH = "/v1/chat/completions"
SECRET = "the-secret-of-alice"


class Redis:
    """A Redis server that a test can stop."""

    def __init__(self, port: int) -> None:
        self.url = f"redis://127.0.0.1:{port}/0"
        self._port = port
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        arguments = ("--port", str(self._port), "--save", "", "--bind", "127.0.0.1")
        self._process = await asyncio.create_subprocess_exec(
            str(PROGRAM), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        assert self._process.stdout is not None
        while b"Ready to accept connections" not in (line := await self._process.stdout.readline()):
            assert line, "redis-server ended"

    async def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            await self._process.communicate()
            self._process = None


@pytest.fixture
async def redis() -> AsyncIterator[Redis]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    server = Redis(port)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


class Held:
    """A model whose responses wait until the test lets them go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.running = 0

    async def __call__(self, backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        self.running += 1
        yield Start("", "", 0)
        yield TextDelta("word")
        await self.go.wait()
        self.running -= 1
        yield Finish("stop")


@asynccontextmanager
async def gateways(path: Path, redis: Redis, script: object, key: KeyConfig) -> AsyncIterator[list[str]]:
    """The URLs of two gateways."""
    async with AsyncExitStack() as stack:
        urls = []
        for number in range(2):
            config = Config(limits=LimitsConfig(url=redis.url, path=str(path / f"{number}.sqlite")))
            keys, limits = KeyRing({"alice": key}), usage_limits(config, None)
            gateway = Gateway([Scripted(script)])  # type: ignore[arg-type]
            _, url = await stack.enter_async_context(serving(gateway, keys=keys, limits=limits))
            urls.append(url)
        yield urls


async def ask(http: httpx2.AsyncClient, url: str) -> int:
    headers = {"authorization": f"Bearer {SECRET}"}
    return (await http.post(url + PATH, json=body("openai_chat", False, max_tokens=5), headers=headers)).status_code


async def test_two_gateways_share_limits_of_a_minute(tmp_path: Path, redis: Redis) -> None:
    key = KeyConfig(secret=SECRET, requests_per_minute=5, tokens_per_minute=100_000)
    async with gateways(tmp_path, redis, plain, key) as urls, httpx2.AsyncClient() as http:
        statuses = await asyncio.gather(*(ask(http, url) for url in urls * 5))
    assert sorted(statuses) == [200] * 5 + [429] * 5


async def test_two_gateways_share_concurrency(tmp_path: Path, redis: Redis) -> None:
    model = Held()
    key = KeyConfig(secret=SECRET, max_concurrency=2)
    async with gateways(tmp_path, redis, model, key) as urls, httpx2.AsyncClient(timeout=60) as http:
        running = [asyncio.create_task(ask(http, url)) for url in urls]
        await eventually(lambda: model.running == 2)
        assert [await ask(http, url) for url in urls] == [429, 429]
        model.go.set()
        assert [await task for task in running] == [200, 200]
        assert [await ask(http, url) for url in urls] == [200, 200]


async def test_gateway_counts_by_itself_while_redis_is_down(
    tmp_path: Path, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    key = KeyConfig(secret=SECRET, requests_per_minute=2, max_concurrency=9)
    async with gateways(tmp_path, redis, plain, key) as (url, _), httpx2.AsyncClient(timeout=60) as http:
        assert await ask(http, url) == 200
        await redis.stop()
        assert [await ask(http, url) for _ in range(3)] == [200, 200, 429]
    assert "each process counts by itself" in caplog.text
