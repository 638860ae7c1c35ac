"""Responses that could not be stored, until their store works again.

    put ─→ store                       a failure → the response stays here, and is sent to the client all the same
           ↑ a thread tries again      until then, this process finds it here

No more than one of the responses that end during an outage waits for the store, so their streams end in time.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dragoman.core.errors import BackendUnavailableError
from dragoman.gateway.storage.stored_response import StoredResponse
from dragoman.state.store import StateKind, StateStore

log = logging.getLogger("dragoman.gateway.storage.response_store")

MAX_WAITING: Final = 10_000
MAX_BYTES: Final = 64 * 1024 * 1024
RETRY_S: Final = 0.5
_MAX_REFUSALS: Final = 5
"""So often a store that works may refuse a response, which may be too large for it."""
_MAX_FAILURES: Final = 2
"""So many failures end one round: a store that is out of order fails each time."""
_CLOSE_S: Final = 3.0


@dataclass(slots=True)
class _Waiting:
    stored: StoredResponse
    size_bytes: int
    then_used: Sequence[str]
    refusals: int = 0
    successes: int = 0
    """The successes of the outbox at the last failure: if there are more at the next one, it is a refusal."""


class ResponseOutbox:
    """Stores responses, at once or later."""

    def __init__(
        self,
        store: StateStore,
        kind: StateKind[StoredResponse],
        max_bytes: int = MAX_BYTES,
        retry_s: float = RETRY_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        store: The store.
        kind: The kind of the responses.
        max_bytes: Maximum size of the responses that wait; the oldest are dropped.
        retry_s: Time after which a store that failed is tried again, in seconds.
        now_s: Monotonic clock, in seconds.
        """
        self._store, self._kind, self._max_bytes, self._now_s = store, kind, max_bytes, now_s
        self._retry_s = retry_s
        self._waiting: OrderedDict[str, _Waiting] = OrderedDict()
        self._size_bytes = 0
        self._dropped = 0
        self._successes = 0
        self._failed_s = -retry_s
        self._lock = threading.Lock()
        """Protects `_waiting`, its size, and `_thread`; not held during I/O."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def dropped(self) -> int:
        """Number of responses that were dropped."""
        return self._dropped

    def get(self, id: str) -> StoredResponse | None:
        """Returns a response that waits."""
        with self._lock:
            entry = self._waiting.get(id)
            return entry.stored if entry else None

    def put(self, id: str, stored: StoredResponse, size_bytes: int, then_used: Sequence[str]) -> None:
        """Stores a response, or keeps it until that is possible.

        Args:
            id: Its id.
            stored: The response.
            size_bytes: What it needs in memory.
            then_used: Ids of responses that count as used after it.
        """
        if self._now_s() - self._failed_s >= self._retry_s:
            try:
                self._store.put(self._kind, id, stored, size_bytes, then_used)
            except BackendUnavailableError as error:
                self._failed_s = self._now_s()
                if not self._waiting:
                    log.warning("%s; responses stay in memory until they can be stored", error.message)
            else:
                self._successes += 1
                return
        with self._lock:
            self._remove(id)
            self._waiting[id] = _Waiting(stored, size_bytes, then_used, successes=self._successes)
            self._size_bytes += size_bytes
            while len(self._waiting) > MAX_WAITING or self._size_bytes > self._max_bytes:
                self._drop(next(iter(self._waiting)))
            if self._thread is None:
                self._stop.clear()
                self._thread = threading.Thread(target=self._run, name="response-outbox", daemon=True)
                self._thread.start()

    def discard(self, id: str) -> bool:
        """Drops a response that its client has deleted; returns whether it waited."""
        with self._lock:
            return self._remove(id)

    def flush(self) -> None:
        """Tries to store each response that waits, until the store fails."""
        failures = 0
        for id, entry in list(self._waiting.items()):
            if self._waiting.get(id) is not entry:
                continue
            try:
                self._store.put(self._kind, id, entry.stored, entry.size_bytes, entry.then_used)
            except BackendUnavailableError:
                self._failed_s = self._now_s()
                self._postpone(id, entry)
                failures += 1
                if failures == _MAX_FAILURES:
                    return
            else:
                self._failed_s = -self._retry_s
                self._successes += 1
                self._finish(id, entry)
        if not self._waiting:
            log.warning("all responses are stored again")

    def close(self) -> None:
        """Stores what waits, if that is possible now; a later `put` opens the outbox again."""
        thread = self._thread
        if thread is None:
            return
        self._stop.set()
        thread.join(_CLOSE_S)
        if self._waiting:
            log.warning("%d responses were not stored and cannot be continued", len(self._waiting))

    def _run(self) -> None:
        while True:
            stopped = self._stop.wait(self._retry_s)
            self.flush()
            with self._lock:
                if stopped or not self._waiting:
                    self._thread = None
                    return

    def _postpone(self, id: str, entry: _Waiting) -> None:
        """Lets others go first, and drops a response that the store refuses while it accepts others."""
        with self._lock:
            if self._waiting.get(id) is not entry:
                return
            self._waiting.move_to_end(id)
            entry.refusals += entry.successes != self._successes
            entry.successes = self._successes
            if entry.refusals == _MAX_REFUSALS:
                self._drop(id)

    def _finish(self, id: str, entry: _Waiting) -> None:
        with self._lock:
            is_wanted = self._waiting.get(id) is entry
            if is_wanted:
                self._remove(id)
        if not is_wanted:  # deleted meanwhile
            self._store.delete(self._kind, id)

    def _remove(self, id: str) -> bool:
        removed = self._waiting.pop(id, None)
        self._size_bytes -= removed.size_bytes if removed else 0
        return removed is not None

    def _drop(self, id: str) -> None:
        self._remove(id)
        self._dropped += 1
        log.warning("a response could not be stored and cannot be continued")
