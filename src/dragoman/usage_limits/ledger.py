"""What each key has used, and the budgets that running requests reserve, in a `LedgerStore`.

All work on the store is done in one thread, in order, so the event loop never waits for a disk or a server. What cannot
be written is written later: a reservation fails meanwhile, so that no request with a budget is free.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final

from dragoman.core.errors import BackendUnavailableError, BudgetExceededError, RateLimitError
from dragoman.usage_limits import budgets
from dragoman.usage_limits.budgets import KeyBudget, Reserved, Spent
from dragoman.usage_limits.ledgers.ledger_store import KeyUsage, LedgerStore, UsageChanges

log = logging.getLogger("dragoman.usage_limits")

_FLUSH_S: Final = 1.0
"""How long the use of a key without budgets may be unwritten."""
_WRITE_RETRY_S: Final = 5.0
_BUSY_RETRY_S: Final = 2.0
_NUMBER_BITS: Final = 62


class Ledger:
    """The use of all keys, as one process sees it."""

    def __init__(self, store: LedgerStore, clock: Callable[[], float] = time.time) -> None:
        """Args:
        store: Where the use is kept.
        clock: Returns the seconds since 1970.
        """
        self._store, self._clock = store, clock
        self._thread = ThreadPoolExecutor(1, "dragoman-usage")
        self._unwritten: dict[str, Spent] = {}
        """Use that no thread has been given yet."""
        self._pending = UsageChanges()
        """What is not written yet; only for the thread."""
        self._writing: UsageChanges | None = None
        """What may have been written already."""
        self._flush: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._renewal: asyncio.TimerHandle | None = None
        self._reservations = 0

    async def reserve(self, key: str, limits: tuple[KeyBudget, ...], request: Reserved) -> int:
        """Reserves a part of the budgets; returns the number of the reservation.

        Args:
            key: The name of the key.
            limits: Its budgets.
            request: What the request may use.

        Raises:
            BudgetExceededError: A budget is used up.
            RateLimitError: What is left is reserved by running requests.
            BackendUnavailableError: The store cannot be used.
        """
        number = secrets.randbits(_NUMBER_BITS) + 1
        future = self._thread.submit(self._reserve, key, limits, request, number)
        try:
            await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            future.add_done_callback(partial(self._release_unused, key, number))
            raise
        self._reservations += 1
        if self._renewal is None and self._store.renew_s is not None:
            self._renew_later(self._store.renew_s)
        return number

    def settle(self, key: str, reservation: int, spent: Spent) -> None:
        """Replaces a reservation by what was used; does not wait.

        Args:
            key: The name of the key.
            reservation: The number of the reservation; 0: the key has no budgets.
            spent: What was used.
        """
        if reservation:
            self._reservations -= 1
            self._submit(self._settle, key, reservation, spent)
            return
        self._unwritten[key] = self._unwritten.get(key, Spent()).plus(spent)
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_later(_FLUSH_S, self._write_unwritten)

    async def usage(self, key: str) -> KeyUsage:
        """Returns what a key has used.

        Raises:
            BackendUnavailableError: The store cannot be used.
        """
        self._write_unwritten()
        return await asyncio.wrap_future(self._thread.submit(self._usage, key))

    def close(self) -> None:
        """Writes what is unwritten, and closes the store."""
        for timer in (self._retry, self._renewal):
            if timer is not None:
                timer.cancel()
        self._write_unwritten()
        self._thread.submit(self._close)
        self._thread.shutdown()

    def _submit(self, work: Callable[..., None], *arguments: object) -> None:
        """Runs work in the thread that nothing waits for; if something remains to be written, it is tried again."""
        future = self._thread.submit(work, *arguments)
        with suppress(RuntimeError):  # without a loop the store is about to be closed
            future.add_done_callback(partial(self._retry_later, asyncio.get_running_loop()))

    def _retry_later(self, loop: asyncio.AbstractEventLoop, future: "Future[None]") -> None:
        if self._writing is not None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._set_retry)

    def _set_retry(self) -> None:
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(_WRITE_RETRY_S, self._write_again)

    def _write_again(self) -> None:
        self._retry = None
        self._submit(self._try_to_write)

    def _renew_later(self, delay_s: float) -> None:
        self._renewal = asyncio.get_running_loop().call_later(delay_s, self._renew, delay_s)

    def _renew(self, delay_s: float) -> None:
        self._renewal = None
        if self._reservations > 0:
            self._submit(self._try_to_renew)
            self._renew_later(delay_s)

    def _write_unwritten(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        unwritten, self._unwritten = self._unwritten, {}
        if unwritten:
            self._submit(self._add, unwritten)

    def _release_unused(self, key: str, number: int, future: "Future[None]") -> None:
        """Releases the reservation of a request that was cancelled meanwhile; called in the thread."""
        if not future.cancelled() and future.exception() is None:
            self._thread.submit(self._settle, key, number, Spent())

    # What follows runs in the thread.

    def _reserve(self, key: str, limits: tuple[KeyBudget, ...], request: Reserved, number: int) -> None:
        self._write()
        now_s = self._clock()
        try:
            decision = self._store.reserve(key, limits, request, number, now_s)
        except BackendUnavailableError:
            self._pending.released.append((key, number))  # it may have been made
            raise
        if decision.used_up is not None:
            raise _used_up(decision.used_up, now_s)
        if not decision.has_room:
            raise RateLimitError(
                "what is left of the budget of this API key is reserved by requests that run; retry when one of them "
                "has ended",
                retry_after_s=_BUSY_RETRY_S,
            )

    def _settle(self, key: str, reservation: int, spent: Spent) -> None:
        self._pending.released.append((key, reservation))
        self._add({key: spent} if any(spent) else {})

    def _add(self, spent: dict[str, Spent]) -> None:
        day, _ = budgets.periods(self._clock())
        for key, each in spent.items():
            self._pending.add(key, day, each)
        self._try_to_write()

    def _usage(self, key: str) -> KeyUsage:
        self._write()
        return self._store.usage(key, self._clock())

    def _write(self) -> None:
        """Writes what is pending.

        Raises:
            BackendUnavailableError: The store cannot be written.
        """
        while self._writing or self._pending:
            if self._writing is None:
                self._writing, self._pending = self._pending, UsageChanges()
            self._store.write(self._writing)
            self._writing = None

    def _try_to_write(self) -> None:
        try:
            self._write()
        except BackendUnavailableError as error:
            keys = {key for batch in (self._writing, self._pending) if batch for key, _ in batch.spent}
            log.error("%s; the use of %d API keys is written later", error.message, len(keys))

    def _try_to_renew(self) -> None:
        with suppress(BackendUnavailableError):  # it is logged, and tried again
            self._store.renew()

    def _close(self) -> None:
        self._try_to_write()
        if self._writing or self._pending:
            log.error("the use of API keys that could not be written is lost")
        self._store.close()


def _used_up(budget: KeyBudget, now_s: float) -> BudgetExceededError:
    until = budgets.reset_time(now_s, is_month=budget.is_month)
    return BudgetExceededError(
        f"the budget of this API key ({budget.text()}) is used up; it is renewed at {until:%Y-%m-%dT%H:%MZ}",
        retry_after_s=until.timestamp() - now_s,
    )
