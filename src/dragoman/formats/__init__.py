"""Tool-call formats, one module per family of models; the folder's modules are the list of formats."""

from functools import cache
from typing import Final

from dragoman.core.errors import ConfigError, nearest, quote
from dragoman.folder_registry import FolderRegistry
from dragoman.parsing.format import Format

_REGISTRY: Final = FolderRegistry[Format](__name__, __path__, "FORMAT")
names = _REGISTRY.names


@cache
def get(name: str) -> Format:
    """Returns the format with this name or alias.

    Raises:
        ConfigError: The name is unknown; the message suggests the nearest.
    """
    if name in names():
        return _REGISTRY.load(name)
    by_name = {alias: get(module) for module in names() for alias in (module, *get(module).aliases)}
    if name not in by_name:
        where = "`dragoman formats` lists all, `dragoman formats MODEL` tells a model's"
        raise ConfigError(f"unknown format {quote(name)}{nearest(name, by_name)} ({where})")
    return by_name[name]
