"""Reads the tables `[[routes]]` of the settings."""

from collections.abc import Mapping
from typing import Any

import msgspec

from dragoman.config.hints import nearest_setting
from dragoman.config.values import toml
from dragoman.core.errors import ConfigError
from dragoman.gateway.routing.config import RouteConfig
from dragoman.gateway.routing.route import Routes

_TABLES = "routes"


def take_routes(tables: dict[str, Any], origin: str) -> tuple[RouteConfig, ...]:
    """Removes the routes from the tables, and returns them.

    Args:
        tables: The settings.
        origin: The file that they come from, for errors.

    Raises:
        ConfigError: A setting is unknown, has the wrong type, or is not valid.
    """
    written = tables.pop(_TABLES, [])
    if not isinstance(written, list):
        raise ConfigError(f"expected tables, [[routes]], got {toml(written)} - at routes, from {origin}")
    routes = tuple(_route(table, f"{_TABLES}[{number}]", origin) for number, table in enumerate(written, 1))
    try:
        Routes(routes)
    except ConfigError as error:
        raise ConfigError(f"{error.message}, from {origin}") from None
    return routes


def _route(table: object, where: str, origin: str) -> RouteConfig:
    if not isinstance(table, Mapping):
        raise ConfigError(f"expected a table, [[routes]], got {toml(table)} - at {where}, from {origin}")
    known = RouteConfig.__struct_fields__
    if unknown := next((name for name in table if name not in known), None):
        nearest = nearest_setting(unknown, known)
        hint = f"; did you mean {nearest!r}?" if nearest else f"; known: {', '.join(known)}"
        raise ConfigError(f"unknown setting '{where}.{unknown}'{hint} - in {origin}")
    try:
        return msgspec.convert(table, RouteConfig)
    except msgspec.ValidationError as error:
        message = str(error).replace("`$.", f"`{where}.").replace("`$`", f"`{where}`")
        raise ConfigError(f"{message[0].lower()}{message[1:]}, from {origin}") from None
