"""Which group fails significantly more often."""

import math
from fractions import Fraction

import pytest

from dragoman.records.reports.significance import Counts, find_worst, fisher_probability, wilson_lower


def exact(counts: Counts, others: Counts) -> Fraction:
    calls, failed = counts.calls + others.calls, counts.failed + others.failed
    ways = sum(
        math.comb(counts.calls, each) * math.comb(others.calls, failed - each)
        for each in range(counts.failed, min(counts.calls, failed) + 1)
    )
    return Fraction(ways, math.comb(calls, failed))


@pytest.mark.parametrize(
    ("counts", "others"),
    [
        (Counts(3, 3), Counts(3, 0)),
        (Counts(20, 7), Counts(300, 4)),
        (Counts(200, 2), Counts(100, 1)),
        (Counts(10, 0), Counts(10, 5)),
        (Counts(500, 250), Counts(500, 240)),
    ],
)
def test_probability_is_that_of_fishers_test(counts: Counts, others: Counts) -> None:
    assert fisher_probability(counts, others) == pytest.approx(float(exact(counts, others)), rel=1e-9)


def test_probability_of_many_calls_is_fast_and_exact() -> None:
    assert fisher_probability(Counts(500_000, 5_000), Counts(500_000, 5_000)) == pytest.approx(0.504, abs=0.001)
    assert fisher_probability(Counts(500_000, 9_000), Counts(500_000, 5_000)) < 1e-200


def test_worst_group_is_found() -> None:
    worst = find_worst({"a": Counts(100, 1), "b": Counts(80, 30), "c": Counts(200, 2)})
    assert worst is not None
    assert (worst.name, worst.counts, worst.others) == ("b", Counts(80, 30), Counts(300, 3))
    assert worst.probability < 1e-6


def test_of_two_bad_groups_the_worse_one_is_found() -> None:
    groups = {"a": Counts(1000, 1), "b": Counts(100, 30), "c": Counts(100, 50)}
    for order in (groups, dict(reversed(groups.items()))):
        worst = find_worst(order)
        assert worst is not None
        assert worst.name == "c"


@pytest.mark.parametrize(
    "groups",
    [
        {},
        {"a": Counts(50, 50)},
        {"a": Counts(50, 50), "b": Counts(0, 0)},
        {"a": Counts(50, 5), "b": Counts(50, 5)},
        {"a": Counts(2, 2), "b": Counts(4, 0)},
        {"a": Counts(500_000, 5_500), "b": Counts(500_000, 5_000)},
        {"a": Counts(9, 0), "b": Counts(9, 0)},
    ],
    ids=["empty", "single", "only one with calls", "equal", "too few calls", "small difference", "no failures"],
)
def test_no_group_is_named_without_significant_difference(groups: dict[str, Counts]) -> None:
    assert find_worst(groups) is None


def test_number_of_groups_counts() -> None:
    """The same difference is significant for one of two groups, and may be chance for one of a hundred."""
    worst = find_worst({"a": Counts(40, 4), "b": Counts(990, 10)})
    assert worst is not None
    many = {f"b{n}": Counts(10, n < 10) for n in range(99)}
    assert find_worst({"a": Counts(40, 4), **many}) is None


def test_lower_bound_grows_with_number_of_calls() -> None:
    assert wilson_lower(Counts(0, 0)) == wilson_lower(Counts(10, 0)) == 0
    assert 0 < wilson_lower(Counts(2, 1)) < wilson_lower(Counts(200, 100)) < 0.5
