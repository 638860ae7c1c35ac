"""The cost of a response of two models."""

import pytest

from dragoman.core.events import AnyEvent, UsageUpdate
from dragoman.core.messages import Usage, add_usage
from dragoman.gateway.second_opinion.costs import CostSum
from dragoman.prices.config import PriceConfig
from dragoman.prices.price_book import PriceBook

SMALL = PriceConfig(input_usd_per_million=1.0, output_usd_per_million=2.0)
BIG = PriceConfig(input_usd_per_million=10.0, output_usd_per_million=20.0)
FIRST, SECOND = Usage(1000, 100), Usage(2000, 50)
FIRST_USD, SECOND_USD = 0.0012, 0.021


def cost_usd(prices: PriceBook | None, first: Usage = FIRST, second: Usage = SECOND) -> float | None:
    costs = CostSum(prices, "a", "small")
    before: list[AnyEvent] = [UsageUpdate(first)]
    assert costs.feed(before) is before
    costs.begin()
    costs.add("b", "big", second, 1.0)
    (after,) = costs.feed([UsageUpdate(add_usage(first, second))])
    assert isinstance(after, UsageUpdate)
    assert (after.usage.input_tokens, after.usage.output_tokens) == (3000, 150)
    return after.usage.cost_usd


@pytest.mark.parametrize(
    ("prices", "usd"),
    [
        ({"small": SMALL, "big": BIG}, FIRST_USD + SECOND_USD),
        ({"big": BIG}, SECOND_USD),
        ({"small": SMALL}, FIRST_USD),
        ({}, None),
    ],
)
def test_each_model_has_its_own_price(prices: dict[str, PriceConfig], usd: float | None) -> None:
    assert cost_usd(PriceBook(prices, {})) == (usd if usd is None else pytest.approx(usd))


def test_tokens_of_the_other_model_are_not_priced_twice() -> None:
    prices = PriceBook({"small": SMALL, "big": BIG}, {})
    costs = CostSum(prices, "a", "small")
    costs.begin()
    costs.add("b", "big", SECOND, 1.0)
    (unknown,) = costs.feed([UsageUpdate(SECOND)])  # the first reports nothing
    assert isinstance(unknown, UsageUpdate)
    assert unknown.usage.cost_usd == pytest.approx(SECOND_USD)
    (estimated,) = costs.feed([UsageUpdate(add_usage(FIRST, SECOND))])
    assert isinstance(estimated, UsageUpdate)
    assert estimated.usage.cost_usd == pytest.approx(FIRST_USD + SECOND_USD)


def test_reported_costs_are_summed_without_prices() -> None:
    first, second = Usage(1000, 100, cost_usd=0.25), Usage(2000, 50, cost_usd=0.5)
    assert cost_usd(None, first, second) == 0.75
    assert cost_usd(None, second=second) == 0.5
    assert cost_usd(PriceBook({"big": BIG}, {}), first) == pytest.approx(0.25 + SECOND_USD)
