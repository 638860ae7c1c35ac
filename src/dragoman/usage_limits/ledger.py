"""What each key has used, and the budgets that running requests reserve, in an SQLite file.

The file is shared by all gateways and processes of a machine that name it, and survives a restart. A reservation
belongs to the process that made it: when that has ended, however it ended, the reservation no longer counts.

All work on the file is done in one thread, in order, so the event loop never waits for the disk.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from dragoman.core.errors import BackendUnavailableError, BudgetExceededError, ConfigError, RateLimitError
from dragoman.usage_limits import budgets
from dragoman.usage_limits.budgets import KeyBudget, Reserved, Spent
from dragoman.usage_limits.ledger_file import LedgerFile

log = logging.getLogger("dragoman.usage_limits")

T = TypeVar("T")

_FLUSH_S: Final = 1.0
"""How long the use of a key without budgets may be unwritten."""
_BUSY_RETRY_S: Final = 2.0
_ERROR_RETRY_S: Final = 5.0


class KeyUsage(NamedTuple):
    """What a key has used, and has reserved."""

    day: Spent
    month: Spent
    running: Reserved


class Ledger:
    """The use of all keys."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """Args:
            path: The file; created if missing, with its folder.
            clock: Returns the seconds since 1970.

        Raises:
            ConfigError: The file cannot be used.
        """
        self._clock = clock
        try:
            self._file = LedgerFile(path, clock)
        except (OSError, sqlite3.Error) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigError(f"expected a writable SQLite file, got {path}: {why} - at limits.path") from None
        self._thread = ThreadPoolExecutor(1, "dragoman-usage")
        self._unwritten: dict[str, Spent] = {}
        """Use that no thread has been given yet."""
        self._pending: dict[tuple[str, str], Spent] = {}
        """Use by key and day that could not be written yet; only for the thread."""
        self._flush: asyncio.TimerHandle | None = None

    async def reserve(self, key: str, limits: tuple[KeyBudget, ...], request: Reserved) -> int:
        """Reserves a part of the budgets; returns the number of the reservation.

        Args:
            key: The name of the key.
            limits: Its budgets.
            request: What the request may use.

        Raises:
            BudgetExceededError: A budget is used up.
            RateLimitError: What is left is reserved by running requests.
            BackendUnavailableError: The file cannot be used.
        """
        future = self._thread.submit(self._reserve, key, limits, request)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            future.add_done_callback(self._release_unused)
            raise

    def settle(self, key: str, reservation: int, spent: Spent) -> None:
        """Replaces a reservation by what was used; does not wait.

        Args:
            key: The name of the key.
            reservation: The number of the reservation; 0: the key has no budgets.
            spent: What was used.
        """
        if reservation:
            self._thread.submit(self._settle, key, reservation, spent)
            return
        self._unwritten[key] = self._unwritten.get(key, Spent()).plus(spent)
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_later(_FLUSH_S, self._write_unwritten)

    async def usage(self, key: str) -> KeyUsage:
        """Returns what a key has used.

        Raises:
            BackendUnavailableError: The file cannot be used.
        """
        self._write_unwritten()
        return await asyncio.wrap_future(self._thread.submit(self._usage, key))

    def close(self) -> None:
        """Writes what is unwritten, and closes the file."""
        self._write_unwritten()
        self._thread.submit(self._file.close)
        self._thread.shutdown()

    def _write_unwritten(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        unwritten, self._unwritten = self._unwritten, {}
        if unwritten:
            self._thread.submit(self._add, unwritten)

    def _release_unused(self, future: Future[int]) -> None:
        """Releases the reservation of a request that was cancelled meanwhile."""
        if not future.cancelled() and future.exception() is None:
            self._thread.submit(self._settle, "", future.result(), Spent())

    # What follows runs in the thread.

    def _reserve(self, key: str, limits: tuple[KeyBudget, ...], request: Reserved) -> int:
        with self._transaction():
            now_s = self._clock()
            day, month = (self._file.spent(key, period) for period in budgets.periods(now_s))
            if (used_up := budgets.exceeded(limits, day, month)) is not None:
                raise _used_up(used_up, now_s)
            running = self._file.reserved(key)
            if not budgets.has_room(limits, day, month, running, request) and self._file.release_ended(key):
                running = self._file.reserved(key)
            if not budgets.has_room(limits, day, month, running, request):
                raise RateLimitError(
                    "what is left of the budget of this API key is reserved by requests that run; retry when one of "
                    "them has ended",
                    retry_after_s=_BUSY_RETRY_S,
                )
            return self._file.reserve(key, request)

    def _settle(self, key: str, reservation: int, spent: Spent) -> None:
        if any(spent):
            self._keep({key: spent})
        try:
            with self._transaction():
                self._file.release(reservation)
        except BackendUnavailableError as error:
            self._file.release_later(reservation)
            log.error("%s; the use of the API key %s is written later", error.message, key)

    def _add(self, spent: dict[str, Spent]) -> None:
        self._keep(spent)
        try:
            with self._transaction():
                pass
        except BackendUnavailableError as error:
            log.error("%s; the use of %d API keys is written later", error.message, len(spent))

    def _usage(self, key: str) -> KeyUsage:
        with self._transaction():
            self._file.release_ended(key)
            day, month = (self._file.spent(key, period) for period in budgets.periods(self._clock()))
            return KeyUsage(day, month, self._file.reserved(key))

    def _keep(self, spent: dict[str, Spent]) -> None:
        day, _ = budgets.periods(self._clock())
        for key, each in spent.items():
            self._pending[key, day] = self._pending.get((key, day), Spent()).plus(each)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Runs the block in a transaction that begins with writing what is pending.

        Raises:
            BackendUnavailableError: The file cannot be read or written.
        """
        try:
            with self._file.transaction():
                for (key, day), spent in self._pending.items():
                    self._file.add(key, day, spent)
                yield
            self._pending.clear()
        except (OSError, sqlite3.Error) as error:
            message = f"the use of API keys in {self._file.path.name} cannot be read or written: {error}"
            raise BackendUnavailableError(message, retry_after_s=_ERROR_RETRY_S) from error


def _used_up(budget: KeyBudget, now_s: float) -> BudgetExceededError:
    until = budgets.reset_time(now_s, is_month=budget.is_month)
    return BudgetExceededError(
        f"the budget of this API key ({budget.text()}) is used up; it is renewed at {until:%Y-%m-%dT%H:%MZ}",
        retry_after_s=until.timestamp() - now_s,
    )
