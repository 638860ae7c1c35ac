"""Formats that the settings define: the section `[formats]`."""

from collections.abc import Mapping

import msgspec

from dragoman import formats
from dragoman.backends.http.config import HttpConfig
from dragoman.core.errors import ConfigError, quote
from dragoman.parsing.format import Format
from dragoman.parsing.tag_format import tag_format
from dragoman.parsing.tag_format_config import TagFormatConfig


def with_formats(config: HttpConfig, tables: Mapping[str, TagFormatConfig]) -> HttpConfig:
    """Returns the settings of an upstream server with those formats of `[formats]` that they name.

    Args:
        config: The settings of the server.
        tables: The settings of each format.
    """
    named = (config.call_format, *(override.call_format for override in config.model_overrides.values()))
    added = {name: tables[name] for name in named if name in tables}
    return msgspec.structs.replace(config, formats={**added, **config.formats}) if added else config


def own_formats(tables: Mapping[str, TagFormatConfig]) -> dict[str, Format]:
    """Returns the formats that the settings define, by name.

    Args:
        tables: The settings of each format.

    Raises:
        ConfigError: A marker is invalid, or a name is that of a built-in format.
    """
    for name in tables:
        if formats.is_built_in(name):
            raise ConfigError(f"{quote(name)} is a built-in format; choose another name - at formats.{name}")
    return {name: tag_format(name, table, f"formats.{name}") for name, table in tables.items()}
