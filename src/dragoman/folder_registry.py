"""Values that the modules of a folder define, one each: a new file adds a format, an API, an agent or a command.

registry = FolderRegistry[Format](__name__, __path__, "FORMAT")
registry.names()            ("apertus", "apriel", …): the modules, without those that begin with `_`
registry.load("hermes")     the value `FORMAT` of the module `hermes`, which is imported only now
"""

import importlib
import pkgutil
from collections.abc import Iterable
from functools import cached_property
from typing import Generic, TypeVar

T = TypeVar("T")


class FolderRegistry(Generic[T]):
    """The modules of one package, each with a value of the same name."""

    def __init__(self, package: str, folders: Iterable[str], attribute: str) -> None:
        self._package, self._folders, self._attribute = package, folders, attribute

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(sorted(m.name for m in pkgutil.iter_modules(self._folders) if not m.name.startswith("_")))

    def names(self) -> tuple[str, ...]:
        """Returns the names of the modules, sorted."""
        return self._names

    def load(self, name: str) -> T:
        """Imports a module, whose name must be one of `names()`, and returns its value."""
        value: T = getattr(importlib.import_module(f"{self._package}.{name}"), self._attribute)
        return value
