"""Finds the price of a model at its upstream: the settings first, then the vendors' price list.

    prices = PriceBook(config.prices, {"openai": "https://api.openai.com/v1"})
    prices.cost_usd("openai", "gpt-5-mini", Usage(input_tokens=1000, output_tokens=100), seconds=2.0)   0.00045

Rates are cached by upstream and model, because prices change at most at full minutes.
"""

import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Final

from dragoman.core.messages import Usage
from dragoman.host_names import LOOPBACK, host_name
from dragoman.prices import vendor_prices
from dragoman.prices.config import PriceConfig
from dragoman.prices.rates import Rates, rates_of

_VALID_S: Final = 60.0
"""Prices of some vendors depend on the time of the day."""
_MAX_CACHED: Final = 1000


class PriceBook:
    """The prices of all models of a gateway."""

    def __init__(
        self,
        own: Mapping[str, PriceConfig],
        urls: Mapping[str, str],
        *,
        vendor: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Args:
        own: Prices of the settings, by pattern of `MODEL` or `UPSTREAM/MODEL`.
        urls: The base URL of each upstream.
        vendor: Whether the vendors' price list is used.
        clock: Returns the seconds since 1970.
        """
        self._own = {pattern.lower(): rates_of(price) for pattern, price in own.items()}
        self._urls = {name: url for name, url in urls.items() if vendor and _is_public(url)}
        self._clock = clock
        self._cached: dict[tuple[str, str], Rates | None] = {}
        self._minute = 0

    @property
    def is_empty(self) -> bool:
        """Whether no model can have a price."""
        return not self._own and not self._urls

    @property
    def needs_vendor_prices(self) -> bool:
        """Whether an upstream can be a vendor's."""
        return bool(self._urls)

    def preload(self) -> None:
        """Reads the vendors' price list in a thread, if it is needed, so that no response waits for that."""
        if self._urls:
            threading.Thread(target=vendor_prices.load, name="dragoman-prices", daemon=True).start()

    def rates(self, upstream: str, model: str) -> Rates | None:
        """Returns the rates of a model; None: its price is not known.

        Args:
            upstream: The name of the backend.
            model: The backend's own name of the model.
        """
        minute = int(self._clock() // _VALID_S)
        if minute != self._minute or len(self._cached) >= _MAX_CACHED:
            self._cached.clear()
            self._minute = minute
        try:
            return self._cached[upstream, model]
        except KeyError:
            found = self._cached[upstream, model] = self._find(upstream, model)
            return found

    def cost_usd(self, upstream: str, model: str, usage: Usage, seconds: float) -> float | None:
        """Returns the cost of a response: what the backend reports, else by its rates; None: not known.

        Args:
            upstream: The name of the backend that answered.
            model: The backend's own name of the model.
            usage: The tokens of the response.
            seconds: The time that it took.
        """
        if usage.cost_usd is not None:
            return usage.cost_usd
        rates = self.rates(upstream, model)
        return None if rates is None else rates.cost_usd(usage, seconds)

    def _find(self, upstream: str, model: str) -> Rates | None:
        names = (f"{upstream}/{model}".lower(), model.lower())
        for pattern, rates in self._own.items():
            if any(fnmatchcase(name, pattern) for name in names):
                return rates
        url = self._urls.get(upstream)
        return None if url is None else vendor_prices.find_rates(url, model, datetime.fromtimestamp(self._clock(), UTC))


def _is_public(url: str) -> bool:
    """Returns whether the URL can be a vendor's: of servers in a private network, nothing need be looked up."""
    host = host_name(url)
    return "." in host and host not in LOOPBACK and not host.replace(".", "").isdigit()
