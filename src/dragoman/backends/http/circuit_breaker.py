"""Circuit breaker: after repeated failures of a server, rejects requests immediately for a cool-down period.

    closed ──`FAILURE_THRESHOLD` in a row──→ open ──`COOL_DOWN_S` later──→ trying (one request) ──it responds──→ closed
                                              ↑────────────────────it fails───────────────────┘

A failure is a server that cannot be reached, breaks the connection, is silent for too long, or returns 5xx. Responses
with 4xx and requests that the client cancelled do not count as failures.
"""

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Literal

from dragoman.core.errors import DragomanError, NotAskedError, RemoteError, UpstreamError

FAILURE_THRESHOLD: Final = 5
"""Failures in a row that open the breaker: more than one client request causes when the client retries it twice, as the
vendors' clients do.
"""
COOL_DOWN_S: Final = 10.0
"""Long enough to unload a model or start a process, short enough to wait for."""


class BreakerState:
    """What a circuit breaker knows of its server, in the memory of this process."""

    trial_limit_s = math.inf
    """Time after which a trial counts as ended; here the end of each trial is known."""

    def __init__(self) -> None:
        self.failures = 0
        self.open_until_s = 0.0
        self.trial_until_s = 0.0

    def lock(self) -> AbstractContextManager[None]:
        """Excludes other processes from changes."""
        return nullcontext()

    def begin_trial(self, now_s: float) -> float:
        """Begins a trial, and returns what identifies it for `end_trial`."""
        self.trial_until_s = now_s + self.trial_limit_s
        return self.trial_until_s

    def end_trial(self, trial: float) -> None:
        """Ends the trial, unless another one has begun."""
        if self.trial_until_s == trial:
            self.trial_until_s = 0.0

    def is_trying(self, now_s: float) -> bool:
        """Whether a trial is running."""
        return now_s < self.trial_until_s


class CircuitBreaker:
    """The circuit breaker of one server."""

    def __init__(
        self, name: str, now_s: Callable[[], float] = time.monotonic, state: BreakerState | None = None
    ) -> None:
        self._name, self._now_s = name, now_s
        self._state = state or BreakerState()

    @property
    def state(self) -> Literal["closed", "open", "trying"]:
        """`closed`: all requests pass; `open`: none does; `trying`: one request is running to test the server."""
        if self._state.failures < FAILURE_THRESHOLD:
            return "closed"
        return "trying" if self._state.is_trying(self._now_s()) else "open"

    def ensure_closed(self) -> None:
        """Checks that a request may be sent now.

        Raises:
            NotAskedError: the breaker is open; `retry_after_s` has the remaining cool-down.
        """
        state, left_s = self.state, self._state.open_until_s - self._now_s()
        if state == "closed" or (state == "open" and left_s <= 0):
            return
        message = f"{self._name} failed {self._state.failures} times in a row and gets no requests for a while"
        raise NotAskedError(message, retry_after_s=max(1, math.ceil(left_s)))

    def guard(self, *, insists: bool = False) -> "GuardedRequest":
        """Returns a context manager that counts the outcome of the request made in its block; call the function that it
        returns at the first byte of the response.

        From the first byte on other requests may pass too, though this one may still fail. If the caller stops reading
        the response, that counts as a success.

        Args:
            insists: whether the request is made also while the breaker is open.

        Raises:
            NotAskedError: the breaker is open.
        """
        return GuardedRequest(self, insists=insists)

    def begin(self) -> float | None:
        """Begins a request; returns its trial, or None while the breaker is closed."""
        if self._state.failures < FAILURE_THRESHOLD:
            return None
        with self._state.lock():
            self.ensure_closed()
            return None if self.state == "closed" else self._state.begin_trial(self._now_s())

    def end(self, trial: float | None, *, succeeded: bool, failed: bool) -> None:
        """Counts the outcome of a request; neither succeeded nor failed: it was cancelled.

        Args:
            trial: what `begin` returned.
            succeeded: whether the server has answered.
            failed: whether the server failed.
        """
        if failed:
            with self._state.lock():
                self._state.failures += 1
                self._state.open_until_s = self._now_s() + COOL_DOWN_S
        elif succeeded:
            self.limit_failures(0)
        if trial is not None:
            self._state.end_trial(trial)

    def limit_failures(self, limit: int) -> None:
        """Lowers the number of failures in a row to this limit."""
        if self._state.failures > limit:  # most requests change nothing, and need no lock
            with self._state.lock():
                self._state.failures = min(self._state.failures, limit)


class GuardedRequest:
    """One request; a class, as a generator would cost three times as much."""

    __slots__ = ("_breaker", "_insists", "_succeeded", "_trial")

    def __init__(self, breaker: CircuitBreaker, *, insists: bool = False) -> None:
        self._breaker, self._insists = breaker, insists
        self._succeeded = False

    def begin(self) -> Callable[[], None]:
        """Begins the request; see `CircuitBreaker.guard`."""
        self._trial = None if self._insists else self._breaker.begin()
        return self.on_first_byte

    def on_first_byte(self) -> None:
        """Counts the first byte of the response."""
        self._succeeded = True
        self._breaker.limit_failures(FAILURE_THRESHOLD - 1)

    def end(self, error: BaseException | None) -> None:
        """Counts the outcome: an error, or None if the response was read to its end."""
        failed = isinstance(error, DragomanError) and _is_failure(error)
        succeeded = self._succeeded or error is None or isinstance(error, DragomanError)
        self._breaker.end(self._trial, succeeded=succeeded, failed=failed)

    __enter__ = begin

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.end(error)


def _is_failure(error: DragomanError) -> bool:
    if isinstance(error, UpstreamError):
        return error.status is None or error.status >= 500
    return isinstance(error, RemoteError)
