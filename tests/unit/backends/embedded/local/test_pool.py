"""Which models the pool loads and unloads, with models that are ready when the test says so."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.local.pool import ModelPool
from dragoman.backends.embedded.local.pooled_model import LoadableModel
from dragoman.core.errors import BackendUnavailableError, QueueFullError, RequestError, UnsupportedError

pytestmark = pytest.mark.asyncio


class Scripted:
    """A model that is ready when `go` is set; by default at once."""

    def __init__(self, name: str, size: int = 1) -> None:
        self.name, self.size = name, size
        self.go = asyncio.Event()
        self.go.set()
        self.error: Exception | None = None
        self.loads = self.unloads = 0
        self.engine = SimpleNamespace(
            prefixes=None, is_ready=True, pid=None, active=0, waiting=0, restarts=0, hardware=None
        )

    async def start(self) -> None:
        self.loads += 1
        await self.go.wait()
        if self.error:
            raise self.error

    async def close(self) -> None:
        self.unloads += 1

    @property
    def loadable(self) -> LoadableModel:
        async def build() -> EmbeddedModel:
            return cast(EmbeddedModel, self)

        return LoadableModel(self.name, self.size, build)


@asynccontextmanager
async def pool_for(memory: int, keep_alive_s: float = -1, max_waiting: int = 9) -> AsyncIterator[ModelPool]:
    pool = ModelPool(lambda engines: memory, keep_alive_s, max_waiting, fitting=lambda available: ["small"])
    try:
        yield pool
    finally:
        await pool.close()


async def settle() -> None:
    """Lets all that can run now run."""
    for _ in range(20):
        await asyncio.sleep(0)


def hold(pool: ModelPool, model: Scripted, said: list[str] | None = None) -> tuple["asyncio.Task[None]", asyncio.Event]:
    """A request that lasts until the event is set."""
    ends = asyncio.Event()

    async def run() -> None:
        async with pool.use(model.loadable, said.append if said is not None else None):
            await ends.wait()

    return asyncio.create_task(run()), ends


async def use(pool: ModelPool, *models: Scripted) -> None:
    for model in models:
        async with pool.use(model.loadable, None):
            pass


def state(pool: ModelPool, name: str) -> Any:
    return pool.states().get(name, {}).get("state")


async def test_least_recently_used_idle_model_goes_first() -> None:
    a, b, c = map(Scripted, "abc")
    async with pool_for(2) as pool:
        await use(pool, a, b, a, c)
        await settle()
        assert (a.unloads, b.unloads) == (0, 1)
        assert set(pool.states()) == {"a", "c"}


async def test_busy_model_goes_after_its_last_request_and_gets_no_new_ones() -> None:
    a, b = map(Scripted, "ab")
    async with pool_for(1) as pool:
        first, end_first = hold(pool, a)
        await settle()
        second, end_second = hold(pool, b, said := [])
        third, end_third = hold(pool, a)
        await settle()
        assert (state(pool, "a"), state(pool, "b"), said) == ("ready", "waiting", ["b waits for the memory of a"])
        assert pool.states()["a"]["waiting"] == 1
        end_first.set()
        await settle()
        assert (a.unloads, b.loads, a.loads) == (1, 1, 1)
        end_second.set()
        await settle()
        assert (b.unloads, a.loads) == (1, 2)
        end_third.set()
        await asyncio.gather(first, second, third)
        assert said == ["b waits for the memory of a", "loading b", ""]


async def test_waiting_models_take_turns() -> None:
    """However many requests of the loaded model arrive, the other one is next."""
    a, b = map(Scripted, "ab")
    order = []
    async with pool_for(1) as pool:
        await pool.load(a.loadable)

        async def request(model: Scripted) -> None:
            async with pool.use(model.loadable, None):
                order.append(model.name)
                await asyncio.sleep(0)

        await asyncio.gather(*(request(model) for model in (a, a, b, a, a, b)))
    assert order == ["a", "a", "b", "b", "a", "a"]


async def test_cancelled_requests_stop_loading() -> None:
    a, b = map(Scripted, "ab")
    a.go.clear()
    async with pool_for(1) as pool:
        loading, _ = hold(pool, a)
        queued, _ = hold(pool, b)
        await settle()
        queued.cancel()
        await settle()
        assert set(pool.states()) == {"a"}
        loading.cancel()
        await settle()
        assert pool.states() == {}
        assert a.unloads == 1
        await use(pool, b)


async def test_request_that_is_cancelled_when_granted_releases_model() -> None:
    a, b = map(Scripted, "ab")
    a.go.clear()
    async with pool_for(1) as pool:
        task, _ = hold(pool, a)
        await settle()
        a.go.set()
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        await asyncio.wait_for(use(pool, b), 5)


async def test_failed_load_fails_all_its_requests_and_only_them() -> None:
    a, b = map(Scripted, "ab")
    a.go.clear()
    a.error = BackendUnavailableError("damaged")
    async with pool_for(2) as pool:
        tasks = [hold(pool, a)[0] for _ in range(3)]
        await use(pool, b)
        a.go.set()
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        assert [str(error) for error in errors] == ["damaged"] * 3
        assert set(pool.states()) == {"b"}
        a.error = ValueError("a bug")
        with pytest.raises(BackendUnavailableError, match="could not be loaded: a bug"):
            await use(pool, a)
        a.error = None
        await use(pool, a)


async def test_too_many_waiting_requests_are_rejected() -> None:
    a = Scripted("a")
    a.go.clear()
    async with pool_for(1, max_waiting=2) as pool:
        tasks = [hold(pool, a)[0] for _ in range(2)]
        await settle()
        with pytest.raises(QueueFullError, match="2 requests wait for model 'a' to be loaded"):
            await use(pool, a)
        for task in tasks:
            task.cancel()


async def test_too_large_model_is_rejected_at_once() -> None:
    a, b, pinned = Scripted("a", 3), Scripted("b", 2), Scripted("pinned", 1)
    async with pool_for(2) as pool:
        with pytest.raises(UnsupportedError, match=r"'a' needs about 0 MB .* these fit: small"):
            await use(pool, a)
        pool.pin(["pinned"])
        await pool.load(pinned.loadable)
        with pytest.raises(UnsupportedError, match="of which pinned models use"):
            await use(pool, b)
        with pytest.raises(RequestError, match="never unloaded"):
            await pool.unload("pinned")


async def test_model_that_is_never_idle_stays_until_memory_is_needed() -> None:
    default, other = map(Scripted, ("default", "other"))
    async with pool_for(1, keep_alive_s=0) as pool:
        await pool.load_default(default.loadable)
        await settle()
        assert state(pool, "default") == "ready"
        await use(pool, other)
        await settle()
        assert (default.unloads, other.unloads, pool.states()) == (1, 1, {})


async def test_unloading_stops_loading_and_waits_for_idle_engine() -> None:
    a = Scripted("a")
    a.go.clear()
    async with pool_for(1) as pool:
        task, _ = hold(pool, a)
        await settle()
        await pool.unload("a")
        with pytest.raises(BackendUnavailableError, match="unloaded by a client"):
            await task
        assert (pool.states(), a.unloads) == ({}, 1)
        a.go.set()
        await use(pool, a)
        await pool.unload("a")
        assert (pool.states(), a.unloads) == ({}, 2)


async def test_close_fails_waiting_requests() -> None:
    a, b = map(Scripted, "ab")
    a.go.clear()
    async with pool_for(1) as pool:
        tasks = [hold(pool, a)[0], hold(pool, b)[0]]
        await settle()
        await pool.close()
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(error, BackendUnavailableError) for error in errors)
        with pytest.raises(BackendUnavailableError, match="being stopped"):
            await use(pool, a)
