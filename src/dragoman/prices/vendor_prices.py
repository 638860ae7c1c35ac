"""Prices of the vendors' models, from the data of the package genai-prices, which is part of the package.

A model is looked up only at the vendor whose API the upstream's URL is: another server with a model of the same name
has prices of its own. Importing the package takes 0.3 s, so it is imported with the first lookup.
"""

import logging
import warnings
from contextlib import suppress
from datetime import UTC, date, datetime
from functools import cache
from importlib import metadata
from typing import Any, Final

from dragoman.prices.rates import Rates

log = logging.getLogger("dragoman.prices")

PACKAGE: Final = "genai-prices"
_MILLION: Final = 1_000_000
_THOUSAND: Final = 1_000


def load() -> None:
    """Reads the price list, if the package is installed; later lookups are fast."""
    with suppress(ImportError):
        from genai_prices import data_snapshot

        data_snapshot.get_snapshot()


def find_rates(base_url: str, model: str, now: datetime) -> Rates | None:
    """Returns the rates of a model at this time; None: they are not known.

    Args:
        base_url: The URL of the upstream's API.
        model: The upstream's own name of the model.
        now: The time, with its zone.
    """
    try:
        from genai_prices import data_snapshot

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            snapshot = data_snapshot.get_snapshot()
            _, found = snapshot.find_provider_model(model, None, None, base_url)
            return _rates(found.get_prices(now))
    except (LookupError, ImportError):
        return None
    except Exception:  # the data changes with each release of the package
        log.exception("bug: the price of a model cannot be read")
        return None


@cache
def version() -> str:
    """Returns the version of the data, `0.2.3`; "": the package is not installed."""
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return ""


@cache
def data_date(today: date | None = None) -> date | None:
    """Returns the latest date from which a price of the data is valid, future prices left out; None: there is none.

    Args:
        today: The current date; None: ask the clock.
    """
    from genai_prices import data_snapshot

    latest = today or datetime.now(UTC).date()
    providers: list[Any] = data_snapshot.get_snapshot().providers
    dates = [
        start
        for provider in providers
        for model in provider.models
        if isinstance(model.prices, list)
        for price in model.prices
        if isinstance(start := getattr(price.constraint, "start_date", None), date) and start <= latest
    ]
    return max(dates, default=None)


def _rates(price: Any) -> Rates:
    """Returns the rates of a `ModelPrice`."""
    tiered = [value for value in vars(price).values() if hasattr(value, "tiers")]
    starts = sorted({tier.start for value in tiered for tier in value.tiers}, reverse=True)
    longer = tuple((start, _rates_above(price, start + 1)) for start in starts)
    base = _rates_above(price, 0)
    return Rates(base.input, base.cached_input, base.cache_write, base.output, 0.0, base.request, longer)


def _rates_above(price: Any, tokens: int) -> Rates:
    """Returns the rates of a prompt of so many tokens."""
    plain = _value(price, "input_mtok", tokens)
    cached, written = _value(price, "cache_read_mtok", tokens), _value(price, "cache_write_mtok", tokens)
    return Rates(
        input=(plain or 0.0) / _MILLION,
        cached_input=((plain or 0.0) if cached is None else cached) / _MILLION,
        cache_write=((plain or 0.0) if written is None else written) / _MILLION,
        output=(_value(price, "output_mtok", tokens) or 0.0) / _MILLION,
        request=(_value(price, "requests_kcount", tokens) or 0.0) / _THOUSAND,
    )


def _value(price: Any, name: str, tokens: int) -> float | None:
    value = getattr(price, name, None)
    if value is None:
        return None
    if hasattr(value, "tiers"):
        applied = [tier.price for tier in value.tiers if tokens > tier.start]
        return float(applied[-1] if applied else value.base)
    return float(value)
