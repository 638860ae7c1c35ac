"""Refuses the use of a store that has failed, until it may be tried again: a circuit breaker.

Without it, each request to a server that does not respond would wait for the time limit.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, NoReturn, TypeVar

from dragoman.core.errors import BackendUnavailableError

log = logging.getLogger("dragoman.state")

T = TypeVar("T")

RETRY_S: Final = 0.5
"""How long a store that has failed is not used; then one call tries it."""
_MAX_TRIAL_S: Final = 2.5
"""A trial that takes longer is no longer waited for; each one occupies a thread."""
_MAX_FAILURES: Final = 2
"""So many failures in a row are an outage; one is, if the call has waited as long as it may."""
_RETRY_AFTER_S: Final = 1.0
_LOG_EVERY_S: Final = 10.0
_MAX_REASON: Final = 200


class OutageBreaker:
    """Runs the operations of a store, and fails at once while the store is out of order."""

    def __init__(
        self,
        name: str,
        outages: tuple[type[Exception], ...],
        timeouts: tuple[type[Exception], ...],
        rejections: tuple[type[Exception], ...] = (),
        now_s: Callable[[], float] = time.monotonic,
        on_outage: Callable[[], object] = lambda: None,
    ) -> None:
        """Args:
        name: The store in messages, without secrets.
        outages: Exceptions of a store that cannot be reached.
        timeouts: Exceptions after which the store is not used again at once.
        rejections: Exceptions of a store that works, but has refused the operation.
        now_s: Monotonic clock, in seconds.
        on_outage: Called when the store is no longer used, such as to close idle connections.
        """
        self._name, self._now_s, self._on_outage = name, now_s, on_outage
        self._outages, self._timeouts, self._errors = (
            (*outages, *timeouts),
            timeouts,
            (*outages, *timeouts, *rejections),
        )
        self._lock = threading.Lock()
        self._failures = 0
        self._succeeded_s = 0.0
        self._retry_s = 0.0
        self._logged_s = -_LOG_EVERY_S

    def run(self, operation: Callable[[], T]) -> T:
        """Returns what the operation returns.

        Raises:
            BackendUnavailableError: The store cannot be used now; a note has the reason, for the operator.
        """
        began_s = self._now_s()
        if self._failures >= _MAX_FAILURES:
            self._admit(began_s)
        try:
            result = operation()
        except self._errors as error:
            self._fail(error, began_s)
        self._succeeded_s = began_s
        if self._failures:
            self._recover()
        return result

    def _admit(self, now_s: float) -> None:
        """Admits one call at a time, each after the waiting time."""
        with self._lock:
            if now_s >= self._retry_s:
                self._retry_s = now_s + _MAX_TRIAL_S
                return
        raise BackendUnavailableError(f"{self._name} cannot be used now", retry_after_s=_RETRY_AFTER_S)

    def _fail(self, error: Exception, began_s: float) -> NoReturn:
        now_s = self._now_s()
        is_outage, is_timeout = isinstance(error, self._outages), isinstance(error, self._timeouts)
        with self._lock:
            # A call that began before the last success says nothing about the store now.
            if is_outage and began_s >= self._succeeded_s:
                self._failures = max(self._failures + 1, _MAX_FAILURES if is_timeout else 0)
                self._retry_s = now_s + RETRY_S
            is_logged = now_s - self._logged_s >= _LOG_EVERY_S
            self._logged_s = now_s if is_logged else self._logged_s
            is_open = self._failures >= _MAX_FAILURES
        if is_outage and is_open:
            self._on_outage()
        reason = self._reason(error)
        if is_logged:
            log.warning("%s cannot be used: %s", self._name, reason)
        # The client gets no text of the error: it may contain the address, the statement or the value.
        message = f"{self._name} cannot be used: {type(error).__name__}"
        unavailable = BackendUnavailableError(message, retry_after_s=_RETRY_AFTER_S)
        unavailable.add_note(reason)
        raise unavailable from None

    def _reason(self, error: Exception) -> str:
        """Returns the first line of an error of the connection; other errors may contain values."""
        line = next(iter(str(error).splitlines()), "") if isinstance(error, self._outages) else ""
        return f"{type(error).__name__}: {line[:_MAX_REASON]}" if line else type(error).__name__

    def _recover(self) -> None:
        with self._lock:
            was_outage = self._failures >= _MAX_FAILURES
            self._failures = 0
        if was_outage:
            log.warning("%s can be used again", self._name)
