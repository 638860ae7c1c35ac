"""The APIs that Dragoman reads and writes, one package each; new packages are found automatically."""

from functools import cache
from typing import Final, Literal, TypeAlias

from dragoman.core.errors import ConfigError, one_of, quote
from dragoman.folder_registry import FolderRegistry
from dragoman.wire.dialect import Dialect

Api: TypeAlias = Literal["anthropic_messages", "openai_chat", "openai_responses"]
"""The name of a built-in API, as the functions of `dragoman` take it; `names()` lists those that are installed."""


_REGISTRY: Final = FolderRegistry[Dialect](__name__, __path__, "DIALECT")
names = _REGISTRY.names


@cache
def get(name: str) -> Dialect:
    """Returns the dialect with this name.

    Raises:
        ConfigError: There is no such dialect; the message suggests the nearest name.
    """
    if name not in names():
        raise ConfigError(f"unknown dialect {quote(name)}{one_of(name, names(), 'there are ')}")
    return _REGISTRY.load(name)
