"""What a key has used and what is left, as JSON values."""

import time
from collections.abc import Callable

from dragoman.usage_limits import budgets
from dragoman.usage_limits.admission import UsageLimits
from dragoman.usage_limits.budgets import NANO, KeyBudget, Spent
from dragoman.usage_limits.config import KeyLimits
from dragoman.usage_limits.ledgers.ledger_store import KeyUsage


async def usage_report(
    usage: UsageLimits, key: str, limits: KeyLimits, clock: Callable[[], float] = time.time
) -> dict[str, object]:
    """Returns the use of today and of this month, and what is left of budgets and of the limits of a minute.

    Args:
        usage: The use of all keys.
        key: The name of the key.
        limits: Its limits.
        clock: Returns the seconds since 1970.

    Raises:
        BackendUnavailableError: The use cannot be read.
    """
    used, now_s = await usage.usage(key), clock()
    minute = {
        f"{kind}_per_minute": {"remaining": state.remaining, "reset_s": round(state.reset_s, 3)}
        for kind, state in (await usage.windows_of(key, limits)).items()
    }
    left: dict[str, object] = {_name(budget): _left(budget, used, now_s) for budget in budgets.budgets_of(limits)}
    running = {"max_concurrency": await _free(usage, key, limits)} if limits.max_concurrency else {}
    return {
        "usage": {"day": _period(used.day, now_s, is_month=False), "month": _period(used.month, now_s, is_month=True)},
        "left": {**minute, **running, **left},
    }


async def _free(usage: UsageLimits, key: str, limits: KeyLimits) -> dict[str, object]:
    return {"remaining": max(0, limits.max_concurrency - await usage.running.count(key))}


def _period(spent: Spent, now_s: float, *, is_month: bool) -> dict[str, object]:
    return {
        "requests": spent.requests,
        "input_tokens": spent.input_tokens,
        "cached_input_tokens": spent.cached_input_tokens,
        "output_tokens": spent.output_tokens,
        "cost_usd": spent.cost_usd,
        "resets_at": _reset(now_s, is_month=is_month),
    }


def _left(budget: KeyBudget, used: KeyUsage, now_s: float) -> dict[str, object]:
    spent, unit = budget.amount(used.month if budget.is_month else used.day), NANO if budget.is_money else 1
    left, reserved = max(0, budget.limit - spent), budget.amount(used.running)
    return {
        "remaining": left / unit if budget.is_money else left,
        "reserved": reserved / unit if budget.is_money else reserved,
        "resets_at": _reset(now_s, is_month=budget.is_month),
    }


def _name(budget: KeyBudget) -> str:
    return f"budget_{'usd' if budget.is_money else 'tokens'}_per_{budget.period}"


def _reset(now_s: float, *, is_month: bool) -> str:
    return f"{budgets.reset_time(now_s, is_month=is_month):%Y-%m-%dT%H:%M:%SZ}"
