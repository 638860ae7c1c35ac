"""Circuit breaker: after repeated failures of a server, rejects requests immediately for a cool-down period.

    closed ──`FAILURE_THRESHOLD` in a row──→ open ──`COOL_DOWN_S` later──→ trying (one request) ──it responds──→ closed
                                              ↑────────────────────it fails───────────────────┘

A failure is a server that cannot be reached, breaks the connection, is silent for too long, or returns 5xx. Responses
with 4xx and requests that the client cancelled do not count as failures.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal

from dragoman.core.errors import BackendUnavailableError, DragomanError, RemoteError, UpstreamError

FAILURE_THRESHOLD: Final = 5
"""Failures in a row that open the breaker: more than one client request causes when the client retries it twice, as the
vendors' clients do.
"""
COOL_DOWN_S: Final = 10.0
"""Long enough to unload a model or start a process, short enough to wait for."""


class CircuitBreaker:
    """The circuit breaker of one server."""

    def __init__(self, name: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self._name, self._now_s = name, now_s
        self._failures = 0
        self._open_until_s = 0.0
        self._trying = False

    @property
    def state(self) -> Literal["closed", "open", "trying"]:
        """`closed`: all requests pass; `open`: none does; `trying`: one request is running to test the server."""
        if self._failures < FAILURE_THRESHOLD:
            return "closed"
        return "trying" if self._trying else "open"

    def ensure_closed(self) -> None:
        """Checks that a request may be sent now.

        Raises:
            BackendUnavailableError: the breaker is open; `retry_after_s` has the remaining cool-down.
        """
        left_s = self._open_until_s - self._now_s()
        if self.state == "closed" or (self.state == "open" and left_s <= 0):
            return
        message = f"{self._name} failed {self._failures} times in a row and gets no requests for a while"
        raise BackendUnavailableError(message, retry_after_s=max(1, math.ceil(left_s)))

    @contextmanager
    def guard(self) -> Iterator[Callable[[], None]]:
        """Counts the outcome of the request made in this block; call the returned function at the first byte of the
        response.

        From the first byte on other requests may pass too, though this one may still fail. If the caller stops reading
        the response, that counts as a success.

        Raises:
            BackendUnavailableError: the breaker is open.
        """
        self.ensure_closed()
        is_trial = self.state == "open"
        self._trying = self._trying or is_trial
        succeeded = False

        def succeeded_so_far() -> None:
            nonlocal succeeded
            succeeded = True
            self._failures = min(self._failures, FAILURE_THRESHOLD - 1)

        try:
            yield succeeded_so_far
            succeeded = True
        except DragomanError as error:
            succeeded = not _is_failure(error)
            if not succeeded:
                self._failures += 1
                self._open_until_s = self._now_s() + COOL_DOWN_S
            raise
        finally:
            if succeeded:
                self._failures = 0
            self._trying = self._trying and not is_trial


def _is_failure(error: DragomanError) -> bool:
    if isinstance(error, UpstreamError):
        return error.status is None or error.status >= 500
    return isinstance(error, RemoteError)
