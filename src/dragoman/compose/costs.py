"""Builds the prices of the models that the settings name."""

from dragoman import config as settings
from dragoman import extras
from dragoman.prices import vendor_prices
from dragoman.prices.price_book import PriceBook


def price_book(config: settings.Config) -> PriceBook | None:
    """Returns the prices of the models of the settings; None: no model can have a price."""
    urls = {name: upstream.url for name, upstream in config.upstreams.items()}
    prices = PriceBook(config.prices, urls, vendor=config.limits.vendor_prices)
    return None if prices.is_empty else prices


def describe_vendor_prices(config: settings.Config) -> str:
    """Returns a line about the vendors' price list; "" if no upstream can be a vendor's."""
    prices = price_book(config)
    if prices is None or not prices.needs_vendor_prices:
        return ""
    if extras.missing_extras("limits"):
        return f"the prices of vendors are not known: {extras.install_command('limits')}"
    newest = vendor_prices.data_date()
    return f"prices of vendors: {vendor_prices.PACKAGE} {vendor_prices.version()}, newest price of {newest}"
