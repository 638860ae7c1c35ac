"""Finds formats by name for the command line: built-in ones, those of packages and settings, and modules in files."""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Final, NamedTuple

from dragoman import formats, plugins
from dragoman.core.errors import ConfigError
from dragoman.parsing.format import Format

BUILT_IN: Final = "built-in"
SETTINGS: Final = "settings"


class KnownFormat(NamedTuple):
    """A format and where it comes from."""

    format: Format
    origin: str


def find_format(name: str, config: Path | None = None) -> KnownFormat:
    """Returns the format of this name: a built-in one, one of the settings file, one of a package, or a module `x.py`.

    Args:
        name: The name, or the path of a Python module with `FORMAT`.
        config: The settings file; None: the default one.

    Raises:
        ConfigError: There is no such format, or it cannot be loaded.
    """
    if name.endswith(".py"):
        return KnownFormat(load_module(Path(name)), name)
    if formats.is_built_in(name):
        return KnownFormat(formats.get(name), BUILT_IN)
    if (own := settings_formats(config).get(name)) is not None:
        return KnownFormat(own, SETTINGS)
    plugin = plugins.find(plugins.FORMATS, name)
    return KnownFormat(formats.get(name), f"package {plugin.package}" if plugin else BUILT_IN)


def added_formats(config: Path | None = None) -> tuple[list[KnownFormat], list[str]]:
    """Returns the formats of settings and packages, and a message for each that cannot be loaded."""
    found: list[KnownFormat] = []
    failures: list[str] = []
    try:
        found += (KnownFormat(own, SETTINGS) for own in settings_formats(config).values())
    except ConfigError as error:
        failures.append(str(error))
    for plugin in plugins.installed(plugins.FORMATS).values():
        try:
            found.append(KnownFormat(formats.load_plugin(plugin), f"package {plugin.package}"))
        except ConfigError as error:
            failures.append(str(error))
    return found, failures


def settings_formats(config: Path | None = None) -> dict[str, Format]:
    """Returns the formats that the settings file defines, by name.

    Raises:
        ConfigError: The file is invalid.
    """
    from dragoman import compose
    from dragoman import config as settings
    from dragoman.config.own_formats import own_formats

    path = compose.settings_path(config)
    return {} if path is None else own_formats(settings.load(path, os.environ, {})[0].formats)


def load_module(path: Path) -> Format:
    """Returns the format in a Python module.

    Raises:
        ConfigError: The file cannot be imported, or has no `FORMAT`.
    """
    if not path.is_file():
        raise ConfigError(f"cannot read {path}: there is no such file")
    spec = importlib.util.spec_from_file_location(f"dragoman_format_{path.stem}", path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        described = plugins.describe_failure(error, folder=str(path.resolve()))
        raise ConfigError(f"{path} could not be imported: {described}") from error
    format = getattr(module, "FORMAT", None)
    if not isinstance(format, Format):
        raise ConfigError(f"{path} has no FORMAT; expected FORMAT = json_format(…), text_format(…) or another Format")
    return format
