"""Which models are loaded: each runs in a process of its own, from its first request until its memory is needed.

A request of a model that is not loaded waits in a queue of models. While the first model of the queue waits for memory,
the models that must go get no new requests: those wait behind it. So of two models that do not fit together, each gets
its turn. Idle models go first, the least recently used one before others; a busy model goes after its last response,
a pinned one never.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.local.memory import too_large_error
from dragoman.backends.embedded.local.pooled_model import (
    NOT_LOADED,
    LoadableModel,
    PooledModel,
    Progress,
    QueuedModel,
    Waiter,
)
from dragoman.core.errors import BackendUnavailableError, DragomanError, QueueFullError, RequestError, quote

log = logging.getLogger("dragoman.embedded")

_RETRY_AFTER_S: Final = 5.0


class ModelPool:
    """Loads and unloads models."""

    def __init__(
        self,
        budget: Callable[[Iterable[int]], int],
        keep_alive_s: float,
        max_waiting: int,
        fitting: Callable[[int], list[str]] = lambda available: [],
    ) -> None:
        """
        Args:
            budget: returns the memory for all models together, in bytes, from the process ids of those that run.
            keep_alive_s: time without requests after which a model is unloaded; -1: never.
            max_waiting: requests that may wait for one model.
            fitting: returns the models that need at most so many bytes, for an error.
        """
        self._budget, self._keep_alive_s, self._max_waiting = budget, keep_alive_s, max_waiting
        self._fitting = fitting
        self._pinned = frozenset[str]()
        """Models that are never unloaded."""
        self._default = ""
        """The model that is not unloaded for being idle."""
        self._models: dict[str, PooledModel] = {}
        self._queue: dict[str, QueuedModel] = {}
        """In the order in which the models are loaded."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def pin(self, names: Iterable[str]) -> None:
        """Never unloads these models."""
        self._pinned = frozenset(names)

    async def load_default(self, spec: LoadableModel) -> None:
        """Loads the model that is there from the start, whatever it needs; it is not unloaded for being idle.

        Raises:
            DragomanError: it could not be loaded.
        """
        self._default = spec.name
        self._begin(QueuedModel(spec))
        self._release(await self._acquire(spec, None))

    async def load(self, spec: LoadableModel) -> None:
        """Loads a model and waits until it is ready; does nothing if it is.

        Raises:
            DragomanError: it does not fit, or could not be loaded.
        """
        self._release(await self._acquire(spec, None))

    @asynccontextmanager
    async def use(self, spec: LoadableModel, progress: Progress | None) -> AsyncIterator[EmbeddedModel]:
        """Holds a model for one request, and loads it first if necessary.

        Args:
            spec: the model.
            progress: receives what the request waits for.

        Raises:
            DragomanError: it does not fit, could not be loaded, or too many requests wait for it.
        """
        pooled = await self._acquire(spec, progress)
        try:
            assert pooled.model is not None
            yield pooled.model
        finally:
            self._release(pooled)

    def loaded(self, name: str) -> EmbeddedModel | None:
        """Returns a model that is ready, or None."""
        pooled = self._models.get(name)
        return pooled.model if pooled is not None and pooled.state == "ready" else None

    async def unload(self, name: str) -> None:
        """Unloads a model after its running requests; waits for that if it is idle.

        Raises:
            RequestError: it is not loaded, or pinned.
        """
        pooled = self._models.get(name)
        if pooled is None or pooled.state == "unloading":
            raise RequestError(f"model {quote(name)} is not loaded", "model")
        if name in self._pinned:
            raise RequestError(f"model {quote(name)} is never unloaded: it is in embedded.pinned", "model")
        pooled.is_stopped = True
        if pooled.state == "loading":
            _fail(pooled.waiters, BackendUnavailableError(f"model {quote(name)} has been unloaded by a client"))
            self._cancel(pooled)
        self._advance()
        if pooled.users == 0 and pooled.task is not None:
            await asyncio.wait({pooled.task})

    async def close(self) -> None:
        """Unloads all models at once; running and waiting requests fail."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for queued in self._queue.values():
            _fail(queued.waiters, BackendUnavailableError("the gateway is being stopped", retry_after_s=2))
        self._queue.clear()
        tasks = set()
        for pooled in list(self._models.values()):
            if pooled.state == "loading":
                self._cancel(pooled)
            elif pooled.state == "ready":
                self._unload(pooled)
            tasks |= {pooled.task} if pooled.task else set()
        if tasks:
            await asyncio.wait(tasks)

    def states(self) -> dict[str, Mapping[str, object]]:
        """Returns the state of each model that is loaded or waits for memory, by name."""
        now_s = time.monotonic()
        states = {name: pooled.facts(self._expires_s(pooled, now_s)) for name, pooled in self._models.items()}
        for name, queued in self._queue.items():
            earlier = states.get(name, NOT_LOADED)
            states[name] = {**earlier, "waiting": int(str(earlier["waiting"])) + len(queued.waiters)}
        return states

    # Requests

    async def _acquire(self, spec: LoadableModel, progress: Progress | None) -> PooledModel:
        """Returns the model, with one more user."""
        if self._is_closed:
            raise BackendUnavailableError("the gateway is being stopped", retry_after_s=2)
        pooled = self._models.get(spec.name)
        if pooled is not None and pooled.is_serving:
            pooled.users += 1
            return pooled
        if pooled is not None and pooled.is_loading:
            waiters = pooled.waiters
        else:
            if pooled is None:
                self._refuse_too_large(spec)
            waiters = self._queue.setdefault(spec.name, QueuedModel(spec)).waiters
        if len(waiters) >= self._max_waiting:
            message = f"{len(waiters)} requests wait for model {quote(spec.name)} to be loaded"
            raise QueueFullError(message, retry_after_s=_RETRY_AFTER_S)
        waiter = Waiter(asyncio.get_running_loop().create_future(), progress)
        waiters.append(waiter)
        self._advance()
        waiter.report(self._reason_to_wait(spec.name))
        return await self._granted(spec.name, waiter)

    async def _granted(self, name: str, waiter: Waiter) -> PooledModel:
        granted = waiter.granted
        try:
            return await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                self._release(granted.result())
            else:
                self._abandon(name, waiter)
            raise
        finally:
            if waiter.progress is not None:
                waiter.progress("")

    def _abandon(self, name: str, waiter: Waiter) -> None:
        """Removes a request that no longer waits; a model without any is not loaded."""
        queued, pooled = self._queue.get(name), self._models.get(name)
        if queued is not None and waiter in queued.waiters:
            queued.waiters.remove(waiter)
            if not queued.waiters:
                del self._queue[name]
        elif pooled is not None and waiter in pooled.waiters:
            pooled.waiters.remove(waiter)
            if not pooled.waiters and not self._stays(name) and pooled.state == "loading":
                self._cancel(pooled)
        self._advance()

    def _release(self, pooled: PooledModel) -> None:
        pooled.users -= 1
        pooled.last_used_s = time.monotonic()
        self._advance()

    def _reason_to_wait(self, name: str) -> str:
        if name not in self._queue:
            return f"loading {name}"
        going = [other for other, each in self._models.items() if each.is_leaving or each.state == "unloading"]
        return f"{name} waits for the memory of {', '.join(going)}" if going else f"{name} waits to load"

    def _stays(self, name: str) -> bool:
        """Whether the model stays in memory without requests."""
        return name == self._default or name in self._pinned

    # Memory

    def _available_bytes(self) -> int:
        return self._budget([pid for each in self._models.values() if (pid := each.pid) is not None])

    def _refuse_too_large(self, spec: LoadableModel) -> None:
        """
        Raises: UnsupportedError: the model does not fit, whatever is unloaded.
        """
        available = self._available_bytes()
        pinned = sum(each.spec.needed_bytes for name, each in self._models.items() if name in self._pinned)
        if spec.needed_bytes > available - pinned:
            raise too_large_error(spec.name, spec.needed_bytes, available, pinned, self._fitting)

    def _advance(self) -> None:
        """Loads the next models of the queue as far as they fit, and unloads what must go."""
        if self._is_closed:
            return
        for pooled in self._models.values():
            pooled.is_leaving = False
        while self._queue and self._try_first():
            pass
        for name in self._models.keys() & self._queue.keys():
            if (pooled := self._models[name]).is_serving:
                _grant(pooled, self._queue.pop(name).waiters)
        for pooled in list(self._models.values()):
            if pooled.state == "ready" and pooled.users == 0 and not pooled.is_serving:
                self._unload(pooled)
        self._expire()

    def _try_first(self) -> bool:
        """Serves the first model of the queue, and returns True; marks what must go for it, and returns False."""
        name, queued = next(iter(self._queue.items()))
        pooled = self._models.get(name)
        if pooled is not None and pooled.is_serving:
            del self._queue[name]
            _grant(pooled, queued.waiters)
            return True
        if pooled is not None:  # it is being unloaded
            return False
        available = self._available_bytes()
        used = sum(other.spec.needed_bytes for other in self._models.values())
        missing = queued.spec.needed_bytes + used - available
        if missing <= 0:
            del self._queue[name]
            self._begin(queued)
            return True
        if self._mark_leaving(missing):
            return False
        del self._queue[name]
        _fail(queued.waiters, too_large_error(name, queued.spec.needed_bytes, available, used, self._fitting))
        return True

    def _mark_leaving(self, missing: int) -> bool:
        """Marks models whose memory is needed; returns False if waiting is of no use."""
        others = [pooled for name, pooled in self._models.items() if name not in self._pinned]
        missing -= sum(pooled.spec.needed_bytes for pooled in others if pooled.state == "unloading")
        ready = [pooled for pooled in others if pooled.state == "ready"]
        # Idle ones first; the least recently used one first.
        for pooled in sorted(ready, key=lambda each: (each.users > 0, each.last_used_s)):
            if missing <= 0:
                break
            pooled.is_leaving = True
            missing -= pooled.spec.needed_bytes
        return bool(others)

    # Loading and unloading

    def _begin(self, queued: QueuedModel) -> None:
        pooled = self._models[queued.spec.name] = PooledModel(queued.spec, queued.waiters)
        pooled.task = asyncio.get_running_loop().create_task(self._run_load(pooled))
        for waiter in queued.waiters:
            waiter.report(f"loading {queued.spec.name}")

    async def _run_load(self, pooled: PooledModel) -> None:
        name = pooled.spec.name
        if name != self._default:
            log.info("loading model %s, which needs about %d MB", name, pooled.spec.needed_bytes / 1e6)
        try:
            pooled.model = await pooled.spec.build()
            await pooled.model.start()
        except DragomanError as error:
            await self._end(pooled, error)
        except Exception as bug:
            log.exception("bug: model %s could not be loaded", name)
            await self._end(pooled, BackendUnavailableError(f"model {quote(name)} could not be loaded: {bug}"))
        else:
            if pooled.state == "loading":
                pooled.state, pooled.task = "ready", None
                pooled.last_used_s = time.monotonic()
                waiters, pooled.waiters = pooled.waiters, []
                _grant(pooled, waiters)
                self._advance()

    async def _end(self, pooled: PooledModel, error: DragomanError) -> None:
        """Removes a model that was not loaded; its requests get the error."""
        pooled.state = "unloading"
        waiters, pooled.waiters = pooled.waiters, []
        _fail(waiters, error)
        await self._close_engine(pooled)

    def _cancel(self, pooled: PooledModel) -> None:
        """Stops loading a model."""
        assert pooled.task is not None
        log.info("model %s is no longer needed: loading it is stopped", pooled.spec.name)
        pooled.state = "unloading"
        pooled.task = asyncio.get_running_loop().create_task(self._stop_loading(pooled, pooled.task))

    async def _stop_loading(self, pooled: PooledModel, loading: "asyncio.Task[None]") -> None:
        loading.cancel()
        await asyncio.wait({loading})
        _fail(pooled.waiters, BackendUnavailableError("loading the model was stopped", retry_after_s=2))
        await self._close_engine(pooled)

    def _unload(self, pooled: PooledModel) -> None:
        log.info("unloading model %s", pooled.spec.name)
        pooled.state = "unloading"
        pooled.task = asyncio.get_running_loop().create_task(self._close_engine(pooled))

    async def _close_engine(self, pooled: PooledModel) -> None:
        if pooled.model is not None:
            await pooled.model.close()
        if self._models.get(pooled.spec.name) is pooled:
            del self._models[pooled.spec.name]
        self._advance()

    # Time

    def _expires_s(self, pooled: PooledModel, now_s: float) -> int | None:
        """Returns the seconds until an idle model is unloaded; None: it is not."""
        if self._keep_alive_s < 0 or self._stays(pooled.spec.name) or pooled.state != "ready" or pooled.users:
            return None
        return max(0, round(pooled.last_used_s + self._keep_alive_s - now_s))

    def _expire(self) -> None:
        """Unloads models that have been idle for long, and sets the timer for the next one."""
        loop = asyncio.get_running_loop()
        now_s, due = time.monotonic(), list[float]()
        for pooled in list(self._models.values()):
            if self._expires_s(pooled, now_s) is None:
                continue
            left_s = pooled.last_used_s + self._keep_alive_s - now_s
            if left_s <= 0:
                self._unload(pooled)
            else:
                due.append(left_s)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due:
            self._timer = loop.call_later(min(due), self._expire)


def _grant(pooled: PooledModel, waiters: Iterable[Waiter]) -> None:
    for waiter in waiters:
        if not waiter.granted.done():
            pooled.users += 1
            waiter.granted.set_result(pooled)


def _fail(waiters: Iterable[Waiter], error: DragomanError) -> None:
    for waiter in waiters:
        if not waiter.granted.done():
            waiter.granted.set_exception(error)
            waiter.granted.exception()  # marks it as retrieved, as the request may have been cancelled
