"""Model text to events and back: one file a family, listed by the folder itself."""

import importlib
import pkgutil
from functools import cache

from dragoman.core.errors import ConfigError, nearest, quote
from dragoman.parsing.format import Format


@cache
def names() -> tuple[str, ...]:
    """The names of all, sorted."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__)))


@cache
def get(name: str) -> Format:
    """The format of this name or alias.

    Raises: ConfigError: there is none; the message offers the nearest.
    """
    if name in names():
        found: Format = importlib.import_module(f"{__name__}.{name}").FORMAT
        return found
    by_name = {alias: get(module) for module in names() for alias in (module, *get(module).aliases)}
    if name not in by_name:
        where = "`dragoman formats` lists all, `dragoman formats MODEL` tells a model's"
        raise ConfigError(f"unknown format {quote(name)}{nearest(name, by_name)} ({where})")
    return by_name[name]
