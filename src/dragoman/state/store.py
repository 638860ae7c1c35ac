"""Interface of stores for state that outlives a request.

    TURNS = StateKind("turns", encode, decode, ttl_s=3600)
    store.put(TURNS, "call_1", turn)
    store.get(TURNS, "call_1")                  on any replica

A `StateKind` says what is stored, for how long, and what its loss means; a `StateStore` says where. All stores pass the
same tests (tests/contract/test_state_stores.py). What several replicas may see late is stated by each kind.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

MAX_ENTRIES: Final = 10_000
MAX_BYTES: Final = 64 * 1024 * 1024
LOG_ENTRIES: Final = 10_000
"""Number of the latest entries of a log that `read_log` finds; older ones may be gone."""


@dataclass(frozen=True, slots=True)
class StateKind(Generic[T]):
    """One kind of state, such as stored responses.

    `max_entries` and `max_bytes` hold for stores of one machine; a Redis server has limits of its own.
    """

    name: str
    """Lower-case letters and underscores; part of the keys of a store."""
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    """Raises ValueError if another version wrote the bytes; the value then counts as not stored."""
    ttl_s: float
    """A value goes so many seconds after it was written or, if `is_renewed`, last read."""
    is_renewed: bool = False
    """Whether a read counts as use; a database ignores reads in the first sixteenth of the TTL."""
    is_durable: bool = False
    """Whether a user would notice the loss, so that the value belongs into a database."""
    max_entries: int = MAX_ENTRIES
    max_bytes: int = MAX_BYTES


class LogPage(NamedTuple):
    """Entries of a log, and where the next page begins."""

    position: str
    """For the next `read_log`; opaque."""
    values: Sequence[bytes]


class StateStore(ABC):
    """Values by kind and key, counters, and logs.

    All methods can be called in any thread. Keys are any text, also with lone surrogates.

    Raises (all methods but `close`):
        BackendUnavailableError: The store cannot be used now; nothing is half written.
    """

    does_io: ClassVar[bool]
    """Whether calls wait for a disk or a network, so that they belong in a thread."""

    @abstractmethod
    def get_many(self, kind: StateKind[T], keys: Sequence[str]) -> list[T | None]:
        """Returns the values of these keys in their order, None for those that are not stored.

        If the kind is renewed, the last key counts as the most recently used one.
        """

    def get(self, kind: StateKind[T], key: str) -> T | None:
        """Returns the value of a key, None if it is not stored."""
        return self.get_many(kind, (key,))[0]

    @abstractmethod
    def put(self, kind: StateKind[T], key: str, value: T, size_bytes: int, then_used: Sequence[str] = ()) -> None:
        """Stores a value in place of an earlier one, and removes what exceeds the limits of the kind.

        Args:
            kind: The kind of state.
            key: The key.
            value: The value; not changed afterwards by anyone.
            size_bytes: What it needs in memory, for the limits of the kind.
            then_used: Keys of values that count as used after this one, for stores with the limits of the kind.
        """

    @abstractmethod
    def put_if_absent(self, kind: StateKind[T], key: str, value: T, size_bytes: int) -> bool:
        """Stores a value if the key has none; returns whether it was stored. Only one of several callers wins.

        Args:
            kind: The kind of state.
            key: The key.
            value: The value; not changed afterwards by anyone.
            size_bytes: What it needs in memory.
        """

    @abstractmethod
    def delete(self, kind: StateKind[T], key: str) -> bool:
        """Deletes a value; returns whether it was stored."""

    @abstractmethod
    def usage(self, kind: StateKind[T]) -> tuple[int, int]:
        """Returns the number of values of this kind and their size in bytes; a remote store may estimate them."""

    @abstractmethod
    def append(self, log: str, value: bytes) -> None:
        """Adds an entry to a log, which all replicas read.

        Args:
            log: The name of the log, as that of a kind.
            value: The entry.
        """

    @abstractmethod
    def read_log(self, log: str, position: str = "") -> LogPage:
        """Returns the entries after a position, in the order in which they were added.

        Args:
            log: The name of the log.
            position: Of the last page; empty: the end of the log now, so that later pages have what is new.
        """

    @abstractmethod
    def close(self) -> None:
        """Releases files and connections; a later call opens them again."""
