"""Calls the replicas of one deployment by its handle."""

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
from dragoman.ray_serve.frames import ReplicaFailedError, ReplicaFrames

log = logging.getLogger("dragoman.ray_serve")

STATE_INTERVAL_S: Final = 5.0
"""Time between two questions for the state of a replica."""
STATE_TIMEOUT_S: Final = 30.0
START_S: Final = 20.0
"""How long the gateway waits at its start for the models' first state."""
_FAILURES: Final = (RayError, RayServeException)


class ReplicaCalls:
    """The replicas of one deployment, as `SharedBackend` calls them."""

    def __init__(
        self,
        handle: DeploymentHandle,
        name: str,
        state: Mapping[str, Any],
        *,
        is_shared: bool = False,
        is_continued: bool = False,
        is_polled: bool = True,
    ) -> None:
        """
        Args:
            handle: the deployment.
            name: its name, for errors.
            state: what is assumed of its backend until a replica has reported it.
            is_shared: whether its replicas load several models on request.
            is_continued: whether a replica can continue the text of another one.
            is_polled: whether replicas are asked for their state again and again, which keeps one of them running.
        """
        self._is_continued, self._is_polled = is_continued, is_polled
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
    async def call(self, *frame: Any, large: bool = False) -> AsyncIterator[ReplicaFrames]:
        """Sends a call; the end of the block cancels it.

        Args:
            frame: the method, the name of the backend, and the arguments.
            large: whether the frame is encoded in a thread.
        """
        request: Any = frame[2] if frame[0] == "generate" else None
        if request is not None and self._is_continued and not frame[3]["observed"]:
            frame = (*frame[:3], {**frame[3], "sends_text": True})
        data = await off_loop(large, codec.encode, frame)
        blocks = await off_loop(large, prompt_blocks, request) if request is not None else None
        handle = self._handle.options(stream=True)
        if self._is_shared and request is not None:
            handle = handle.options(multiplexed_model_id=request.model)
        frames = ReplicaFrames(
            lambda data: _HandleAnswer(handle.answer.remote(data, blocks), self._name),
            self._name,
            frame,
            data[codec.LENGTH_BYTES :],
        )
        try:
            yield frames
        finally:
            frames.cancel()

    def call_blocking(self, *frame: object) -> Any:
        """Replicas cannot be called while the event loop waits.

        Raises: BackendUnavailableError: always.
        """
        raise BackendUnavailableError(f"{frame[0]} is not available for {self._name} on Ray")

    async def _watch(self) -> None:
        while self._is_polled or not self._known.is_set():
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


class _HandleAnswer:
    """A response of Ray Serve."""

    def __init__(self, response: Any, name: str) -> None:
        self._response, self._name = response, name

    async def next_data(self) -> bytes | None:
        """Returns the next frame; see `ReplicaAnswer`."""
        try:
            data: bytes = await anext(self._response)
        except BackPressureError:
            raise QueueFullError(f"all replicas of {self._name} are busy, and too many requests wait") from None
        except StopAsyncIteration:
            return None
        except _FAILURES as error:
            raise ReplicaFailedError(type(error).__name__) from None
        return data

    def cancel(self) -> None:
        """Stops the replica's work for it, unless it is complete."""
        with contextlib.suppress(*_FAILURES):  # of a call that no replica has accepted
            self._response.cancel()
