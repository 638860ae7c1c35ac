"""Plug-ins: objects that other installed packages offer by entry points.

    [project.entry-points."dragoman.formats"]       in the pyproject.toml of the package
    mine = "my_package.formats:MINE"

    plugins.find(FORMATS, "mine")                   the plug-in; None: no package offers one of this name
    plugins.find(FORMATS, "mine").load()            the object; the package is imported only now

The list of installed packages is read when the first plug-in is looked for, and never by `import dragoman`.
"""

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, Protocol

from dragoman.core.errors import ConfigError, cut

FORMATS: Final = "dragoman.formats"
BACKENDS: Final = "dragoman.backends"
HOOKS: Final = "dragoman.hooks"
GROUPS: Final = (FORMATS, BACKENDS, HOOKS)

_OWN_FOLDER: Final = __file__.removesuffix("plugins.py")
_MESSAGE_CHARS: Final = 200
"""Maximum characters of another program's message in an error."""


class _EntryPoint(Protocol):
    """The part of `importlib.metadata.EntryPoint` that is used; that module is imported only when it is needed."""

    def load(self) -> object: ...


@dataclass(frozen=True)
class Plugin:
    """One entry point of an installed package."""

    group: str
    name: str
    package: str
    """Name and version of the package, such as `my-package 1.2`."""
    entry: _EntryPoint
    rival: str = ""
    """Another package that offers the same name; "" if there is none."""

    def __str__(self) -> str:
        """Returns the name and its package, for messages."""
        return f"plug-in {self.name!r} of package {self.package}"

    def load(self) -> object:
        """Imports the package and returns the object.

        Raises:
            ConfigError: The import failed, or another package offers the same name.
        """
        if self.rival:
            kind = self.group.rpartition(".")[2].removesuffix("s")
            raise ConfigError(
                f"two packages offer the {kind} {self.name!r}: {self.package} and {self.rival}; uninstall one of them"
            )
        try:
            return self.entry.load()
        except (Exception, SystemExit) as error:
            raise ConfigError(f"{self} could not be loaded: {describe_failure(error)}") from error


def find(group: str, name: str) -> Plugin | None:
    """Returns the plug-in of this name; None if no installed package offers one."""
    return installed(group).get(name)


@cache
def installed(group: str) -> Mapping[str, Plugin]:
    """Returns the plug-ins of a group by name, sorted; nothing is imported of them."""
    from importlib.metadata import entry_points

    found: dict[str, Plugin] = {}
    for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
        package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "of unknown name"
        first = found.get(entry.name)
        if first is None:
            found[entry.name] = Plugin(group, entry.name, package, entry)
        elif first.package != package:
            found[entry.name] = Plugin(group, entry.name, first.package, first.entry, rival=package)
    return found


def describe_failure(error: BaseException, folder: str | tuple[str, ...] = "") -> str:
    """Returns one line about an exception of code that is not Dragoman's: its type, message and place.

    Args:
        error: The exception, with its traceback.
        folder: Where the code is, whose last line before the exception is the place, or several; "": not in Dragoman.
    """
    message = cut(next(iter(str(error).splitlines()), ""), _MESSAGE_CHARS)
    place = failure_place(error, folder)
    return f"{type(error).__name__}{f': {message}' if message else ''}{f' ({place})' if place else ''}"


def failure_place(error: BaseException, folder: str | tuple[str, ...] = "") -> str:
    """Returns file and line of code that is not Dragoman's in the traceback of an exception, or ""."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        is_frozen = frame.filename.startswith("<") or "importlib" in frame.filename
        if frame.filename.startswith(folder) if folder else not (is_frozen or frame.filename.startswith(_OWN_FOLDER)):
            return f"{frame.filename}, line {frame.lineno}"
    return ""
