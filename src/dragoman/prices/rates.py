"""Rates of one model, and the cost of a response at these rates."""

from dataclasses import dataclass, field
from typing import Final

from dragoman.core.messages import Usage
from dragoman.prices.config import PriceConfig

_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Rates:
    """Prices in US dollars for each token, request and second."""

    input: float = 0.0
    cached_input: float = 0.0
    cache_write: float = 0.0
    output: float = 0.0
    second: float = 0.0
    request: float = 0.0
    longer: "tuple[tuple[int, Rates], ...]" = field(default=())
    """Rates of longer prompts: from more than so many tokens on, all tokens cost these; the longest first."""

    def cost_usd(self, usage: Usage, seconds: float) -> float:
        """Returns the cost of a response.

        Args:
            usage: Its tokens.
            seconds: The time that it took.
        """
        for tokens, rates in self.longer:
            if usage.input_tokens > tokens:
                return rates.cost_usd(usage, seconds)
        # A server may report more cached tokens than tokens.
        cached = min(usage.cached_input_tokens, usage.input_tokens)
        written = min(usage.cache_write_tokens, usage.input_tokens - cached)
        return (
            (usage.input_tokens - cached - written) * self.input
            + cached * self.cached_input
            + written * self.cache_write
            + usage.output_tokens * self.output
            + seconds * self.second
            + self.request
        )


def rates_of(price: PriceConfig) -> Rates:
    """Returns the rates of a price of the settings."""
    cached, written = price.cached_input_usd_per_million, price.cache_write_usd_per_million
    return Rates(
        input=price.input_usd_per_million / _MILLION,
        cached_input=(price.input_usd_per_million if cached is None else cached) / _MILLION,
        cache_write=(price.input_usd_per_million if written is None else written) / _MILLION,
        output=price.output_usd_per_million / _MILLION,
        second=price.usd_per_second,
    )
