"""`dragoman formats new`: writes the module and the case file of a new format, which pass as they are."""

import re
from pathlib import Path
from typing import Final, NamedTuple

from dragoman import formats
from dragoman.cli.formats.find import load_module
from dragoman.cli.formats.templates import PYPROJECT, SHAPES, case_file_text, module_text
from dragoman.core.errors import ConfigError, one_of, quote

DEFAULT_LIKE: Final = "hermes"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_SOURCES: Final = Path("src/dragoman/formats")
_CASES: Final = Path("tests/data/formats")


class NewFormat(NamedTuple):
    """The files that were written."""

    module: Path
    cases: Path
    pyproject: Path | None


def write_format(name: str, like: str, *, package: bool) -> NewFormat:
    """Writes the files of a new format: into the repository if this is one, else into the current folder.

    Args:
        name: The name of the format, also of its module.
        like: A format with the same notation, of `SHAPES`.
        package: Whether a package with an entry point is written, in a folder of its own.

    Raises:
        ConfigError: The name is invalid or that of a built-in format, or a file exists or cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"expected a name of small letters, digits and '_', got {quote(name)}")
    if formats.is_built_in(name):
        raise ConfigError(f"{quote(name)} is a built-in format; choose another name")
    if like not in SHAPES:
        raise ConfigError(f"no new format can begin like {quote(like)}{one_of(like, SHAPES, 'expected ')}")
    files = _paths(name, package)
    for path in filter(None, files):
        if path.exists():
            raise ConfigError(f"{path} exists already; remove it, or choose another name")
    try:
        files.module.parent.mkdir(parents=True, exist_ok=True)
        files.module.write_text(module_text(name, like), encoding="utf-8")
        files.cases.write_text(case_file_text(load_module(files.module)), encoding="utf-8")
        if files.pyproject is not None:
            text = PYPROJECT.replace("NAME", name).replace("DASHED", name.replace("_", "-"))
            files.pyproject.write_text(text, encoding="utf-8")
    except OSError as e:
        raise ConfigError(f"cannot write {e.filename}: {e.strerror}") from None
    return files


def _paths(name: str, package: bool) -> NewFormat:
    if package:
        folder, module = Path(f"dragoman-format-{name.replace('_', '-')}"), f"dragoman_format_{name}"
        return NewFormat(folder / f"{module}.py", folder / f"{module}.txt", folder / "pyproject.toml")
    if _SOURCES.is_dir() and _CASES.is_dir():
        return NewFormat(_SOURCES / f"{name}.py", _CASES / f"{name}.txt", None)
    return NewFormat(Path(f"{name}.py"), Path(f"{name}.txt"), None)
