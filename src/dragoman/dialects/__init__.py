"""The APIs that Dragoman reads and writes, one package each; new packages are found automatically."""

import importlib
import pkgutil
from functools import cache
from typing import Literal, TypeAlias

from dragoman.core.errors import ConfigError, one_of, quote
from dragoman.wire.dialect import Dialect

Api: TypeAlias = Literal["anthropic_messages", "openai_chat", "openai_responses"]
"""The name of a built-in API, as the functions of `dragoman` take it; `names()` lists those that are installed."""


@cache
def names() -> tuple[str, ...]:
    """Returns the names of all dialects, sorted."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__)))


@cache
def get(name: str) -> Dialect:
    """Returns the dialect with this name.

    Raises:
        ConfigError: There is no such dialect; the message suggests the nearest name.
    """
    if name not in names():
        raise ConfigError(f"unknown dialect {quote(name)}{one_of(name, names(), 'there are ')}")
    dialect: Dialect = importlib.import_module(f"{__name__}.{name}").DIALECT
    return dialect
