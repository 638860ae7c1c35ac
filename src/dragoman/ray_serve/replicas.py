"""The replicas of the models' deployments: each has a backend, and answers the calls of `calls.ReplicaCalls`."""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import msgspec
from ray import serve

from dragoman.backends.shared import codec
from dragoman.backends.shared.answer import answer, state_of
from dragoman.compose.embedded_weights import get_weights
from dragoman.core.backend import Backend
from dragoman.ray_serve.autoscaling import TOKENS
from dragoman.ray_serve.plan import DeploymentPlan

log = logging.getLogger("dragoman.ray_serve")

UNHEALTHY_S: Final = 60.0
"""Time without readiness after which a replica is replaced: an engine that crashed is restarted before."""
MAX_SHARED: Final = 100
_BYTES_PER_TOKEN: Final = 4


class ModelReplica:
    """One replica: an embedded model, several that are loaded on request, or the pool of `claude` processes."""

    async def __init__(self, plan: DeploymentPlan) -> None:  # type: ignore[misc] # Ray awaits it
        """Loads the model; weights that this node lacks are downloaded.

        Args:
            plan: the deployment.

        Raises:
            DragomanError: the model cannot be loaded.
        """
        self._plan = plan
        self._backend = await asyncio.to_thread(_backend, plan)
        self._ready_s = time.monotonic()
        self._tokens = 0
        await self._backend.start()

    async def answer(self, data: bytes, blocks: Any = None) -> AsyncIterator[bytes]:
        """Yields the frames that answer a call.

        Args:
            data: the call, encoded.
            blocks: the blocks of its prompt, which the request router has used.
        """
        call = codec.decode(data)
        if call[0] in ("state", "refresh_models"):
            if call[0] == "refresh_models":
                await self._backend.refresh_models()
            yield _encoded(["result", self._state()])
            return
        if call[0] == "generate" and self._plan.kind == "shared":
            await self._announce(call[2].model)
        tokens = _tokens_of(call, blocks)
        link = _QueueLink()
        self._tokens += tokens
        answering = asyncio.create_task(self._answer(call, link))
        try:
            while (frame := await link.next_frame()) is not None:
                yield frame
        finally:
            self._tokens -= tokens
            answering.cancel()
            await asyncio.wait({answering})

    async def check_health(self) -> None:
        """Raises an error once the backend has not been ready for `UNHEALTHY_S`; Ray then replaces the replica.

        Raises: RuntimeError: see above.
        """
        if self._backend.health()["ready"]:
            self._ready_s = time.monotonic()
        elif time.monotonic() - self._ready_s > UNHEALTHY_S:
            raise RuntimeError(f"{self._plan.name} has not been ready for {UNHEALTHY_S:g} s")

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Returns what `autoscaling.LoadPolicy` reads."""
        return {TOKENS: float(self._tokens)}

    async def __del__(self) -> None:
        """Ends the engines or processes."""
        if backend := getattr(self, "_backend", None):
            await backend.close()

    async def _answer(self, call: Sequence[Any], link: "_QueueLink") -> None:
        try:
            await answer({self._plan.name: self._backend}, call, link)
        finally:
            link.end()

    @serve.multiplexed(max_num_models_per_replica=MAX_SHARED)  # type: ignore[untyped-decorator]
    async def _announce(self, model_id: str) -> str:
        """Announces that this replica has the model, so that further requests for it come here.

        The backend loads it, and decides by its memory which models stay.
        """
        return model_id

    def _state(self) -> dict[str, object]:
        """Returns the state of the backend, with the models that the deployment names only."""
        state = state_of(self._backend)
        if served := self._plan.models:
            models: Any = state["models"]
            names: Any = state["names"]
            state["models"] = [model for model in models if model["id"] in served]
            state["names"] = {name: id for name, id in names.items() if id in served}
        return state


class _QueueLink:
    """The frames of one call; Ray buffers them too, so nothing stops the model for a slow client."""

    def __init__(self) -> None:
        self._frames = asyncio.Queue[bytes | None]()

    def send(self, *frame: object) -> None:
        """Adds a frame."""
        self._frames.put_nowait(_encoded(frame))

    async def send_counted(self, *frame: object) -> None:
        """Adds a frame."""
        self.send(*frame)

    def end(self) -> None:
        """No more frames follow."""
        self._frames.put_nowait(None)

    async def next_frame(self) -> bytes | None:
        """Returns the next frame; None at the end."""
        return await self._frames.get()


def _backend(plan: DeploymentPlan) -> Backend:
    config = plan.config
    if plan.kind == "claude":
        from dragoman.backends.claude_cli.backend import ClaudeCliBackend

        return ClaudeCliBackend(config.claude_cli, os.environ)
    from dragoman.backends.embedded.backend import EmbeddedBackend

    weights = get_weights(config.embedded, log.info)
    for name in config.ray.shared_models if plan.kind == "shared" else ():
        get_weights(msgspec.structs.replace(config.embedded, model=name), log.info)
    return EmbeddedBackend.from_config(config.embedded, weights, log.info)


def _encoded(frame: object) -> bytes:
    return codec.encode(frame)[codec.LENGTH_BYTES :]


def _tokens_of(call: Sequence[Any], blocks: Any) -> int:
    """Returns an estimate of the tokens of a request: its prompt, and what it may generate."""
    if call[0] != "generate":
        return 0
    return (blocks.size_bytes if blocks is not None else 0) // _BYTES_PER_TOKEN + (call[2].max_tokens or 0)
