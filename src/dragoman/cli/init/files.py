"""Writes files completely or not at all, and never over an existing one without keeping that."""

import contextlib
import errno
import os
import shutil
import tempfile
from pathlib import Path

from dragoman.core.errors import ConfigError


def write_file(path: Path, text: str, *, replace: bool = False) -> Path | None:
    """Writes a new file, readable by the user only.

    Args:
        path: the file; missing folders are created.
        text: its content.
        replace: whether an existing file may be replaced, of which a copy is kept.

    Returns:
        The copy of the file that was replaced, or None.

    Raises: ConfigError: the file exists, or cannot be written.
    """
    path = path.resolve() if path.is_symlink() else path
    part: Path | None = None
    try:
        _create_folder(path.parent)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        part = Path(name)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        copy = _keep_copy(path) if replace else None
        if replace:
            os.replace(part, path)
        else:
            _move_to_new(part, path)
    except FileExistsError:
        raise ConfigError(f"{path} exists already; nothing was changed") from None
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None
    finally:
        if part is not None:
            with contextlib.suppress(OSError):
                part.unlink()
    return copy


def append_line(path: Path, line: str) -> None:
    """Appends a line to a text file, which is created if it does not exist.

    Raises: ConfigError: the file cannot be written.
    """
    try:
        _create_folder(path.parent)
        with path.open("ab+") as file:
            file.seek(0, os.SEEK_END)
            is_open = False
            if file.tell():
                file.seek(-1, os.SEEK_END)
                is_open = file.read(1) != b"\n"
            file.write(("\n" if is_open else "").encode() + f"{line}\n".encode())
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None


def _create_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None


def _move_to_new(part: Path, path: Path) -> None:
    """Gives the file its name, unless another file has it."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if path.exists():
            raise FileExistsError from None
        os.replace(part, path)


def _keep_copy(path: Path) -> Path | None:
    """Copies a file to an unused name next to it, and returns that; None: the file does not exist."""
    if not path.exists():
        return None
    number, copy = 1, path.with_name(f"{path.name}.old")
    while copy.exists():
        number += 1
        copy = path.with_name(f"{path.name}.old{number}")
    shutil.copy2(path, copy)
    return copy
