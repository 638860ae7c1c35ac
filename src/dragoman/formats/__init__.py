"""Tool-call formats, one module per family of models; the folder's modules are the list of formats."""

import importlib
import pkgutil
from functools import cache

from dragoman.core.errors import ConfigError, nearest, quote
from dragoman.parsing.format import Format


@cache
def names() -> tuple[str, ...]:
    """Returns the names of all formats, sorted."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__)))


@cache
def get(name: str) -> Format:
    """Returns the format with this name or alias.

    Raises:
        ConfigError: The name is unknown; the message suggests the nearest.
    """
    if name in names():
        format: Format = importlib.import_module(f"{__name__}.{name}").FORMAT
        return format
    by_name = {alias: get(module) for module in names() for alias in (module, *get(module).aliases)}
    if name not in by_name:
        where = "`dragoman formats` lists all, `dragoman formats MODEL` tells a model's"
        raise ConfigError(f"unknown format {quote(name)}{nearest(name, by_name)} ({where})")
    return by_name[name]
