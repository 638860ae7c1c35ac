"""The line about a prompt that is being read: for the screen, for a comment in the stream, for the log."""

import time
from collections.abc import Callable
from typing import Final, TypeAlias

from dragoman.core.progress import PromptProgress

_TELL_S: Final = 10.0
"""Between two lines of the log."""
Listener: TypeAlias = Callable[[str], None]
"""Takes the line to show while a prompt is read, and "" at the end of that."""


class Reading:
    """The prompt of one request, from its first token to the first of the answer."""

    def __init__(self, listener: Listener | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._listener = listener
        self._clock = clock
        self._first: tuple[float, int] | None = None
        self._now = PromptProgress(0, 0)
        self._told_s = 0.0

    def saw(self, progress: PromptProgress) -> None:
        """Take what the backend reports."""
        if self._first is None:
            self._first = (self._clock(), progress.done)
            self._told_s = self._first[0]
        self._now = progress
        if self._listener is not None:
            self._listener("; ".join(filter(None, (self.line, progress.cut))) if self.line else "")

    @property
    def is_on(self) -> bool:
        """Whether the prompt is being read now."""
        return self._now.done < self._now.total

    @property
    def line(self) -> str:
        """`prompt 2048/7600 tokens, about 40 s left`; empty where nothing is read."""
        if not self.is_on or self._first is None:
            return ""
        began_s, cached = self._first
        done, total, _ = self._now
        text = f"prompt {done}/{total} tokens"
        if done > cached and (passed_s := self._clock() - began_s) > 0:
            text += f", about {round((total - done) * passed_s / (done - cached))} s left"
        return text

    def is_due(self) -> bool:
        """Whether the log should have another line now."""
        now_s = self._clock()
        due = self.is_on and now_s - self._told_s >= _TELL_S
        if due:
            self._told_s = now_s
        return due

    def over(self) -> None:
        """The answer has begun, or the request has ended."""
        if self.is_on and self._listener is not None:
            self._listener("")
        self._now = PromptProgress(0, 0)
