"""Tool-call formats, one module per family of models; the folder's modules are the built-in formats.

Other packages offer formats by entry points of the group `dragoman.formats`: a `Format`, or a module with `FORMAT`.
They are used where a setting, an option or a caller names them, and are never detected.
"""

import logging
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Final

from dragoman import plugins
from dragoman.core.errors import ConfigError, nearest, quote
from dragoman.folder_registry import FolderRegistry
from dragoman.parsing.format import Format

log = logging.getLogger("dragoman.formats")

_REGISTRY: Final = FolderRegistry[Format](__name__, __path__, "FORMAT")
names = _REGISTRY.names
"""Returns the names of the built-in formats."""
_LISTED: Final = "`dragoman formats` lists all, `dragoman formats MODEL` tells a model's"


@cache
def get(name: str) -> Format:
    """Returns the format with this name or alias: a built-in one, else one of another package.

    Raises:
        ConfigError: The name is unknown; the message suggests the nearest. Or its module cannot be imported.
    """
    if name in names():
        return _load(name)
    by_name = _aliases()
    if name in by_name:
        return get(by_name[name])
    plugin = plugins.find(plugins.FORMATS, name)
    if plugin is None:
        known = (*names(), *by_name, *plugins.installed(plugins.FORMATS))
        raise ConfigError(f"unknown format {quote(name)}{nearest(name, known)} ({_LISTED})")
    return load_plugin(plugin)


@cache
def built_in() -> tuple[Format, ...]:
    """Returns the built-in formats, without those whose module cannot be imported, which are logged."""
    loaded: list[Format] = []
    for name in names():
        try:
            loaded.append(get(name))
        except ConfigError as error:
            log.error("%s", error)
    return tuple(loaded)


def is_built_in(name: str) -> bool:
    """Returns whether this is the name or an alias of a built-in format."""
    return name in names() or name in _aliases()


def load_plugin(plugin: plugins.Plugin) -> Format:
    """Returns the format that another package offers, under the name of its entry point.

    Raises:
        ConfigError: It cannot be imported, is not a format, or has the name of a built-in one.
    """
    if is_built_in(plugin.name):
        raise ConfigError(f"{plugin} has the name of a built-in format; its entry point needs another name")
    value = plugin.load()
    if isinstance(value, ModuleType):
        value = getattr(value, "FORMAT", None)
    if not isinstance(value, Format):
        got = type(value).__name__ if value is not None else "no FORMAT in its module"
        raise ConfigError(f"{plugin} is not a format: expected a Format or a module with FORMAT, got {got}")
    return replace(value, name=plugin.name, aliases=())


def _load(name: str) -> Format:
    try:
        return _REGISTRY.load(name)
    except Exception as error:
        described = plugins.describe_failure(error, folder=tuple(__path__))
        raise ConfigError(f"format {name!r} could not be loaded: {described}") from error


@cache
def _aliases() -> dict[str, str]:
    """Returns the built-in format of each alias."""
    return {alias: format.name for format in built_in() for alias in format.aliases}
