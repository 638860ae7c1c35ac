"""Settings of prices, whose names are patterns."""

from pathlib import Path

import pytest

from dragoman import config
from dragoman.core.errors import ConfigError


def load(path: Path, text: str) -> config.Config:
    file = path / "config.toml"
    file.write_text(text, encoding="utf-8")
    return config.load(file, {}, {})[0]


def test_pattern_may_contain_dots(tmp_path: Path) -> None:
    prices = load(
        tmp_path, '[prices."openai/gpt-4.1*"]\ninput_usd_per_million = 2\noutput_usd_per_million = 8.5'
    ).prices
    price = prices["openai/gpt-4.1*"]
    assert (price.input_usd_per_million, price.cached_input_usd_per_million) == (2.0, None)
    assert price.output_usd_per_million == 8.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[prices."a.b"]\ninput_usd = 1', r"unknown setting 'prices.a.b.input_usd'; did you mean"),
        ('[prices."a.b"]\ninput_usd_per_million = -1', r"input_usd_per_million"),
        ("[prices.a]\noutput_usd_per_million = inf", r"expected a finite number from 0, got inf - at prices"),
        ("[prices.a]\ncached_input_usd_per_million = -2", r"expected a finite number from 0, got -2.0 - at prices"),
        ("[prices]\na = 1", r"expected a table, \[prices.a\], with its output_usd_per_million - at prices.a"),
    ],
)
def test_wrong_prices(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, text)
