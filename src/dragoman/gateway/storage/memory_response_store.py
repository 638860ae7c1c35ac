"""Stored responses in the memory of this process."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from dragoman.core.messages import ExtraFields, Part, PreviousResponseRef, ToolResult, UnknownPart
from dragoman.gateway.storage.response_store import MAX_BYTES, MAX_RESPONSES, TTL_S, ResponseStore, StoredResponse


@dataclass(slots=True)
class _Entry:
    stored: StoredResponse
    used_s: float


class MemoryResponseStore(ResponseStore):
    """Responses that are lost when the process ends."""

    does_io = False

    def __init__(
        self,
        max_responses: int = MAX_RESPONSES,
        max_bytes: int = MAX_BYTES,
        ttl_s: float = TTL_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        max_responses: Maximum number of responses; 0: none is stored.
        max_bytes: Maximum total size.
        ttl_s: Time after the last use after which a response is deleted, in seconds.
        now_s: Monotonic clock, in seconds.
        """
        super().__init__(max_responses, max_bytes, ttl_s)
        self._now_s = now_s
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        """The least recently used response comes first."""
        self._size_bytes = 0
        self._lock = threading.RLock()
        """Protects `_entries`, as large requests are resolved and stored in threads. Not held for work that grows with
        a request."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        """The total size of the stored responses."""
        return self._size_bytes

    def delete(self, id: str) -> bool:
        """Deletes a response. Returns whether it was stored."""
        with self._lock:
            entry = self._entries.pop(id, None)
            self._size_bytes -= entry.stored.size_bytes if entry else 0
            return entry is not None

    def close(self) -> None:
        """Does nothing: the responses stay until the process ends."""

    def _load(self, id: str) -> StoredResponse | None:
        return next(iter(self._chain(id)), None)

    def _chain(self, id: str) -> list[StoredResponse | None]:
        with self._lock:
            self._evict()
            return self._touch(id)

    def _put(self, id: str, stored: StoredResponse) -> None:
        parts = tuple(part and _detach(part) for part in stored.parts)
        messages = tuple(
            msgspec.structs.replace(m, parts=tuple(map(_detach, m.parts)), extra=_copy_extra(m.extra))
            for m in stored.input_messages
        )
        with self._lock:
            self.delete(id)
            self._entries[id] = _Entry(replace(stored, input_messages=messages, parts=parts), self._now_s())
            self._size_bytes += stored.size_bytes
            self._touch(id)
            self._evict()

    def _touch(self, id: str) -> list[StoredResponse | None]:
        """As `_chain`, with the lock held."""
        replies: list[StoredResponse | None] = []
        while id:
            entry = self._entries.get(id)
            if entry is not None:
                entry.used_s = self._now_s()
                self._entries.move_to_end(id)
            replies.append(entry.stored if entry else None)
            id = entry.stored.previous_id if entry else ""
        return replies

    def _evict(self) -> None:
        """Removes what is too old or too much, with the lock held."""
        oldest_s = self._now_s() - self._ttl_s
        while self._entries:
            id, entry = next(iter(self._entries.items()))
            within_limits = len(self._entries) <= self._max_responses and self._size_bytes <= self._max_bytes
            if entry.used_s >= oldest_s and within_limits:
                return
            self.delete(id)


def _detach(part: Part) -> Part:
    """Returns a copy of the part whose JSON does not keep the bytes of its request in memory."""
    match part:
        case PreviousResponseRef():
            return part
        case UnknownPart():
            return msgspec.structs.replace(part, raw=part.raw.copy())
        case ToolResult():
            inner = tuple(map(_detach, part.parts))
            return msgspec.structs.replace(part, parts=inner, extra=_copy_extra(part.extra))
        case _:
            return msgspec.structs.replace(part, extra=_copy_extra(part.extra))


def _copy_extra(extra: ExtraFields) -> ExtraFields:
    return {name: raw.copy() for name, raw in extra.items()}
