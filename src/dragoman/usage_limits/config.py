"""Settings of limits: the section `[limits]`, and the limits of a key."""

from typing import Annotated, Protocol

import msgspec

from dragoman.schema.setting import setting


class LimitsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How limits of keys are counted; the limits themselves are settings of each key."""

    vendor_prices: Annotated[
        bool, setting("Whether responses of vendors' APIs get a cost from the price list of the package genai-prices.")
    ] = True


class KeyLimits(Protocol):
    """The limits of a key; 0: no limit."""

    requests_per_minute: int
    tokens_per_minute: int
    max_concurrency: int
    budget_usd_per_day: float
    budget_usd_per_month: float
    budget_tokens_per_day: int
    budget_tokens_per_month: int
