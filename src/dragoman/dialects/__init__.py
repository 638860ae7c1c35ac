"""API JSON to values and events and back: one folder an API, listed by the folder itself."""

import importlib
import pkgutil
from functools import cache

from dragoman.core.errors import ConfigError, one_of, quote
from dragoman.wire.dialect import Dialect


@cache
def names() -> tuple[str, ...]:
    """The names of all, sorted."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__)))


@cache
def get(name: str) -> Dialect:
    """The dialect of this name.

    Raises: ConfigError: there is none; the message offers the nearest.
    """
    if name not in names():
        raise ConfigError(f"unknown dialect {quote(name)}{one_of(name, names(), 'there are ')}")
    found: Dialect = importlib.import_module(f"{__name__}.{name}").DIALECT
    return found
