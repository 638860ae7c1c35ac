"""Prices of models, and the cost of responses."""

import math
from datetime import UTC, date, datetime

import pytest

from dragoman.core.errors import ConfigError
from dragoman.core.messages import Usage
from dragoman.prices import vendor_prices
from dragoman.prices.config import PriceConfig, check_prices
from dragoman.prices.price_book import PriceBook
from dragoman.prices.rates import Rates

OPENAI = {"openai": "https://api.openai.com/v1", "local": "http://127.0.0.1:8000/v1"}


def test_own_price_of_input_cached_written_and_output_tokens() -> None:
    price = PriceConfig(
        input_usd_per_million=1.0,
        cached_input_usd_per_million=0.1,
        cache_write_usd_per_million=2.0,
        output_usd_per_million=10.0,
    )
    usage = Usage(input_tokens=1_000, cached_input_tokens=400, cache_write_tokens=100, output_tokens=50)
    cost = PriceBook({"qwen*": price}, {}).cost_usd("gpu", "Qwen3-4B", usage, 2.0)
    assert cost == pytest.approx((500 * 1.0 + 400 * 0.1 + 100 * 2.0 + 50 * 10.0) / 1e6)


def test_own_price_defaults_for_cached_tokens_to_that_of_input() -> None:
    usage = Usage(input_tokens=1_000, cached_input_tokens=1_000)
    assert PriceBook({"m": PriceConfig(2.0)}, {}).cost_usd("a", "m", usage, 0.0) == pytest.approx(0.002)


def test_more_cached_tokens_than_tokens_never_cost_less_than_nothing() -> None:
    usage = Usage(input_tokens=10, cached_input_tokens=1_000, cache_write_tokens=1_000)
    assert PriceBook({"m": PriceConfig(2.0, 0.0, 0.0)}, {}).cost_usd("a", "m", usage, 0.0) == 0.0


def test_price_of_a_second() -> None:
    book = PriceBook({"embedded/*": PriceConfig(usd_per_second=0.001)}, {})
    assert book.cost_usd("embedded", "smollm2", Usage(5, 5), 3.0) == pytest.approx(0.003)
    assert book.cost_usd("other", "smollm2", Usage(5, 5), 3.0) is None


def test_cost_that_the_backend_reports_is_used() -> None:
    assert PriceBook({"*": PriceConfig(9.0)}, {}).cost_usd("a", "m", Usage(10, 10, cost_usd=0.5), 1.0) == 0.5


def test_first_pattern_that_matches_is_used() -> None:
    book = PriceBook({"a/m": PriceConfig(1.0), "*": PriceConfig(2.0)}, {})
    assert [book.rates(name, "m") for name in ("a", "b")] == [
        Rates(1e-6, 1e-6, 1e-6),
        Rates(2e-6, 2e-6, 2e-6),
    ]


def test_vendor_price_only_at_the_vendors_url() -> None:
    book = PriceBook({}, OPENAI)
    usage = Usage(input_tokens=1_000, cached_input_tokens=500, output_tokens=100)
    assert (book.cost_usd("openai", "gpt-4o-mini", usage, 1.0) or 0.0) > 0.0
    assert book.rates("local", "gpt-4o-mini") is None
    assert book.rates("openai", "no-such-model") is None


@pytest.mark.parametrize(
    ("url", "model"),
    [
        ("https://api.openai.com/v1", "gpt-4o-mini"),
        ("https://api.openai.com/v1", "gpt-5-mini"),
        ("https://api.anthropic.com", "claude-sonnet-4-5-20250929"),
        ("https://openrouter.ai/api/v1", "qwen/qwen3-coder"),
        ("https://generativelanguage.googleapis.com/v1beta/openai", "gemini-2.5-pro"),
        ("https://api.deepseek.com/v1", "deepseek-chat"),
    ],
)
@pytest.mark.parametrize("tokens", [1_000, 200_000, 200_001, 900_000])
def test_vendor_cost_is_that_of_the_package(url: str, model: str, tokens: int) -> None:
    from genai_prices import Usage as PackageUsage
    from genai_prices import calc_price

    now = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
    expected = calc_price(
        PackageUsage(input_tokens=tokens, cache_read_tokens=tokens // 2, output_tokens=77),
        model,
        provider_api_url=url,
        genai_request_timestamp=now,
    ).total_price
    rates = vendor_prices.find_rates(url, model, now)
    assert rates is not None
    assert rates.cost_usd(Usage(tokens, 77, tokens // 2), 5.0) == pytest.approx(float(expected))


def test_price_is_looked_up_again_in_the_next_minute() -> None:
    now_s = [120.0]
    book = PriceBook({}, OPENAI, clock=lambda: now_s[0])
    first = book.rates("openai", "gpt-4o-mini")
    assert book.rates("openai", "gpt-4o-mini") is first
    now_s[0] = 180.0
    assert book.rates("openai", "gpt-4o-mini") is not first


def test_names_of_models_do_not_fill_the_memory() -> None:
    book = PriceBook({"x": PriceConfig()}, {}, clock=lambda: 0.0)
    for number in range(3_000):
        book.rates("a", str(number))
    assert len(book._cached) <= 1_000


def test_lookup_without_vendor_prices_imports_nothing() -> None:
    assert PriceBook({}, {"local": "http://10.0.0.1/v1", "b": "http://gpu:8000"}).is_empty
    assert PriceBook({}, OPENAI, vendor=False).is_empty
    assert not PriceBook({}, OPENAI).is_empty


def test_date_of_the_data() -> None:
    assert vendor_prices.version()
    dated = vendor_prices.data_date(date(2026, 11, 1))
    assert dated is not None
    assert date(2025, 1, 1) < dated <= date(2026, 11, 1)


@pytest.mark.parametrize("prices", [{"": PriceConfig()}, {"m": PriceConfig(math.inf)}])
def test_wrong_price_is_an_error(prices: dict[str, PriceConfig]) -> None:
    with pytest.raises(ConfigError, match="at prices"):
        check_prices(prices)
