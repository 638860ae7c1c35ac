"""Amounts of budgets: what a key has used in a period, what running requests reserve, and what is left.

Periods are days and months in UTC. Amounts of money are whole billionths of a US dollar, so sums are exact.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from dragoman.usage_limits.config import KeyLimits

NANO: Final = 1_000_000_000
MAX_AMOUNT: Final = 1 << 50
"""Maximum of one amount, a million dollars; sums of many fit into 63 bits."""


class Spent(NamedTuple):
    """What a key has used in a period."""

    requests: int = 0
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    cost: int = 0
    """In billionths of a US dollar."""

    @property
    def tokens(self) -> int:
        """Tokens of prompts and responses."""
        return self.input_tokens + self.output_tokens

    @property
    def cost_usd(self) -> float:
        """The cost in US dollars."""
        return self.cost / NANO

    def plus(self, other: "Spent") -> "Spent":
        """Returns the sum."""
        return Spent(*(one + two for one, two in zip(self, other, strict=True)))


class Reserved(NamedTuple):
    """What a request, or all running requests of a key, reserve."""

    tokens: int = 0
    cost: int = 0
    """In billionths of a US dollar."""


class KeyBudget(NamedTuple):
    """One budget of a key."""

    is_money: bool
    is_month: bool
    limit: int
    """In tokens, or in billionths of a US dollar."""

    def amount(self, used: Spent | Reserved) -> int:
        """Returns the part of what is used or reserved that counts against this budget."""
        return used.cost if self.is_money else used.tokens

    @property
    def period(self) -> str:
        """The name of the period."""
        return "month" if self.is_month else "day"

    def text(self) -> str:
        """Returns the budget for a message."""
        unit = f"{self.limit / NANO:g} US dollars" if self.is_money else f"{self.limit} tokens"
        return f"{unit} per {self.period}"


def budgets_of(limits: KeyLimits) -> tuple[KeyBudget, ...]:
    """Returns the budgets of a key."""
    all_budgets = (
        KeyBudget(True, False, round(limits.budget_usd_per_day * NANO)),
        KeyBudget(True, True, round(limits.budget_usd_per_month * NANO)),
        KeyBudget(False, False, limits.budget_tokens_per_day),
        KeyBudget(False, True, limits.budget_tokens_per_month),
    )
    return tuple(budget for budget in all_budgets if budget.limit > 0)


def nano_usd(cost_usd: float) -> int:
    """Returns an amount in billionths of a US dollar, rounded up, so that many small costs are not free.

    What no cost can be is 0 or `MAX_AMOUNT`: a backend may report any number.
    """
    if not cost_usd > 0:  # also if it is not a number
        return 0
    return MAX_AMOUNT if cost_usd * NANO >= MAX_AMOUNT else -int(-cost_usd * NANO // 1)


def bounded(amount: int) -> int:
    """Returns a number of tokens that can be stored, for one that a client or an upstream server has chosen."""
    return min(max(0, amount), MAX_AMOUNT)


def periods(now_s: float) -> tuple[str, str]:
    """Returns the names of the current day and month, `2026-11-26` and `2026-11`."""
    day = datetime.fromtimestamp(now_s, UTC).date().isoformat()
    return day, day[:7]


def reset_time(now_s: float, *, is_month: bool) -> datetime:
    """Returns when the next day or month begins."""
    now = datetime.fromtimestamp(now_s, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if not is_month:
        return now + timedelta(days=1)
    return (now.replace(day=1) + timedelta(days=32)).replace(day=1)


def exceeded(budgets: tuple[KeyBudget, ...], day: Spent, month: Spent) -> KeyBudget | None:
    """Returns the used-up budget that is renewed last; None: none is used up."""
    used = [budget for budget in budgets if budget.amount(month if budget.is_month else day) >= budget.limit]
    return max(used, key=lambda budget: budget.is_month, default=None)


def has_room(budgets: tuple[KeyBudget, ...], day: Spent, month: Spent, running: Reserved, request: Reserved) -> bool:
    """Returns whether another request may start while others run.

    A request that runs alone always may, as long as something is left: only its response can exceed the budget.

    Args:
        budgets: The budgets of the key, of which none is used up.
        day: What is used today.
        month: What is used in this month.
        running: What the running requests reserve.
        request: What this request would reserve.
    """
    return all(
        not (reserved := budget.amount(running))
        or budget.amount(month if budget.is_month else day) + reserved + budget.amount(request) <= budget.limit
        for budget in budgets
    )


def kept_periods(now_s: float) -> Iterator[str]:
    """Yields the oldest day and the oldest month of which the use is kept."""
    today = datetime.fromtimestamp(now_s, UTC).date()
    yield (today - timedelta(days=62)).isoformat()
    yield (today - timedelta(days=800)).isoformat()[:7]
