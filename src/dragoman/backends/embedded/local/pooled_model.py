"""Models of the pool: those in memory (`PooledModel`), and those that wait for memory (`QueuedModel`)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from dragoman.backends.embedded.embedded_model import EmbeddedModel

State: TypeAlias = Literal["loading", "ready", "unloading"]
Progress: TypeAlias = Callable[[str], None]
"""Receives what a request waits for; "" when it no longer waits."""


class LoadableModel(NamedTuple):
    """A model that can be loaded."""

    name: str
    needed_bytes: int
    """Estimated memory."""
    build: Callable[[], Awaitable[EmbeddedModel]]
    """Returns the model, whose engine does not run."""


@dataclass(eq=False)
class Waiter:
    """A request that waits for a model."""

    granted: "asyncio.Future[PooledModel]"
    progress: Progress | None

    def report(self, what: str) -> None:
        """Reports what the request waits for."""
        if self.progress is not None and not self.granted.done():
            self.progress(what)


@dataclass(eq=False)
class QueuedModel:
    """A model that waits for memory, and its requests."""

    spec: LoadableModel
    waiters: list[Waiter] = field(default_factory=list)


@dataclass(eq=False)
class PooledModel:
    """A model in memory, or on its way there or back."""

    spec: LoadableModel
    waiters: list[Waiter]
    """Requests that wait until it is loaded."""
    state: State = "loading"
    model: EmbeddedModel | None = None
    users: int = 0
    """Requests that have been granted and have not ended."""
    last_used_s: float = 0.0
    """By the monotonic clock."""
    is_leaving: bool = False
    """It gets no new requests: another model needs its memory."""
    is_stopped: bool = False
    """It gets no new requests: a client has unloaded it."""
    task: "asyncio.Task[None] | None" = None
    """Loads or unloads it."""

    @property
    def is_serving(self) -> bool:
        """Whether new requests may use it now."""
        return self.state == "ready" and not (self.is_leaving or self.is_stopped)

    @property
    def is_loading(self) -> bool:
        """Whether new requests may wait until it is loaded."""
        return self.state == "loading" and not self.is_stopped

    @property
    def pid(self) -> int | None:
        """The process id of its engine, while there is one."""
        return self.model.engine.pid if self.model is not None else None

    def facts(self, expires_s: int | None) -> Mapping[str, object]:
        """Returns its state, for /health.

        Args:
            expires_s: the seconds until it is unloaded; None: it is not.
        """
        engine = self.model.engine if self.model is not None else None
        is_ready = self.state == "ready" and engine is not None and engine.is_ready
        prefixes = engine.prefixes if engine is not None else None
        return {
            "state": "restarting" if self.state == "ready" and not is_ready else self.state,
            "ready": is_ready,
            "active": engine.active if engine is not None else 0,
            "waiting": (engine.waiting if engine is not None else 0) + len(self.waiters),
            "memory_mb": round(self.spec.needed_bytes / 1e6),
            "expires_s": expires_s,
            "restarts": engine.restarts if engine is not None else 0,
            "hardware": str(engine.hardware or "") if engine is not None else "",
            **({"prefixes": prefixes.state()} if prefixes is not None else {}),
        }


NOT_LOADED: Mapping[str, object] = {
    "state": "waiting",
    "ready": False,
    "active": 0,
    "waiting": 0,
    "memory_mb": 0,
    "expires_s": None,
    "restarts": 0,
    "hardware": "",
}
"""The state of a model that waits for memory."""
