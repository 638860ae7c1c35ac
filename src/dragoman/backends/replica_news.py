"""What replicas of a gateway report to each other about upstream servers, by a log of the state store.

    news.listen(topic, listener)         listener.apply(entry) is called for each entry of another replica
    news.publish(topic, left_s)          sent at once, in the background

A thread sends entries and reads the log once a second, so no request waits for the store. An entry states a duration,
because clocks of machines differ; it is at most as old as the time since the log was last read. While the store is
down, each replica decides by itself.
"""

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol
from weakref import WeakValueDictionary

import msgspec

from dragoman.core.errors import BackendUnavailableError
from dragoman.state.store import StateStore

log = logging.getLogger("dragoman.backends")

POLL_S: Final = 1.0
_LOG: Final = "upstreams"
_MAX_OUTGOING: Final = 100
_MODEL_CHARS: Final = 200


class NewsEntry(msgspec.Struct, frozen=True, omit_defaults=True, array_like=True):
    """A report about an upstream server or one of its models."""

    sender: str
    """The replica, by a random name of its process."""
    topic: str
    """What it is about, such as the circuit breaker of a server; the same on all replicas with the same settings."""
    left_s: float
    """How long the server or model gets no requests; 0: it gets requests again."""
    model: str = ""
    late_s: float = 0.0
    """How much less of `left_s` may be left; set by the reader."""


class NewsListener(Protocol):
    """What is changed by the reports of other replicas."""

    def apply(self, entry: NewsEntry) -> None:
        """Applies a report; called in another thread than requests."""


class ReplicaNews:
    """The reports of one process."""

    def __init__(self, store: StateStore, now_s: Callable[[], float] = time.monotonic) -> None:
        """Args:
        store: The store of all replicas.
        now_s: Monotonic clock, in seconds.
        """
        self._store, self._now_s = store, now_s
        self._id = secrets.token_hex(6)
        self._listeners: WeakValueDictionary[str, NewsListener] = WeakValueDictionary()
        self._outgoing: deque[tuple[float, NewsEntry]] = deque(maxlen=_MAX_OUTGOING)
        self._position = ""
        self._read_s = now_s()
        self._wake, self._closing = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def listen(self, topic: str, listener: NewsListener) -> None:
        """Calls `listener.apply` for reports of others about this topic, as long as the listener exists."""
        self._listeners[topic] = listener

    def publish(self, topic: str, left_s: float, model: str = "") -> None:
        """Reports to other replicas; does not wait.

        Args:
            topic: What it is about.
            left_s: How long it gets no requests; 0: it gets requests again.
            model: The model, if only that is meant.
        """
        if len(model) <= _MODEL_CHARS:
            self._outgoing.append((self._now_s(), NewsEntry(self._id, topic, left_s, model)))
            self._wake.set()

    def start(self) -> None:
        """Starts the thread, if it does not run."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="replica-news", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Ends the thread, after it has sent what is published."""
        self._closing.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def exchange(self) -> None:
        """Sends what is published, and applies what others have sent since the last time.

        Raises:
            BackendUnavailableError: The store cannot be used.
        """
        while self._outgoing:
            published_s, entry = self._outgoing[0]
            left_s = entry.left_s and max(0.0, entry.left_s - (self._now_s() - published_s))
            if left_s or not entry.left_s:
                self._store.append(_LOG, msgspec.msgpack.encode(msgspec.structs.replace(entry, left_s=left_s)))
            self._outgoing.popleft()
        page = self._store.read_log(_LOG, self._position)
        late_s, self._read_s = self._now_s() - self._read_s, self._now_s()
        self._position = page.position
        for value in page.values:
            self._apply(value, late_s)

    def _apply(self, value: bytes, late_s: float) -> None:
        try:
            entry = msgspec.msgpack.decode(value, type=NewsEntry)
        except msgspec.DecodeError:
            return  # of another version
        listener = self._listeners.get(entry.topic)
        if listener is not None and entry.sender != self._id and entry.left_s >= 0:
            listener.apply(msgspec.structs.replace(entry, late_s=late_s))

    def _run(self) -> None:
        while True:
            try:
                self.exchange()
            except BackendUnavailableError:
                pass  # the store logs it
            except Exception:
                log.exception("reports of other replicas cannot be read")
            if self._closing.is_set():
                return
            self._wake.wait(POLL_S)
            self._wake.clear()
