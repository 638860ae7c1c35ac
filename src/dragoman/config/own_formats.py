"""Formats that the settings define: the section `[formats]`."""

from collections.abc import Mapping

from dragoman import formats
from dragoman.core.errors import ConfigError, quote
from dragoman.parsing.format import Format
from dragoman.parsing.tag_format import tag_format
from dragoman.parsing.tag_format_config import TagFormatConfig


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
