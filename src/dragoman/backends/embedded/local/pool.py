"""Which models are loaded: each runs in a process of its own, from its first request until its memory is needed.

A request of a model that is not loaded waits in a queue of models. While the first model of the queue waits for memory,
the models that must go get no new requests: those wait behind it. So of two models that do not fit together, each gets
its turn. Idle models go first, the least recently used one before others; a busy model goes after its last response,
a pinned one never.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.core.errors import (
    BackendUnavailableError,
    DragomanError,
    QueueFullError,
    RequestError,
    UnsupportedError,
    quote,
)

log = logging.getLogger("dragoman.embedded")

State: TypeAlias = Literal["loading", "ready", "unloading"]
Progress: TypeAlias = Callable[[str], None]
"""Receives what a request waits for; "" when it no longer waits."""

_MAX_LISTED: Final = 5
_RETRY_AFTER_S: Final = 5.0


class ModelSpec(NamedTuple):
    """A model that can be loaded."""

    name: str
    needed_bytes: int
    """Estimated memory."""
    build: Callable[[], Awaitable[EmbeddedModel]]
    """Returns the model, whose engine does not run."""


@dataclass(eq=False)
class _Waiter:
    """A request that waits for a model."""

    granted: "asyncio.Future[_Slot]"
    progress: Progress | None


@dataclass(eq=False)
class _Load:
    """A model that waits for memory, and its requests."""

    spec: ModelSpec
    waiters: list[_Waiter] = field(default_factory=list)


@dataclass(eq=False)
class _Slot:
    """A model in memory, or on its way there or back."""

    spec: ModelSpec
    waiters: list[_Waiter]
    """While it is being loaded."""
    state: State = "loading"
    model: EmbeddedModel | None = None
    users: int = 0
    """Requests that have been granted and have not ended."""
    last_used_s: float = 0.0
    is_leaving: bool = False
    """It gets no new requests: another model needs its memory."""
    is_stopped: bool = False
    """It gets no new requests: a client has unloaded it."""
    task: "asyncio.Task[None] | None" = None
    """Loads or unloads it."""


class ModelPool:
    """Loads and unloads models."""

    def __init__(
        self,
        budget: Callable[[Iterable[int]], int | None],
        keep_alive_s: float,
        max_waiting: int,
        fitting: Callable[[int], list[str]] = lambda available: [],
    ) -> None:
        """
        Args:
            budget: returns the memory for all models together, in bytes, from the process ids of those that run; None:
                unlimited.
            keep_alive_s: time without requests after which a model is unloaded; -1: never.
            max_waiting: requests that may wait for one model.
            fitting: returns the models that need at most so many bytes, for an error.
        """
        self._budget, self._keep_alive_s, self._max_waiting = budget, keep_alive_s, max_waiting
        self._fitting = fitting
        self._pinned = frozenset[str]()
        """Models that are never unloaded."""
        self._kept = frozenset[str]()
        """Models that are not unloaded for being idle."""
        self._slots: dict[str, _Slot] = {}
        self._queue: dict[str, _Load] = {}
        """In the order in which the models are loaded."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def pin(self, names: Iterable[str]) -> None:
        """Never unloads these models."""
        self._pinned = frozenset(names)

    async def load_default(self, spec: ModelSpec) -> None:
        """Loads the model that is there from the start, whatever it needs; it is not unloaded for being idle.

        Raises:
            DragomanError: it could not be loaded.
        """
        self._kept = frozenset((spec.name,))
        self._begin(_Load(spec))
        self._release(await self._acquire(spec, None))

    async def load(self, spec: ModelSpec) -> None:
        """Loads a model and waits until it is ready; does nothing if it is.

        Raises:
            DragomanError: it does not fit, or could not be loaded.
        """
        self._release(await self._acquire(spec, None))

    @asynccontextmanager
    async def use(self, spec: ModelSpec, progress: Progress | None) -> AsyncIterator[EmbeddedModel]:
        """Holds a model for one request, and loads it first if necessary.

        Args:
            spec: the model.
            progress: receives what the request waits for.

        Raises:
            DragomanError: it does not fit, could not be loaded, or too many requests wait for it.
        """
        slot = await self._acquire(spec, progress)
        try:
            assert slot.model is not None
            yield slot.model
        finally:
            self._release(slot)

    def loaded(self, name: str) -> EmbeddedModel | None:
        """Returns a model that is ready, or None."""
        slot = self._slots.get(name)
        return slot.model if slot is not None and slot.state == "ready" else None

    async def unload(self, name: str) -> None:
        """Unloads a model after its running requests; waits for that if it is idle.

        Raises:
            RequestError: it is not loaded, or pinned.
        """
        slot = self._slots.get(name)
        if slot is None or slot.state == "unloading":
            raise RequestError(f"model {quote(name)} is not loaded", "model")
        if name in self._pinned:
            raise RequestError(f"model {quote(name)} is never unloaded: it is in embedded.pinned", "model")
        slot.is_stopped = True
        if slot.state == "loading":
            self._fail(slot.waiters, BackendUnavailableError(f"model {quote(name)} has been unloaded by a client"))
            self._cancel(slot)
        self._advance()
        if slot.users == 0 and slot.task is not None:
            await asyncio.wait({slot.task})

    async def close(self) -> None:
        """Unloads all models at once; running and waiting requests fail."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for load in self._queue.values():
            self._fail(load.waiters, BackendUnavailableError("the gateway is being stopped", retry_after_s=2))
        self._queue.clear()
        tasks = set()
        for slot in list(self._slots.values()):
            if slot.state == "loading":
                self._cancel(slot)
            elif slot.state == "ready":
                self._unload(slot)
            tasks |= {slot.task} if slot.task else set()
        if tasks:
            await asyncio.wait(tasks)

    def states(self) -> dict[str, Mapping[str, object]]:
        """Returns the state of each model that is loaded or waits for memory, by name."""
        now_s = asyncio.get_running_loop().time()
        states: dict[str, Mapping[str, object]] = {}
        for name, slot in self._slots.items():
            engine = slot.model.engine if slot.model is not None else None
            is_ready = slot.state == "ready" and engine is not None and engine.is_ready
            states[name] = {
                "state": "restarting" if slot.state == "ready" and not is_ready else slot.state,
                "ready": is_ready,
                "active": engine.active if engine is not None else 0,
                "waiting": (engine.waiting if engine is not None else 0) + len(slot.waiters),
                "memory_mb": round(slot.spec.needed_bytes / 1e6),
                "expires_s": self._expires_s(slot, now_s),
                "restarts": engine.restarts if engine is not None else 0,
            }
        for name, load in self._queue.items():
            queued = {"state": "waiting", "ready": False, "active": 0, "memory_mb": 0, "expires_s": None, "restarts": 0}
            earlier = states.get(name, queued)
            states[name] = {**earlier, "waiting": int(str(earlier.get("waiting", 0))) + len(load.waiters)}
        return states

    # Requests

    async def _acquire(self, spec: ModelSpec, progress: Progress | None) -> _Slot:
        """Returns the model's slot, with one more user."""
        if self._is_closed:
            raise BackendUnavailableError("the gateway is being stopped", retry_after_s=2)
        slot = self._slots.get(spec.name)
        is_open = slot is not None and not (slot.is_leaving or slot.is_stopped or slot.state == "unloading")
        if is_open and slot is not None and slot.state == "ready":
            slot.users += 1
            return slot
        if is_open and slot is not None and slot.state == "loading":
            waiters = slot.waiters
        else:
            if slot is None:
                self._refuse_too_large(spec)
            waiters = self._queue.setdefault(spec.name, _Load(spec)).waiters
        if len(waiters) >= self._max_waiting:
            message = f"{len(waiters)} requests wait for model {quote(spec.name)} to be loaded"
            raise QueueFullError(message, retry_after_s=_RETRY_AFTER_S)
        waiter = _Waiter(asyncio.get_running_loop().create_future(), progress)
        waiters.append(waiter)
        self._advance()
        self._tell(spec.name, waiter)
        return await self._granted(spec.name, waiter)

    async def _granted(self, name: str, waiter: _Waiter) -> _Slot:
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

    def _abandon(self, name: str, waiter: _Waiter) -> None:
        """Removes a request that no longer waits; a load without any is not needed."""
        load, slot = self._queue.get(name), self._slots.get(name)
        if load is not None and waiter in load.waiters:
            load.waiters.remove(waiter)
            if not load.waiters:
                del self._queue[name]
        elif slot is not None and waiter in slot.waiters:
            slot.waiters.remove(waiter)
            if not slot.waiters and name not in self._kept | self._pinned and slot.state == "loading":
                self._cancel(slot)
        self._advance()

    def _release(self, slot: _Slot) -> None:
        slot.users -= 1
        slot.last_used_s = asyncio.get_running_loop().time()
        self._advance()

    def _tell(self, name: str, waiter: _Waiter) -> None:
        """Reports to one request what it waits for."""
        if waiter.progress is None or waiter.granted.done():
            return
        if name not in self._queue:
            waiter.progress(f"loading {name}")
        else:
            going = [other for other, slot in self._slots.items() if slot.is_leaving or slot.state == "unloading"]
            waiter.progress(f"{name} waits for the memory of {', '.join(going)}" if going else f"{name} waits to load")

    # Memory

    def _refuse_too_large(self, spec: ModelSpec) -> None:
        """
        Raises: UnsupportedError: the model does not fit, whatever is unloaded.
        """
        budget = self._budget(self._pids())
        pinned = sum(slot.spec.needed_bytes for name, slot in self._slots.items() if name in self._pinned)
        if budget is None or spec.needed_bytes <= budget - pinned:
            return
        raise self._too_large(spec, budget, pinned)

    def _too_large(self, spec: ModelSpec, budget: int, pinned: int) -> UnsupportedError:
        mb = round(spec.needed_bytes / 1e6)
        kept = f", of which pinned models have {round(pinned / 1e6)} MB" if pinned else ""
        names = [name for name in self._fitting(max(0, budget - pinned)) if name != spec.name][:_MAX_LISTED]
        fits = f"these fit: {', '.join(names)}" if names else "no other model here fits"
        return UnsupportedError(
            f"model {quote(spec.name)} needs about {mb} MB of memory, expected at most {round(budget / 1e6)} MB "
            f"for all models (setting embedded.memory_mb){kept}; {fits}; a smaller embedded.context_window or "
            "embedded.max_concurrency needs less",
            "model",
        )

    def _pids(self) -> list[int]:
        models = [slot.model for slot in self._slots.values() if slot.model is not None]
        return [pid for model in models if (pid := model.engine.pid) is not None]

    def _advance(self) -> None:
        """Loads the next models of the queue as far as they fit, and unloads what must go."""
        if self._is_closed:
            return
        for slot in self._slots.values():
            slot.is_leaving = False
        while self._queue and self._try_first():
            pass
        for name in self._slots.keys() & self._queue.keys():
            if (slot := self._slots[name]).state == "ready" and not (slot.is_leaving or slot.is_stopped):
                self._grant(slot, self._queue.pop(name).waiters)
        for slot in list(self._slots.values()):
            if slot.state == "ready" and slot.users == 0 and (slot.is_leaving or slot.is_stopped):
                self._unload(slot)
        self._expire()

    def _try_first(self) -> bool:
        """Serves the first model of the queue, and returns True; marks what must go for it, and returns False."""
        name, load = next(iter(self._queue.items()))
        slot = self._slots.get(name)
        if slot is not None and slot.state == "ready" and not slot.is_stopped:
            del self._queue[name]
            self._grant(slot, load.waiters)
            return True
        if slot is not None:  # it is being unloaded
            return False
        budget = self._budget(self._pids())
        used = sum(other.spec.needed_bytes for other in self._slots.values())
        missing = 0 if budget is None else load.spec.needed_bytes + used - budget
        if missing <= 0:
            del self._queue[name]
            self._begin(load)
            return True
        if self._mark_leaving(missing):
            return False
        assert budget is not None
        del self._queue[name]
        self._fail(load.waiters, self._too_large(load.spec, budget, used))
        return True

    def _mark_leaving(self, missing: int) -> bool:
        """Marks models whose memory is needed; returns False if waiting is of no use."""
        others = [slot for name, slot in self._slots.items() if name not in self._pinned]
        missing -= sum(slot.spec.needed_bytes for slot in others if slot.state == "unloading")
        # Idle ones first; the least recently used one first.
        ready = sorted((slot for slot in others if slot.state == "ready"), key=lambda s: (s.users > 0, s.last_used_s))
        for slot in ready:
            if missing <= 0:
                break
            slot.is_leaving = True
            missing -= slot.spec.needed_bytes
        return bool(others)

    # Loading and unloading

    def _begin(self, load: _Load) -> None:
        slot = self._slots[load.spec.name] = _Slot(load.spec, load.waiters)
        slot.task = asyncio.get_running_loop().create_task(self._run_load(slot))
        for waiter in load.waiters:
            self._tell(load.spec.name, waiter)

    async def _run_load(self, slot: _Slot) -> None:
        name = slot.spec.name
        if name not in self._kept:
            log.info("loading model %s, which needs about %d MB", name, slot.spec.needed_bytes / 1e6)
        try:
            model = await slot.spec.build()
            slot.model = model
            await model.start()
        except DragomanError as error:
            await self._end(slot, error)
        except Exception as bug:
            log.exception("bug: model %s could not be loaded", name)
            await self._end(slot, BackendUnavailableError(f"model {quote(name)} could not be loaded: {bug}"))
        else:
            if slot.state == "loading":
                slot.state, slot.task = "ready", None
                slot.last_used_s = asyncio.get_running_loop().time()
                waiters, slot.waiters = slot.waiters, []
                self._grant(slot, waiters)
                self._advance()

    async def _end(self, slot: _Slot, error: DragomanError) -> None:
        """Removes a model that was not loaded; its requests get the error."""
        slot.state = "unloading"
        waiters, slot.waiters = slot.waiters, []
        self._fail(waiters, error)
        await self._close_engine(slot)

    def _cancel(self, slot: _Slot) -> None:
        """Stops loading a model."""
        assert slot.task is not None
        log.info("model %s is no longer needed: loading it is stopped", slot.spec.name)
        slot.state = "unloading"
        slot.task = asyncio.get_running_loop().create_task(self._stop_loading(slot, slot.task))

    async def _stop_loading(self, slot: _Slot, loading: "asyncio.Task[None]") -> None:
        loading.cancel()
        await asyncio.wait({loading})
        self._fail(slot.waiters, BackendUnavailableError("loading the model was stopped", retry_after_s=2))
        await self._close_engine(slot)

    def _unload(self, slot: _Slot) -> None:
        log.info("unloading model %s", slot.spec.name)
        slot.state = "unloading"
        slot.task = asyncio.get_running_loop().create_task(self._close_engine(slot))

    async def _close_engine(self, slot: _Slot) -> None:
        if slot.model is not None:
            await slot.model.close()
        if self._slots.get(slot.spec.name) is slot:
            del self._slots[slot.spec.name]
        self._advance()

    def _grant(self, slot: _Slot, waiters: Iterable[_Waiter]) -> None:
        for waiter in waiters:
            if not waiter.granted.done():
                slot.users += 1
                waiter.granted.set_result(slot)

    def _fail(self, waiters: Iterable[_Waiter], error: DragomanError) -> None:
        for waiter in waiters:
            if not waiter.granted.done():
                waiter.granted.set_exception(error)
                waiter.granted.exception()  # marks it as retrieved, as the request may have been cancelled

    # Time

    def _expires_s(self, slot: _Slot, now_s: float) -> int | None:
        """Returns the seconds until an idle model is unloaded; None: it is not."""
        is_kept = slot.spec.name in self._kept | self._pinned or self._keep_alive_s < 0
        if is_kept or slot.state != "ready" or slot.users:
            return None
        return max(0, round(slot.last_used_s + self._keep_alive_s - now_s))

    def _expire(self) -> None:
        """Unloads models that have been idle for long, and sets the timer for the next one."""
        loop = asyncio.get_running_loop()
        now_s, due = loop.time(), list[float]()
        for slot in list(self._slots.values()):
            if self._expires_s(slot, now_s) is None:
                continue
            left_s = slot.last_used_s + self._keep_alive_s - now_s
            if left_s <= 0:
                self._unload(slot)
            else:
                due.append(left_s)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due:
            self._timer = loop.call_later(min(due), self._expire)
