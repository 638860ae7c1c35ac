"""Totals, and percentiles from histograms."""

import random

import pytest

from dragoman.records.record import bucket
from dragoman.records.reports.totals import ExchangeTotals, Histogram, call_numbers, percentile


def histogram_of(values: list[int]) -> Histogram:
    result: Histogram = {}
    for value in values:
        result[bucket(value)] = result.get(bucket(value), 0) + 1
    return result


@pytest.mark.parametrize("percent", [1, 50, 95, 99, 100])
def test_percentile_is_within_five_percent(percent: int) -> None:
    random.seed(percent)
    values = sorted(int(random.lognormvariate(7, 2)) + 1 for _ in range(2000))
    exact = values[max(-(-len(values) * percent // 100), 1) - 1]
    assert percentile(histogram_of(values), percent) == pytest.approx(exact, rel=0.05, abs=0.51)


def test_percentiles_of_few_values() -> None:
    assert percentile({}, 50) is None
    assert percentile(histogram_of([7]), 50) == percentile(histogram_of([7]), 95) == 7
    assert percentile(histogram_of([1, 5]), 50) == 1
    assert percentile(histogram_of([1, 5]), 51) == 5


def test_numbers_of_calls() -> None:
    outcomes = {"valid": 5, "repaired": 2, "reasked": 1, "recovered": 1, "unchecked": 4, "invalid": 3, "incomplete": 2}
    assert call_numbers(ExchangeTotals(outcomes={**outcomes, "unknown": 2})) == {
        "calls": 20,
        "valid": 5,
        "repaired": 2,
        "reasked": 1,
        "recovered": 1,
        "unchecked": 4,
        "failed": 7,
        "failed_share": 0.35,
    }


def test_shares_of_nothing_are_unknown() -> None:
    row = ExchangeTotals().as_row()
    assert (row["failed_share"], row["cache_share"], row["first_p50_ms"], row["total_p95_ms"]) == (None,) * 4
    assert (row["exchanges"], row["calls"], row["cost_usd"]) == (0, 0, 0)
