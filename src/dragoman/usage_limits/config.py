"""Settings of limits: the section `[limits]`, and the limits of a key."""

from typing import Annotated, Final, Protocol
from urllib.parse import urlsplit

import msgspec

from dragoman.core.errors import ConfigError
from dragoman.schema.setting import setting


class LimitsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How limits of keys are counted; the limits themselves are settings of each key."""

    url: Annotated[
        str,
        setting(
            "Redis or Valkey server that counts requests, tokens and concurrency for several machines, such as "
            "`redis://host:6379/0`; empty: `state.url`, and without it each machine counts for itself."
        ),
    ] = ""
    path: Annotated[
        str,
        setting(
            "SQLite file with what each key has used; empty: `state.database_url`, else `state.url`, else "
            "`usage.sqlite` in the user's state folder."
        ),
    ] = ""
    reserved_output_tokens: Annotated[
        int,
        setting("Tokens that are reserved for a response whose request has no maximum of its own.", ge=1),
    ] = 4096
    vendor_prices: Annotated[
        bool, setting("Whether responses of vendors' APIs get a cost from the price list of the package genai-prices.")
    ] = True


_SCHEMES: Final = ("redis", "rediss", "valkey", "valkeys")


def check_limits(config: LimitsConfig) -> None:
    """Checks the settings of limits.

    Raises:
        ConfigError: The URL is not that of a server that can count.
    """
    if config.url and (urlsplit(config.url).scheme not in _SCHEMES or not urlsplit(config.url).hostname):
        scheme = urlsplit(config.url).scheme
        raise ConfigError(
            f"expected a URL like redis://127.0.0.1:6379/0, got one of {scheme or 'no scheme'} - at limits.url"
        )


class KeyLimits(Protocol):
    """The limits of a key; 0: no limit."""

    @property
    def requests_per_minute(self) -> int:
        """Maximum requests of a minute."""

    @property
    def tokens_per_minute(self) -> int:
        """Maximum tokens of a minute."""

    @property
    def max_concurrency(self) -> int:
        """Maximum requests at the same time."""

    @property
    def budget_usd_per_day(self) -> float:
        """Budget of a day in US dollars."""

    @property
    def budget_usd_per_month(self) -> float:
        """Budget of a month in US dollars."""

    @property
    def budget_tokens_per_day(self) -> int:
        """Budget of a day in tokens."""

    @property
    def budget_tokens_per_month(self) -> int:
        """Budget of a month in tokens."""
