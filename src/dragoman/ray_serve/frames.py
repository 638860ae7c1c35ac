"""The frames of one call. A replica that fails is replaced by another one, which continues the text of the model.

It does not import Ray.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from dragoman.backends.shared import codec
from dragoman.core.backend import OpeningText
from dragoman.core.errors import BackendUnavailableError
from dragoman.core.events import Failure, Notice
from dragoman.ray_serve.repeated_events import DivergedError, ReceivedEvents, RepeatedEvents

log = logging.getLogger("dragoman.ray_serve")

MAX_ATTEMPTS: Final = 6
RETRY_S: Final = 0.2
"""Time before the second attempt; each further one waits as much longer."""


class ReplicaFailedError(Exception):
    """The replica ended, or its node did."""


class ReplicaAnswer(Protocol):
    """What a replica sends."""

    async def next_data(self) -> bytes | None:
        """Returns the next frame, encoded; None at the end.

        Raises:
            ReplicaFailedError: see there.
            QueueFullError: too many requests wait for a replica.
        """

    def cancel(self) -> None:
        """Stops the replica's work for it."""


class ReplicaFrames:
    """The frames of one call."""

    def __init__(self, send: Callable[[bytes], ReplicaAnswer], name: str, call: Sequence[Any], data: bytes) -> None:
        """
        Args:
            send: sends an encoded call to a replica.
            name: the name of the deployment.
            call: the call.
            data: the call, encoded.
        """
        self._send_data, self._name, self._call, self._data = send, name, call, data
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
                data = await self._response.next_data()
                if data is None:
                    return None
                frame = codec.decode(data)
            except ReplicaFailedError as error:
                log.warning("a replica of %s failed: %s", self._name, error)
                if self._received is not None and self._received.is_complete:
                    return ["done"]
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
        self._response.cancel()

    def _send(self) -> ReplicaAnswer:
        self._attempts += 1
        return self._send_data(self._data)

    def _may_ask_another(self) -> bool:
        """Returns whether another replica can answer the call, or continue the response."""
        return self._attempts < MAX_ATTEMPTS and (self._received is None or self._texts is not None)

    async def _ask_another(self) -> Sequence[Any] | None:
        """Sends the call to another replica; returns a frame for the client, or None."""
        self.cancel()
        await asyncio.sleep(RETRY_S * self._attempts)
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
