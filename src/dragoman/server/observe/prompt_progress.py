"""The text about a prompt that is being read: for the terminal, for a comment in the stream, for the log."""

import time
from collections.abc import Callable
from typing import Final, TypeAlias

from dragoman.core.backend import PromptProgress

_LOG_EVERY_S: Final = 10.0
"""Time between two log lines."""
_NO_PROGRESS: Final = PromptProgress(0, 0)
Listener: TypeAlias = Callable[[str], None]
"""Receives the text to show while a prompt is read, and "" when that ends."""


class PromptProgressReport:
    """Progress of the prompt of one request, until the first token of the response."""

    def __init__(self, listener: Listener | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._listener = listener
        self._clock = clock
        self._first: tuple[float, int] | None = None
        self._now = _NO_PROGRESS
        self._logged_s = 0.0
        self._waits_since_s = 0.0

    def observe(self, progress: PromptProgress) -> None:
        """Records the progress that the backend reports."""
        if progress.waits_for and not self._now.waits_for:
            self._waits_since_s = self._logged_s = self._clock()
        if self._first is None and progress.total:
            self._first = (self._clock(), progress.done)
            self._logged_s = self._first[0]
        self._now = progress
        if self._listener is not None:
            self._listener("; ".join(filter(None, (self.line, progress.cut))) if self.line else "")

    @property
    def is_on(self) -> bool:
        """Whether the prompt is being read now, or the request waits for something."""
        return self._now.done < self._now.total or bool(self._now.waits_for)

    @property
    def line(self) -> str:
        """Returns `prompt 2048/7600 tokens, about 40 s left` or `loading qwen3-4b, 12 s`; otherwise ""."""
        if self._now.waits_for:
            return f"{self._now.waits_for}, {self._clock() - self._waits_since_s:.0f} s"
        if not self.is_on or self._first is None:
            return ""
        began_s, cached = self._first
        done, total = self._now.done, self._now.total
        text = f"prompt {done}/{total} tokens"
        if done > cached and (passed_s := self._clock() - began_s) > 0:
            text += f", about {round((total - done) * passed_s / (done - cached))} s left"
        return text

    def is_due(self) -> bool:
        """Whether another log line is due."""
        now_s = self._clock()
        due = self.is_on and now_s - self._logged_s >= _LOG_EVERY_S
        if due:
            self._logged_s = now_s
        return due

    def close(self) -> None:
        """The response has begun, or the request has ended."""
        if self.is_on and self._listener is not None:
            self._listener("")
        self._now = _NO_PROGRESS
