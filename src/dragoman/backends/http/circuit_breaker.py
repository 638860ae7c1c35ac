"""Leaves a server alone for a while that has failed again and again, so that who asks is told at once.

    closed ──`FAILURES` in a row──→ open ──`REST_S` later──→ trying (one request) ──it is heard of──→ closed
                                     ↑──────────────it fails──────────┘

A failure is a server that cannot be reached, breaks off, is silent, or answers 5xx. What it refuses else (4xx) it was
well enough to refuse. A request that nobody waits for any more says nothing of the server.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal

from dragoman.core.errors import BackendError, DragomanError, RemoteError, UpstreamError

FAILURES: Final = 5
"""In a row: more than one request makes that its client sends again twice, as the vendors' clients do."""
REST_S: Final = 10.0
"""Long enough for a model to be unloaded and a process to be started, short enough to be waited for."""


class Breaker:
    """Of one server."""

    def __init__(self, name: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self._name, self._now_s = name, now_s
        self._failures = 0
        self._rests_until_s = 0.0
        self._trying = False

    @property
    def state(self) -> Literal["closed", "open", "trying"]:
        """`closed`: all may ask; `open`: nobody; `trying`: one does."""
        if self._failures < FAILURES:
            return "closed"
        return "trying" if self._trying else "open"

    def check(self) -> None:
        """Whether the server may be asked now.

        Raises: BackendError: it rests; when to ask again.
        """
        left_s = self._rests_until_s - self._now_s()
        if self.state == "closed" or (self.state == "open" and left_s <= 0):
            return
        told = f"{self._name} failed {self._failures} times in a row and is left alone for a while"
        raise BackendError(told, retry_after_s=max(1, math.ceil(left_s)))

    @contextmanager
    def watching(self) -> Iterator[Callable[[], None]]:
        """Around one request: how it ends counts, and what it gives is to be called when the server begins to answer.

        Others may ask it too from then on, though it may still fail in the middle. Where the answer is left, as nobody
        wants the rest, the server was well.

        Raises: BackendError: as `check`.
        """
        self.check()
        is_try = self.state == "open"
        self._trying = self._trying or is_try
        well = False

        def heard() -> None:
            nonlocal well
            well = True
            self._failures = min(self._failures, FAILURES - 1)

        try:
            yield heard
            well = True
        except DragomanError as error:
            well = not _is_failure(error)
            if not well:
                self._failures += 1
                self._rests_until_s = self._now_s() + REST_S
            raise
        finally:
            if well:
                self._failures = 0
            self._trying = self._trying and not is_try


def _is_failure(error: DragomanError) -> bool:
    if isinstance(error, UpstreamError):
        return error.status is None or error.status >= 500
    return isinstance(error, RemoteError)
