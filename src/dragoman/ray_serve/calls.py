"""Calls the replicas of one deployment. A call whose replica dies before its first event is sent to another one."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.handle import DeploymentHandle

from dragoman.affinity.prompt_blocks import prompt_blocks
from dragoman.backends.shared import codec
from dragoman.core.backend import OpeningText
from dragoman.core.errors import BackendUnavailableError, QueueFullError
from dragoman.core.events import Failure, Notice
from dragoman.off_loop import off_loop
from dragoman.ray_serve.repeated_events import DivergedError, ReceivedEvents, RepeatedEvents

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
    async def call(self, *frame: Any, large: bool = False) -> AsyncIterator["ReplicaFrames"]:
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
        frames = ReplicaFrames(handle, self._name, frame, data[codec.LENGTH_BYTES :], blocks)
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


class ReplicaFrames:
    """The frames of one call."""

    def __init__(self, handle: DeploymentHandle, name: str, call: Sequence[Any], data: bytes, blocks: object) -> None:
        self._handle, self._name, self._call, self._data, self._blocks = handle, name, call, data, blocks
        self._attempts = 0
        self._is_observed = False
        self._received: ReceivedEvents | None = None
        """What the client has; None: nothing yet."""
        self._repeated: RepeatedEvents | None = None
        sends_text = call[0] == "generate" and call[3].get("sends_text", False)
        self._texts: list[str] | None = [] if sends_text else None
        """What the model wrote; None: it cannot be continued."""
        self._opening: OpeningText | None = None
        """What the replica before wrote."""
        self._response = self._send()

    async def next_frame(self) -> Any:
        """Returns the next frame; None if no replica can continue the response, or answer the call.

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
                if not self._may_ask_another():
                    return None
                frame = await self._ask_another()
            else:
                if _is_outage(frame) and self._may_ask_another():
                    log.warning("the model of a replica of %s failed", self._name)
                    frame = await self._ask_another()
                else:
                    frame = self._take(frame)
            if frame is not None:
                return frame or None

    def acknowledge(self) -> None:
        """Does nothing: Ray buffers the frames of a response."""

    def cancel(self) -> None:
        """Stops the model, unless the response is complete."""
        with contextlib.suppress(*_FAILURES):  # of a call that no replica has accepted
            self._response.cancel()

    def _send(self) -> Any:
        self._attempts += 1
        return self._handle.answer.remote(self._data, self._blocks)

    def _may_ask_another(self) -> bool:
        """Returns whether another replica can answer the call, or continue the response."""
        return self._attempts < MAX_ATTEMPTS and (self._received is None or self._texts is not None)

    async def _ask_another(self) -> Sequence[Any] | None:
        """Sends the call to another replica; returns a frame for the client, or None."""
        self.cancel()
        await asyncio.sleep(_RETRY_S * self._attempts)
        if self._texts:
            before = 0 if self._opening is None else self._opening.tokens - 1  # which came as one piece
            self._opening = OpeningText("".join(self._texts), len(self._texts) + before)
        if self._opening is not None:
            method, name, request, fields = self._call
            data = codec.encode((method, name, request, {**fields, "opening": list(self._opening)}))
            self._data = data[codec.LENGTH_BYTES :]
        self._texts = None if self._texts is None else []
        self._response = self._send()
        if self._received is None:
            was_observed, self._is_observed = self._is_observed, False
            return ["output_left"] if was_observed else None
        self._repeated = self._received.skipper()
        message = f"a replica of {self._name} failed in the middle of its response; another one continues the text"
        return ["events", [Notice("continued", message, detail=self._name)]]

    def _take(self, frame: Sequence[Any]) -> Sequence[Any] | None:
        """Returns the frame for the client; None: there is none; []: the response cannot be continued."""
        kind = frame[0]
        if kind == "text":
            if frame[1] is None:
                self._texts = None
            elif self._texts is not None:
                self._texts.append(frame[1])
            return None
        if kind == "output":
            self._is_observed = True
        if kind != "events":
            return frame
        events = frame[1]
        if self._repeated is not None:
            try:
                events = self._repeated.new(events)
            except DivergedError:
                log.warning("the response of another replica of %s differs", self._name)
                return []
        if not events:
            return None
        self._received = self._received or ReceivedEvents()
        self._received.add(events)
        return [kind, events]


def _is_outage(frame: Sequence[Any]) -> bool:
    """Returns whether the model of a replica failed, so that another replica may do better."""
    match frame:
        case ["error", BackendUnavailableError()]:
            return True
        case ["events", [*_, Failure(BackendUnavailableError())]]:
            return True
        case _:
            return False
