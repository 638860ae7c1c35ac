"""Imports of large packages that are put off until something of them is used.

Each process of the tests collects all of them, but runs a part: it has only the packages in memory that its part needs.
"""

import importlib.util
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any, Final

_ASKED_OF_ALL: Final = ("__bases__", "__test__", "__wrapped__", "_mock_name")
"""What pytest looks for in everything that a module of tests has a name for."""
_loading = threading.RLock()


class _Deferred(ModuleType):
    """A module that is executed at the first use of a name that is not there.

    `importlib.util.LazyLoader` executes one at the second `import` of it already.
    """

    _within: Callable[[], AbstractContextManager[None]]

    def __getattr__(self, name: str) -> Any:
        if name in _ASKED_OF_ALL:
            raise AttributeError(name)
        with _loading:
            if type(self) is _Deferred:
                spec = self.__spec__
                assert spec is not None
                assert spec.loader is not None
                self.__class__ = ModuleType  # type: ignore[assignment]
                self.__path__ = spec.submodule_search_locations or []
                with self._within():
                    spec.loader.exec_module(self)
        return getattr(self, name)


def defer(*names: str, within: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
    """Makes `import name` of packages take effect at the first use of one, for those that are installed.

    Args:
        names: The packages.
        within: What a package is executed within.
    """
    for name in names:
        spec = None if name in sys.modules else importlib.util.find_spec(name)
        if spec is not None:
            module = importlib.util.module_from_spec(spec)
            del module.__path__  # so that importing a module of the package executes the package first
            module.__class__ = _Deferred
            module._within = within
            sys.modules[name] = module
