"""Admits the requests of a key within its limits, and counts what they have used in the end.

admission = limits.begin("alice", settings)      None of this costs anything for a request without a named key
await admission.admit(estimate)                  reserves a part of each limit, or raises the error for the client
admission.settle(used)                           always, in the end: replaces what was reserved by what was used
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from dragoman.core.errors import BackendUnavailableError, ConfigError, RateLimitError
from dragoman.core.messages import Usage
from dragoman.prices.price_book import PriceBook
from dragoman.usage_limits.budgets import KeyBudget, Reserved, Spent, bounded, budgets_of, nano_usd
from dragoman.usage_limits.concurrency import RunningRequests
from dragoman.usage_limits.config import KeyLimits
from dragoman.usage_limits.largest import LargestResponses
from dragoman.usage_limits.ledger import Ledger
from dragoman.usage_limits.ledgers.ledger_store import KeyUsage
from dragoman.usage_limits.windows import WINDOW_S, RateWindows, WindowState

log = logging.getLogger("dragoman.usage_limits")

T = TypeVar("T")

_CONCURRENCY_RETRY_S: Final = 1.0


class Estimate(NamedTuple):
    """What a request may use, before it is sent."""

    prompt_tokens: int = 0
    output_tokens: int | None = None
    """The maximum of the request; None: it has none."""
    models: Sequence[tuple[str, str]] = ()
    """Backends that may answer, each with its own name of the model."""
    samples: int = 1
    """Responses of that length that may be requested at the same time."""


class Used(NamedTuple):
    """What a request has used."""

    usage: Usage
    upstream: str
    model: str
    """The backend's own name of the model."""
    seconds: float


class UsageLimits:
    """The limits and the use of all keys, as one process of a gateway sees them."""

    def __init__(
        self,
        ledger: Callable[[], Ledger],
        windows: Callable[[], RateWindows],
        running: Callable[[], RunningRequests],
        reserved_output_tokens: int,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        ledger: The use of all keys, and their budgets.
        windows: Returns the windows of a minute; called in a thread when the first key needs them.
        running: The running requests.
        reserved_output_tokens: Tokens that are reserved for a response without a maximum.
        now_s: Monotonic clock, in seconds.
        """
        self._new_ledger, self._new_running, self.now_s = ledger, running, now_s
        self.reserved_output_tokens = reserved_output_tokens
        self.largest = LargestResponses()
        self._new_windows = windows
        self._windows: RateWindows | None = None
        self._windows_lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    @cached_property
    def ledger(self) -> Ledger:
        """The use of all keys.

        Raises:
            BackendUnavailableError: Its file cannot be used.
        """
        return _opened(self._new_ledger)

    @cached_property
    def running(self) -> RunningRequests:
        """The running requests.

        Raises:
            BackendUnavailableError: They cannot be counted.
        """
        return _opened(self._new_running)

    def begin(self, key: str, limits: KeyLimits, prices: PriceBook | None) -> "Admission":
        """Returns the admission of a request.

        Args:
            key: The name of the key.
            limits: Its limits.
            prices: Prices of models, for reservations; None: no price is known.
        """
        return Admission(self, key, limits, prices)

    async def windows(self) -> RateWindows:
        """Returns the windows of a minute, and loads what they need before the first use.

        Raises:
            BackendUnavailableError: A package is missing.
        """
        if self._windows is None:
            async with self._windows_lock:
                if self._windows is None:
                    self._windows = await asyncio.to_thread(_opened, self._new_windows)
        return self._windows

    async def usage(self, key: str) -> KeyUsage:
        """Returns what a key has used today and in this month.

        Raises:
            BackendUnavailableError: It cannot be read.
        """
        return await self.ledger.usage(key)

    async def windows_of(self, key: str, limits: KeyLimits) -> Mapping[str, WindowState]:
        """Returns the windows of `requests` and `tokens`, where the key has a limit.

        Args:
            key: The name of the key.
            limits: Its limits.
        """
        limit_of = {"requests": limits.requests_per_minute, "tokens": limits.tokens_per_minute}
        return {
            kind: await (await self.windows()).state(f"{kind}/{key}", limit)
            for kind, limit in limit_of.items()
            if limit
        }

    def later(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs work on the windows that is done even if nothing waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Waits for the work on the windows, and closes files and connections."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._windows is not None:
            await self._windows.close()
        opened = vars(self)
        if "running" in opened:
            await self.running.close()
        if "ledger" in opened:
            await asyncio.to_thread(self.ledger.close)


def _opened(new: Callable[[], T]) -> T:
    """Returns what limits need; the reason of a failure is for the operator, and not for the client.

    Raises:
        BackendUnavailableError: It cannot be opened.
    """
    try:
        return new()
    except ConfigError as error:
        log.error("%s", error.message)
        raise BackendUnavailableError(
            "the limits of this API key cannot be checked; the server's log has why"
        ) from error


class Admission:
    """One request, from its admission to its end."""

    __slots__ = (
        "_began_s",
        "_budgets",
        "_counted",
        "_estimate",
        "_has_slot",
        "_is_admitted",
        "_is_over",
        "_key",
        "_limits",
        "_owner",
        "_prices",
        "_reservation",
        "states",
    )

    def __init__(self, owner: UsageLimits, key: str, limits: KeyLimits, prices: PriceBook | None) -> None:
        """Args:
        owner: The limits of all keys.
        key: The name of the key.
        limits: Its limits.
        prices: Prices of models; None: no price is known.
        """
        self._owner, self._key, self._limits, self._prices = owner, key, limits, prices
        self._budgets: tuple[KeyBudget, ...] = budgets_of(limits)
        self._estimate = Estimate()
        self._began_s = owner.now_s()
        self._has_slot = self._is_admitted = self._is_over = False
        self._counted = {"requests": 0, "tokens": 0}
        """What is counted in each window."""
        self._reservation = 0
        self.states: dict[str, WindowState] = {}
        """The windows of `requests` and `tokens` after the request was admitted or refused."""

    @property
    def needs_estimate(self) -> bool:
        """Whether `admit` needs the tokens of the request."""
        return bool(self._limits.tokens_per_minute or self._budgets)

    @property
    def needs_models(self) -> bool:
        """Whether `admit` needs to know which models may answer."""
        return any(budget.is_money for budget in self._budgets)

    async def admit(self, estimate: Estimate) -> None:
        """Reserves a part of each limit.

        Args:
            estimate: What the request may use.

        Raises:
            RateLimitError: A limit of a minute or of concurrency is reached, or running requests reserve the budget.
            BudgetExceededError: A budget is used up.
            BackendUnavailableError: The use of the key cannot be read.
        """
        self._estimate, limits = estimate, self._limits
        try:
            if limits.max_concurrency:
                await self._take_slot(limits.max_concurrency)
            if limits.requests_per_minute:
                await self._take("requests", limits.requests_per_minute, 1)
            if limits.tokens_per_minute:
                await self._take_tokens(limits.tokens_per_minute)
            if self._budgets:
                reserved = self._reserved()
                self._reservation = await self._owner.ledger.reserve(self._key, self._budgets, reserved)
        except BaseException:
            self._undo()
            raise
        self._is_admitted = True

    async def extend(self, responses: int) -> bool:
        """Reserves tokens of the minute for further responses; returns whether so many are left.

        Args:
            responses: How many, each with the prompt and the maximum of the request.
        """
        limit, tokens = self._limits.tokens_per_minute, responses * self._response_tokens()
        if not (self._is_admitted and limit):
            return self._is_admitted
        return await self._count("tokens", limit, tokens)

    def _response_tokens(self) -> int:
        """Returns what is reserved for a response: the tokens of its prompt, and of its output."""
        estimate, maximum = self._estimate, self._owner.reserved_output_tokens
        output = maximum if estimate.output_tokens is None else min(estimate.output_tokens, maximum)
        return estimate.prompt_tokens + output

    def settle(self, used: Used | None) -> None:
        """Replaces what is reserved by what was used; does not wait.

        Args:
            used: What was used; None: no model has begun to answer.
        """
        self._is_over = True
        if not self._is_admitted:
            return
        self._is_admitted = False
        usage = used.usage if used is not None else Usage()
        if used is not None:
            self._owner.largest.add(used.model, usage.output_tokens, used.seconds)
        spent = Spent(
            1,
            bounded(usage.input_tokens),
            bounded(usage.cached_input_tokens),
            bounded(usage.output_tokens),
            nano_usd(usage.cost_usd or 0.0),
        )
        self._release()
        self._owner.ledger.settle(self._key, self._reservation, spent)
        if difference := self._counted_difference(spent.tokens):
            self._owner.later(self._add("tokens", difference))

    def estimated_usage(self, reported: Usage, output_tokens: int) -> Usage:
        """Returns the usage of a response that was cut off before it has reported all of it.

        Args:
            reported: What was reported.
            output_tokens: The estimated tokens of the response.
        """
        prompt_tokens = reported.input_tokens or self._estimate.prompt_tokens
        return replace(reported, input_tokens=prompt_tokens, output_tokens=output_tokens)

    async def _take_slot(self, limit: int) -> None:
        if not await self._owner.running.take(self._key, limit):
            raise RateLimitError(
                f"expected at most {limit} requests at the same time with the API key {self._key}; retry when one has "
                f"ended - at keys.{self._key}.max_concurrency",
                retry_after_s=_CONCURRENCY_RETRY_S,
            )
        self._has_slot = True

    async def _take_tokens(self, limit: int) -> None:
        estimate = self._estimate
        if estimate.prompt_tokens > limit:
            raise RateLimitError(
                f"expected at most {limit} tokens a minute with the API key {self._key}, got a request of about "
                f"{estimate.prompt_tokens}; shorten it - at keys.{self._key}.tokens_per_minute",
                is_permanent=True,
            )
        await self._take("tokens", limit, min(limit, self._response_tokens()))

    async def _count(self, kind: str, limit: int, amount: int) -> bool:
        """Counts an amount in a window if the limit allows it; of a request that has ended meanwhile, nothing stays."""

        async def count() -> bool:
            is_counted = await (await self._owner.windows()).take(f"{kind}/{self._key}", limit, amount)
            if is_counted and self._is_over:
                await self._add(kind, -amount)
            elif is_counted:
                self._counted[kind] += amount
            return is_counted

        return await asyncio.shield(self._owner.later(count()))

    async def _take(self, kind: str, limit: int, amount: int) -> None:
        is_counted = await self._count(kind, limit, amount)
        state = self.states[kind] = await (await self._owner.windows()).state(f"{kind}/{self._key}", limit)
        if not is_counted:
            wait_s = max(1, math.ceil(state.wait_s(amount)))
            raise RateLimitError(
                f"expected at most {limit} {kind} a minute with the API key {self._key}, got more; retry in {wait_s} s "
                f"- at keys.{self._key}.{kind}_per_minute",
                retry_after_s=wait_s,
            )

    def _reserved(self) -> Reserved:
        """Returns what the request may use of the budgets."""
        owner, estimate, prices = self._owner, self._estimate, self._prices
        largest = [owner.largest.find(model) for _, model in estimate.models]
        output = estimate.output_tokens
        if output is None:
            output = max([owner.reserved_output_tokens, *(each.output_tokens for each in largest)])
        output *= estimate.samples
        usage = Usage(estimate.prompt_tokens, output)
        cost_usd = 0.0
        for (upstream, model), each in zip(estimate.models, largest, strict=True):
            if prices is not None:
                cost_usd = max(cost_usd, prices.cost_usd(upstream, model, usage, each.seconds) or 0.0)
        return Reserved(bounded(estimate.prompt_tokens + output), nano_usd(cost_usd))

    def _counted_difference(self, tokens: int) -> int:
        """Returns what must be added to the window of tokens; what is given back counts less the later it is."""
        if not self._limits.tokens_per_minute:
            return 0
        difference = tokens - self._counted["tokens"]
        if difference >= 0:
            return difference
        past = min(1.0, (self._owner.now_s() - self._began_s) / WINDOW_S)
        return -int(-difference * (1 - past))

    def _undo(self) -> None:
        """Gives back what was taken of a request that is refused."""
        self._is_over = True
        self._release()
        for kind, amount in self._counted.items():
            if amount:
                self._owner.later(self._add(kind, -amount))

    def _release(self) -> None:
        if self._has_slot:
            self._has_slot = False
            self._owner.running.release(self._key)

    async def _add(self, kind: str, amount: int) -> None:
        await (await self._owner.windows()).add(f"{kind}/{self._key}", amount)
