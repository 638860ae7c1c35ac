"""Settings of prices: the sections `[prices."PATTERN"]`."""

import math
from collections.abc import Mapping
from typing import Annotated

import msgspec

from dragoman.core.errors import ConfigError, quote
from dragoman.schema.setting import setting


class PriceConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prices of the models whose names match a pattern."""

    input_usd_per_million: Annotated[
        float, setting("Price of a million prompt tokens that are not from the cache, in US dollars.", ge=0)
    ] = 0.0
    cached_input_usd_per_million: Annotated[
        float | None,
        setting("Price of a million prompt tokens from the cache; not set: as other prompt tokens."),
    ] = None
    cache_write_usd_per_million: Annotated[
        float | None,
        setting("Price of a million prompt tokens written to the cache; not set: as other prompt tokens."),
    ] = None
    output_usd_per_million: Annotated[
        float, setting("Price of a million response tokens in US dollars, reasoning included.", ge=0)
    ] = 0.0
    usd_per_second: Annotated[
        float, setting("Price of a second of the response's time, for a model on hardware of your own.", ge=0)
    ] = 0.0


def check_prices(prices: Mapping[str, PriceConfig]) -> None:
    """Checks the prices of the settings, by pattern.

    Raises:
        ConfigError: A pattern is empty, or a price is not a finite number from 0.
    """
    for pattern, price in prices.items():
        if not pattern.strip():
            raise ConfigError(f'expected a pattern such as "qwen*", got {quote(pattern)} - at prices')
        for name in price.__struct_fields__:
            value = getattr(price, name)
            if value is not None and not 0 <= value < math.inf:
                raise ConfigError(f"expected a finite number from 0, got {value} - at prices.{quote(pattern)}.{name}")
