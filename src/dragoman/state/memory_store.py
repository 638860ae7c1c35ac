"""State in the memory of this process. Values are kept as objects; nothing is encoded."""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from dragoman.state.store import LOG_ENTRIES, LogPage, StateKind, StateStore

T = TypeVar("T")


@dataclass(slots=True)
class _Value:
    value: Any
    size_bytes: int
    used_s: float


@dataclass(slots=True)
class _Values:
    """The values of one kind, the least recently used one first."""

    by_key: OrderedDict[str, _Value] = field(default_factory=OrderedDict)
    size_bytes: int = 0

    def remove(self, key: str) -> bool:
        removed = self.by_key.pop(key, None)
        self.size_bytes -= removed.size_bytes if removed else 0
        return removed is not None


@dataclass(slots=True)
class _Log:
    entries: deque[bytes] = field(default_factory=lambda: deque(maxlen=LOG_ENTRIES))
    count: int = 0


class MemoryStateStore(StateStore):
    """State that is lost when the process ends."""

    does_io = False

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        """Args:
        now_s: Monotonic clock, in seconds.
        """
        self._now_s = now_s
        self._kinds: dict[str, _Values] = {}
        self._logs: dict[str, _Log] = {}
        self._lock = threading.Lock()
        """Not held for work that grows with a request."""

    def get_many(self, kind: StateKind[T], keys: Sequence[str]) -> list[T | None]:
        """See `StateStore`."""
        with self._lock:
            values, now_s = self._evicted(kind), self._now_s()
            found: list[T | None] = []
            for key in keys:
                entry = values.by_key.get(key)
                if entry is not None and kind.is_renewed:
                    entry.used_s = now_s
                    values.by_key.move_to_end(key)
                found.append(entry.value if entry else None)
            return found

    def put(self, kind: StateKind[T], key: str, value: T, size_bytes: int, then_used: Sequence[str] = ()) -> None:
        """See `StateStore`.

        Args:
            kind: The kind of state.
            key: The key.
            value: The value.
            size_bytes: What it needs in memory.
            then_used: Keys of values that count as used after this one.
        """
        with self._lock:
            self._put(kind, key, value, size_bytes, then_used)

    def put_if_absent(self, kind: StateKind[T], key: str, value: T, size_bytes: int) -> bool:
        """See `StateStore`.

        Args:
            kind: The kind of state.
            key: The key.
            value: The value.
            size_bytes: What it needs in memory.
        """
        with self._lock:
            if key in self._evicted(kind).by_key:
                return False
            self._put(kind, key, value, size_bytes)
            return True

    def delete(self, kind: StateKind[T], key: str) -> bool:
        """See `StateStore`."""
        with self._lock:
            return self._evicted(kind).remove(key)

    def usage(self, kind: StateKind[T]) -> tuple[int, int]:
        """See `StateStore`."""
        with self._lock:
            values = self._evicted(kind)
            return len(values.by_key), values.size_bytes

    def append(self, log: str, value: bytes) -> None:
        """See `StateStore`."""
        with self._lock:
            stored = self._logs.setdefault(log, _Log())
            stored.entries.append(value)
            stored.count += 1

    def read_log(self, log: str, position: str = "") -> LogPage:
        """See `StateStore`."""
        with self._lock:
            stored = self._logs.setdefault(log, _Log())
            new = min(stored.count - int(position), len(stored.entries)) if position else 0
            return LogPage(str(stored.count), list(islice(reversed(stored.entries), max(new, 0)))[::-1])

    def close(self) -> None:
        """Does nothing: the state stays until the process ends."""

    def _put(self, kind: StateKind[T], key: str, value: T, size_bytes: int, then_used: Sequence[str] = ()) -> None:
        values, now_s = self._kinds.setdefault(kind.name, _Values()), self._now_s()
        values.remove(key)
        values.by_key[key] = _Value(value, size_bytes, now_s)
        values.size_bytes += size_bytes
        for used in then_used:
            if (entry := values.by_key.get(used)) is not None:
                entry.used_s = now_s
                values.by_key.move_to_end(used)
        self._evicted(kind)

    def _evicted(self, kind: StateKind[T]) -> _Values:
        """Returns the values of a kind, without what is too old or too much."""
        values = self._kinds.setdefault(kind.name, _Values())
        oldest_s = self._now_s() - kind.ttl_s
        while values.by_key:
            key, entry = next(iter(values.by_key.items()))
            within_limits = len(values.by_key) <= kind.max_entries and values.size_bytes <= kind.max_bytes
            if entry.used_s >= oldest_s and within_limits:
                break
            values.remove(key)
        return values
