"""What a running gateway reports next to a response: comments in the stream, which API clients ignore.

: dragoman-progress prompt 1200/7600 tokens, about 40 s left
: dragoman-warnings content_dropped: image, estimated_usage
"""

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final, TypeVar

from dragoman.core.backend import Backend, EventStream, PromptProgress
from dragoman.core.messages import Request

T = TypeVar("T")

_PROGRESS: Final = re.compile(rb": dragoman-progress prompt (\d{1,9})/(\d{1,9}) tokens")
_WARNINGS: Final = re.compile(rb": dragoman-warnings ([ -~]{1,4000})")
_LONGEST_LINE: Final = 4096
"""A longer line is not a comment."""


class GatewayComments:
    """An observer of one exchange (see `ExchangeObserver`); everything passes through unchanged."""

    def __init__(self, on_progress: Callable[[PromptProgress], None], on_warnings: Callable[[str], None]) -> None:
        """Args:
        on_progress: Receives the progress of reading the prompt.
        on_warnings: Receives the labels of warnings, separated by commas.
        """
        self._on_progress, self._on_warnings = on_progress, on_warnings
        self._line = b""

    def on_backend_call(self, backend: Backend, request: Request) -> None:
        """A new response begins."""
        self._line = b""

    def wrap_events(self, events: EventStream) -> EventStream:
        """Events need not be observed."""
        return events

    async def wrap_model_output(
        self, target: str, sent: object, pieces: AsyncGenerator[T, None]
    ) -> AsyncGenerator[T, None]:
        """Reads the comments between the events."""
        async with aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, bytes):
                    self._feed(piece)
                yield piece

    def _feed(self, piece: bytes) -> None:
        *lines, self._line = (self._line + piece).split(b"\n")
        self._line = self._line[:_LONGEST_LINE]
        for line in lines:
            if found := _PROGRESS.match(line):
                self._on_progress(PromptProgress(int(found[1]), int(found[2])))
            elif found := _WARNINGS.match(line):
                self._on_warnings(found[1].decode())
