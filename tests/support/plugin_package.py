"""A package with entry points, as pip installs it: modules next to a `.dist-info` folder."""

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

from dragoman import formats, plugins

GROUPS = {"formats": plugins.FORMATS, "backends": plugins.BACKENDS, "hooks": plugins.HOOKS}


def write_package(
    site: Path,
    module: str,
    text: str,
    entries: Mapping[str, Mapping[str, str]],
    package: str = "acme",
    version: str = "1.2",
) -> None:
    """Installs a package into a folder of the import path.

    Args:
        site: The folder.
        module: The name of its module.
        text: The source of its module.
        entries: Entry points by `formats`, `backends` or `hooks`: the object after the colon by name; "": the module.
        package: Its name.
        version: Its version.
    """
    (site / f"{module}.py").write_text(dedent(text))
    info = site / f"{package.replace('-', '_')}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    lines = []
    for group, named in entries.items():
        lines.append(f"[{GROUPS[group]}]")
        lines += [f"{name} = {module}:{target}" if target else f"{name} = {module}" for name, target in named.items()]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (info / "RECORD").write_text("")


def forget_packages() -> None:
    """Lets the next look-up read the installed packages again."""
    importlib.invalidate_caches()
    for cached in (plugins.installed, formats.get, formats.built_in):
        cached.cache_clear()


@contextmanager
def installed_at(site: Path) -> Iterator[None]:
    """The packages in this folder are installed within the block."""
    before = set(sys.modules)
    sys.path.insert(0, str(site))
    forget_packages()
    try:
        yield
    finally:
        sys.path.remove(str(site))
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "") or "").startswith(str(site)):
                del sys.modules[name]
        forget_packages()
