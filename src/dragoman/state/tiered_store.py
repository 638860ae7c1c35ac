"""State in two stores: a database for what must not be lost, and a faster one for everything else."""

from collections.abc import Sequence
from typing import TypeVar

from dragoman.state.store import LogPage, StateKind, StateStore

T = TypeVar("T")


class TieredStateStore(StateStore):
    """Durable kinds in one store, other kinds and all logs in another one. If one fails, the other can be used."""

    does_io = True

    def __init__(self, durable: StateStore, other: StateStore) -> None:
        """Args:
        durable: The store of durable kinds.
        other: The store of other kinds and of logs.
        """
        self._durable, self._other = durable, other

    def get_many(self, kind: StateKind[T], keys: Sequence[str]) -> list[T | None]:
        """See `StateStore`."""
        return self._store(kind).get_many(kind, keys)

    def put(self, kind: StateKind[T], key: str, value: T, size_bytes: int, then_used: Sequence[str] = ()) -> None:
        """See `StateStore`.

        Args:
            kind: The kind of state.
            key: The key.
            value: The value.
            size_bytes: What it needs in memory.
            then_used: Keys of values that count as used after this one.
        """
        self._store(kind).put(kind, key, value, size_bytes, then_used)

    def put_if_absent(self, kind: StateKind[T], key: str, value: T, size_bytes: int) -> bool:
        """See `StateStore`.

        Args:
            kind: The kind of state.
            key: The key.
            value: The value.
            size_bytes: What it needs in memory.
        """
        return self._store(kind).put_if_absent(kind, key, value, size_bytes)

    def delete(self, kind: StateKind[T], key: str) -> bool:
        """See `StateStore`."""
        return self._store(kind).delete(kind, key)

    def usage(self, kind: StateKind[T]) -> tuple[int, int]:
        """See `StateStore`."""
        return self._store(kind).usage(kind)

    def append(self, log: str, value: bytes) -> None:
        """See `StateStore`."""
        self._other.append(log, value)

    def read_log(self, log: str, position: str = "") -> LogPage:
        """See `StateStore`."""
        return self._other.read_log(log, position)

    def close(self) -> None:
        """Closes both stores, also if closing the first one fails."""
        try:
            self._durable.close()
        finally:
            self._other.close()

    def _store(self, kind: StateKind[T]) -> StateStore:
        return self._durable if kind.is_durable else self._other
