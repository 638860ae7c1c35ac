"""Verbatim replies in the store that replicas share, so that each renders past turns as the model wrote them.

Replies are written in the background, and looked up only for tool calls that this process does not know. While the
store is down they are lost: such a turn is rendered in the format's own form, which costs the prompt cache.
"""

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from dragoman.core.errors import BackendUnavailableError
from dragoman.core.messages import ToolCall
from dragoman.state.store import StateKind, StateStore

log = logging.getLogger("dragoman.backends.text_mode.shared_replies")

MAX_LOOKUP: Final = 1000
"""Number of replies that are looked up for one request."""
RETRY_S: Final = 60.0
"""How long a reply that was not found is not looked up again: calls of other models never are."""
_MAX_QUEUED: Final = 1000
_MAX_MISSING: Final = 10_000
_TTL_S: Final = 24 * 3600.0

Call = tuple[str, str, str]


class StoredReply(NamedTuple):
    """A reply with tool calls."""

    raw: str
    """The whole reply; empty if a part of it must not be shown again, such as reasoning."""
    text: str
    """Its text without calls."""
    calls: tuple[ToolCall, ...]

    @property
    def chars(self) -> int:
        """The size of its text and arguments."""
        return len(self.raw) + len(self.text) + sum(len(call.arguments) for call in self.calls)


def _encode(reply: StoredReply) -> bytes:
    return msgspec.json.encode((reply.raw, reply.text, [(c.id, c.name, c.arguments) for c in reply.calls]))


def _decode(written: bytes) -> StoredReply:
    raw, text, calls = msgspec.json.decode(written, type=tuple[str, str, tuple[Call, ...]])
    return StoredReply(raw, text, tuple(ToolCall(*call) for call in calls))


KIND: Final = StateKind("replies", _encode, _decode, _TTL_S, is_renewed=True)


class SharedReplies:
    """The replies of all replicas; all methods can be called in any thread."""

    def __init__(self, store: StateStore, now_s: Callable[[], float] = time.monotonic) -> None:
        """Args:
        store: The store that the replicas share.
        now_s: Monotonic clock, in seconds.
        """
        self._store, self._now_s = store, now_s
        self._queue: deque[tuple[str, StoredReply]] = deque(maxlen=_MAX_QUEUED)
        self._missing: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()
        """Protects `_missing` and `_is_writing`; not held during I/O."""
        self._is_writing = False

    def add(self, key: str, reply: StoredReply) -> None:
        """Stores a reply in the background."""
        with self._lock:
            self._queue.append((key, reply))
            if self._is_writing:
                return
            self._is_writing = True
        threading.Thread(target=self._write, name="shared-replies", daemon=True).start()

    def unasked(self, keys: Sequence[str]) -> list[str]:
        """Returns the keys that may be worth a look-up, the first `MAX_LOOKUP`."""
        oldest_s = self._now_s() - RETRY_S
        with self._lock:
            return [key for key in keys if self._missing.get(key, -RETRY_S) <= oldest_s][:MAX_LOOKUP]

    def find(self, keys: Sequence[str]) -> dict[str, StoredReply]:
        """Returns the replies that are stored; none while the store is down."""
        try:
            found = self._store.get_many(KIND, keys)
        except BackendUnavailableError as error:
            log.debug("past replies were not looked up: %s", error.message)
            return {}
        with self._lock:
            for key, reply in zip(keys, found, strict=True):
                if reply is None:
                    self._missing[key] = self._now_s()
                    self._missing.move_to_end(key)
            while len(self._missing) > _MAX_MISSING:
                self._missing.popitem(last=False)
        return {key: reply for key, reply in zip(keys, found, strict=True) if reply is not None}

    def _write(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._is_writing = False
                    return
                key, reply = self._queue.popleft()
            try:
                self._store.put(KIND, key, reply, reply.chars)
            except (BackendUnavailableError, ValueError) as error:  # ValueError: text that is not Unicode
                log.debug("a reply was not shared: %s", type(error).__name__)
