"""What `SharedBackend` needs of the connection to other processes that run the models."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol


class CallFrames(Protocol):
    """The frames that answer one call."""

    async def next_frame(self) -> Any:
        """Returns the next frame; None if the other process has ended."""

    def acknowledge(self) -> None:
        """One more counted frame was taken."""


class ModelsCalls(Protocol):
    """Calls processes that run models."""

    @property
    def ended(self) -> str:
        """The error of a call whose process has ended."""

    @property
    def is_connected(self) -> bool:
        """Whether a process can be called now, as far as known."""

    async def start(self) -> None:
        """Connects, and waits until the state of the backends is known.

        Raises: DragomanError: there is no process.
        """

    async def close(self) -> None:
        """Closes the connection."""

    def state(self, name: str) -> Mapping[str, Any]:
        """Returns the last known state of a backend; {} before `start`."""

    def update(self, name: str, state: dict[str, Any]) -> None:
        """Replaces the state of a backend."""

    def call(self, *frame: object, large: bool = False) -> AbstractAsyncContextManager[CallFrames]:
        """Sends a call; the end of the block cancels it.

        Args:
            frame: the method, the name of the backend, and the arguments.
            large: whether the frame is encoded in a thread.
        """

    def call_blocking(self, *frame: object) -> Any:
        """Returns the result of a call, while the event loop waits.

        Raises: DragomanError: the call failed, or there is no process.
        """
