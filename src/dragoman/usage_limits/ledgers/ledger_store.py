"""Interface of stores for what keys have used and what running requests reserve.

All stores pass the same tests (tests/unit/usage_limits/test_ledger.py). Methods are called by one thread at a time.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dragoman.usage_limits import budgets
from dragoman.usage_limits.budgets import KeyBudget, Reserved, Spent

MAX_SUM: Final = 1 << 61
"""Maximum of a sum; two of them fit into 63 bits."""
ERROR_RETRY_S: Final = 5.0
"""`retry_after_s` of an error."""


class KeyUsage(NamedTuple):
    """What a key has used, and has reserved."""

    day: Spent
    month: Spent
    running: Reserved

    def decide(self, limits: tuple[KeyBudget, ...], request: Reserved) -> "Decision":
        """Returns whether another request may start."""
        used_up = budgets.exceeded(limits, self.day, self.month)
        has_room = used_up is None and budgets.has_room(limits, self.day, self.month, self.running, request)
        return Decision(used_up, has_room)


class Decision(NamedTuple):
    """Whether a request may start."""

    used_up: KeyBudget | None = None
    """The budget that is used up."""
    has_room: bool = True
    """Whether it was reserved; if no budget is used up, running requests reserve what is left."""


@dataclass(slots=True)
class UsageChanges:
    """Changes that are written together. A store applies them once, also if `write` is called again."""

    spent: dict[tuple[str, str], Spent] = field(default_factory=dict)
    """By key and day, such as `2026-11-26`."""
    released: list[tuple[str, int]] = field(default_factory=list)
    """Reservations that have ended, with their keys."""
    id: str = field(default_factory=lambda: secrets.token_hex(16))

    def add(self, key: str, day: str, spent: Spent) -> None:
        """Adds what a key has used on a day."""
        total = self.spent.get((key, day), Spent()).plus(spent)
        self.spent[key, day] = Spent(*(min(amount, MAX_SUM) for amount in total))

    def __bool__(self) -> bool:
        return bool(self.spent or self.released)


class LedgerStore(ABC):
    """The use of all keys.

    Raises (all methods but `close`):
        BackendUnavailableError: The store cannot be used now.
    """

    renew_s: float | None = None
    """How often `renew` is called while requests run; None: the store notices by itself when a process has ended."""

    @abstractmethod
    def reserve(
        self, key: str, limits: tuple[KeyBudget, ...], request: Reserved, number: int, now_s: float
    ) -> Decision:
        """Reserves a part of the budgets, if there is room.

        Args:
            key: The name of the key.
            limits: Its budgets.
            request: What the request may use.
            number: The number of the reservation; with one that exists already, it is the same reservation.
            now_s: Seconds since 1970.
        """

    @abstractmethod
    def write(self, batch: UsageChanges) -> None:
        """Writes changes: all of them, or none."""

    @abstractmethod
    def usage(self, key: str, now_s: float) -> KeyUsage:
        """Returns what a key has used and reserved."""

    @abstractmethod
    def used_by_all(self, now_s: float) -> Mapping[str, tuple[Spent, Spent]]:
        """Returns what each key has used today and in this month."""

    def renew(self) -> None:  # noqa: B027 only stores with leases need it
        """Keeps the reservations of this process valid."""

    @abstractmethod
    def close(self) -> None:
        """Releases the reservations of this process, and closes files and connections."""
