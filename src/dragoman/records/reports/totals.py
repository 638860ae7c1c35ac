"""ExchangeTotals of exchanges, which can be added up: counts, tokens, cost, and histograms of times."""

import math
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from dragoman.records.record import bucket_ms
from dragoman.records.reports.significance import Counts

FAILED_OUTCOMES: Final = ("invalid", "incomplete", "unknown")
"""Outcomes of calls that the client cannot run."""

Histogram: TypeAlias = dict[int, int]
"""Number of exchanges by bucket of `record.bucket`."""


class ExchangeTotals(msgspec.Struct):
    """ExchangeTotals of some exchanges."""

    exchanges: int = 0
    errors: int = 0
    attempts: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float = 0.0
    outcomes: dict[str, int] = {}
    """Number of tool calls by outcome."""
    first_ms: Histogram = {}
    """Time to the first event, of the exchanges without an error."""
    total_ms: Histogram = {}
    """Total time, of the exchanges without an error."""

    def add(self, other: "ExchangeTotals") -> None:
        """Adds the totals of other exchanges."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in _COUNTERS:
            _add_counts(getattr(self, name), getattr(other, name))

    @property
    def calls(self) -> int:
        """Number of tool calls."""
        return sum(self.outcomes.values())

    @property
    def counts(self) -> Counts:
        """Number of tool calls, and of those that the client cannot run."""
        return Counts(self.calls, sum(self.outcomes.get(outcome, 0) for outcome in FAILED_OUTCOMES))

    @property
    def error_share(self) -> float:
        """The share of exchanges that ended in an error."""
        return self.errors / self.exchanges if self.exchanges else 0.0

    @property
    def cache_share(self) -> float | None:
        """The share of the input tokens that the upstream read from its prompt cache; None: there are no tokens."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else None

    def as_row(self) -> dict[str, int | float | None]:
        """Returns the numbers for a table of data; their names do not change."""
        return {**_exchange_numbers(self), **call_numbers(self)}


_COUNTERS: Final = ("outcomes", "first_ms", "total_ms")
_SUMS: Final = tuple(name for name in ExchangeTotals.__struct_fields__ if name not in _COUNTERS)


def call_numbers(totals: ExchangeTotals) -> dict[str, int | float | None]:
    """Returns the numbers that exist for single tools too: those of calls."""
    outcomes, counts = totals.outcomes, totals.counts
    return {
        "calls": counts.calls,
        "valid": outcomes.get("valid", 0),
        "repaired": outcomes.get("repaired", 0),
        "reasked": outcomes.get("reasked", 0),
        "recovered": outcomes.get("recovered", 0),
        "unchecked": outcomes.get("unchecked", 0),
        "failed": counts.failed,
        "failed_share": _rounded(counts.share) if counts.calls else None,
    }


def percentile(histogram: Mapping[int, int], percent: float) -> int | None:
    """Returns a percentile in milliseconds, at most 5 % too high or too low; None: there are no values.

    Args:
        histogram: the counts by bucket.
        percent: such as 95.
    """
    rank = max(math.ceil(sum(histogram.values()) * percent / 100), 1)
    for number in sorted(histogram):
        rank -= histogram[number]
        if rank <= 0:
            return round(bucket_ms(number))
    return None


def _exchange_numbers(totals: ExchangeTotals) -> dict[str, int | float | None]:
    return {
        "exchanges": totals.exchanges,
        "errors": totals.errors,
        "error_share": _rounded(totals.error_share),
        "attempts": totals.attempts,
        "input_tokens": totals.input_tokens,
        "cached_tokens": totals.cached_tokens,
        "cache_share": _rounded(totals.cache_share),
        "output_tokens": totals.output_tokens,
        "reasoning_tokens": totals.reasoning_tokens,
        "cost_usd": round(totals.cost_usd, 6),
        **dict(_times("first", totals.first_ms)),
        **dict(_times("total", totals.total_ms)),
    }


def _times(name: str, histogram: Histogram) -> Iterator[tuple[str, int | None]]:
    for percent in (50, 95):
        yield f"{name}_p{percent}_ms", percentile(histogram, percent)


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 6)


def _add_counts(counts: dict[int, int], other: Mapping[int, int]) -> None:
    for key, count in other.items():
        counts[key] = counts.get(key, 0) + count
