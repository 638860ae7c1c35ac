"""The named API keys with their limits and their use, without their secrets."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dragoman.config.keys import KeyConfig, key_state
from dragoman.console.reports.views import KeyBudgetView, KeyLimitView, KeyPeriodView, KeysView, KeyView
from dragoman.core.errors import BackendUnavailableError
from dragoman.server.keys.ring import KeyRing, NamedKey
from dragoman.usage_limits.admission import UsageLimits
from dragoman.usage_limits.report import usage_report

MAX_KEYS: Final = 200
TIMEOUT_S: Final = 10.0
"""Time for the use of all keys, which may be on another machine."""
_BUDGETS: Final = tuple(name for name in KeyConfig.__struct_fields__ if name.startswith("budget_"))
_LIMITS: Final = ("requests_per_minute", "tokens_per_minute", "max_concurrency")


async def read_keys_view(ring: KeyRing, limits: UsageLimits | None, now_s: float) -> KeysView:
    """Returns the keys, those of the settings first.

    Args:
        ring: The keys.
        limits: The use of all keys; None: nothing counts it.
        now_s: The time, in seconds since 1970.
    """
    named = ring.named()
    views = [_key_view(each, now_s) for each in named[:MAX_KEYS]]
    error = ""
    if limits is not None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                for number, each in enumerate(named[:MAX_KEYS]):
                    report = await usage_report(limits, each.key.name, each.key.config, lambda: now_s)
                    views[number] = _with_use(views[number], each.key.config, report)
        except BackendUnavailableError as unavailable:
            error = unavailable.message
        except TimeoutError:
            error = f"the use of all keys could not be read within {TIMEOUT_S:g} s"
    return KeysView(
        is_on=ring.is_on,
        unnamed=ring.unnamed_count,
        keys=views,
        omitted=max(0, len(named) - MAX_KEYS),
        error=error,
    )


def _key_view(named: NamedKey, now_s: float) -> KeyView:
    config = named.key.config
    return KeyView(
        name=named.key.name,
        state=key_state(config, now_s),
        source="file" if named.is_in_file else "settings",
        is_admin=config.admin,
        models=list(config.models),
        upstreams=list(config.upstreams),
        tools=list(config.tools),
        expires=config.expires,
        limits=[KeyLimitView(name=name, limit=limit) for name in _LIMITS if (limit := getattr(config, name))],
    )


def _with_use(view: KeyView, config: KeyConfig, report: Mapping[str, Any]) -> KeyView:
    """Returns the view of a key with its use.

    Args:
        view: The view without it.
        config: The settings of the key.
        report: The use, from `usage_report`.
    """
    left = report["left"]
    return replace(
        view,
        day=msgspec.convert(report["usage"]["day"], KeyPeriodView),
        month=msgspec.convert(report["usage"]["month"], KeyPeriodView),
        budgets=[_budget(name, getattr(config, name), left[name]) for name in _BUDGETS if name in left],
        limits=[
            KeyLimitView(name=limit.name, limit=limit.limit, **left.get(limit.name, {"remaining": None}))
            for limit in view.limits
        ],
    )


def _budget(name: str, limit: float, left: Mapping[str, Any]) -> KeyBudgetView:
    """Returns a budget from the name of its setting, such as `budget_usd_per_day`."""
    _, unit, _, period = name.split("_")
    return KeyBudgetView(
        name=name, unit=unit, period=period, limit=limit, used=max(0.0, limit - left["remaining"]), **left
    )
