"""Calls the replicas of one deployment. A call whose replica dies before its first event is sent to another one."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.handle import DeploymentHandle

from dragoman.affinity.prompt_blocks import prompt_blocks
from dragoman.backends.shared import codec
from dragoman.core.errors import BackendUnavailableError, QueueFullError
from dragoman.off_loop import off_loop

log = logging.getLogger("dragoman.ray_serve")

STATE_INTERVAL_S: Final = 5.0
"""Time between two questions for the state of a replica."""
STATE_TIMEOUT_S: Final = 30.0
START_S: Final = 20.0
"""How long the gateway waits at its start for the models' first state."""
MAX_ATTEMPTS: Final = 6
_RETRY_S: Final = 0.2
_FAILURES: Final = (RayError, RayServeException)


class ReplicaCalls:
    """The replicas of one deployment, as `SharedBackend` calls them."""

    def __init__(self, handle: DeploymentHandle, name: str, state: Mapping[str, Any], *, is_shared: bool) -> None:
        """
        Args:
            handle: the deployment.
            name: its name, for errors.
            state: what is assumed of its backend until a replica has reported it.
            is_shared: whether its replicas load several models on request.
        """
        self._handle, self._name, self._state, self._is_shared = handle, name, dict(state), is_shared
        self.ended = f"the replica of {name} ended, or its node did"
        self.is_connected = True
        self._known = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Waits until a replica has reported its state, at most `START_S`; requests wait for replicas themselves."""
        self._watching = asyncio.create_task(self._watch())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                await self._known.wait()

    async def close(self) -> None:
        """Ends the questions for the state."""
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.wait({watching})

    def state(self, name: str) -> Mapping[str, Any]:
        """Returns the state of the backend, as a replica last reported it."""
        return self._state

    def update(self, name: str, state: dict[str, Any]) -> None:
        """Replaces the state of the backend."""
        self._state = state

    @contextlib.asynccontextmanager
    async def call(self, *frame: object, large: bool = False) -> AsyncIterator["ReplicaFrames"]:
        """Sends a call; the end of the block cancels it.

        Args:
            frame: the method, the name of the backend, and the arguments.
            large: whether the frame is encoded in a thread.
        """
        data = await off_loop(large, codec.encode, frame)
        request: Any = frame[2] if frame[0] == "generate" else None
        blocks = await off_loop(large, prompt_blocks, request) if request is not None else None
        handle = self._handle.options(stream=True)
        if self._is_shared and request is not None:
            handle = handle.options(multiplexed_model_id=request.model)
        frames = ReplicaFrames(handle, self._name, data[codec.LENGTH_BYTES :], blocks)
        try:
            yield frames
        finally:
            frames.cancel()

    def call_blocking(self, *frame: object) -> Any:
        """Captures and replays of a gateway on Ray do without what only the replica knows.

        Raises: BackendUnavailableError: always.
        """
        raise BackendUnavailableError(f"{frame[0]} is not available for {self._name} on Ray")

    async def _watch(self) -> None:
        while True:
            try:
                async with asyncio.timeout(STATE_TIMEOUT_S), self.call("state", self._name) as frames:
                    frame = await frames.next_frame()
                self.is_connected = frame is not None
                if frame is not None and frame[0] == "result":
                    self._state = frame[1]
                    self._known.set()
            except TimeoutError:  # all replicas are busy, or are being started
                log.debug("no replica of %s reported its state in %g s", self._name, STATE_TIMEOUT_S)
            except QueueFullError:
                pass
            except Exception:
                log.exception("bug: the state of %s cannot be read", self._name)
            await asyncio.sleep(STATE_INTERVAL_S)


class ReplicaFrames:
    """The frames of one call."""

    def __init__(self, handle: DeploymentHandle, name: str, data: bytes, blocks: object) -> None:
        self._handle, self._name, self._data, self._blocks = handle, name, data, blocks
        self._attempts = 0
        self._has_events = self._is_observed = False
        self._response = self._send()

    async def next_frame(self) -> Any:
        """Returns the next frame; None if the replica has ended after the first event, or no replica answers.

        Raises: QueueFullError: too many requests wait for a replica.
        """
        while True:
            try:
                frame = codec.decode(await anext(self._response))
            except BackPressureError:
                raise QueueFullError(f"all replicas of {self._name} are busy, and too many requests wait") from None
            except StopAsyncIteration:
                return None
            except _FAILURES as error:
                log.warning("a replica of %s failed: %s", self._name, type(error).__name__)
                if self._has_events or self._attempts >= MAX_ATTEMPTS:
                    return None
                await asyncio.sleep(_RETRY_S * self._attempts)
                self._response = self._send()
                if self._is_observed:
                    self._is_observed = False
                    return ["output_left"]
                continue
            self._has_events = self._has_events or frame[0] == "events"
            self._is_observed = self._is_observed or frame[0] == "output"
            return frame

    def acknowledge(self) -> None:
        """Does nothing: Ray buffers the frames of a response."""

    def cancel(self) -> None:
        """Stops the model, unless the response is complete."""
        self._response.cancel()

    def _send(self) -> Any:
        self._attempts += 1
        return self._handle.answer.remote(self._data, self._blocks)
