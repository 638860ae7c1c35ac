"""Deletes downloaded weights: all parts, the projector, their checksums, and what remains of a download."""

import shutil
import sys
from pathlib import Path

from dragoman.backends.embedded.weights.job import SPLIT_FILE, projector_path
from dragoman.core.errors import ConfigError


def files_of_weights(file: Path) -> list[Path]:
    """Returns everything in the folder that belongs to the weights in this file, which may not exist.

    Args:
        file: the weights; of several parts, any of them.
    """
    folder, stem = file.parent, SPLIT_FILE.sub("", file.stem)
    weights = [
        path
        for path in sorted(folder.glob("*.gguf"))
        if SPLIT_FILE.sub("", path.stem) == stem or path == projector_path(file)
    ]
    names = {path.name for path in weights} | {file.name, projector_path(file).name}
    more = [
        path
        for path in sorted(folder.glob("*.gguf.*"))
        if path.name.partition(".gguf.")[0] + ".gguf" in names and path.name.endswith((".json", ".part"))
    ]
    started = [path for path in sorted(folder.glob(".parts/*")) if _belongs(path, names)]
    return [*weights, *more, *started]


def size_of(paths: list[Path]) -> int:
    """Returns the bytes of these files and folders."""
    files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*"))]
    return sum(file.stat().st_size for file in files if file.is_file())


def remove_weights(paths: list[Path]) -> None:
    """Deletes these files and folders.

    Raises:
        ConfigError: a download of them is running, or one cannot be deleted.
    """
    try:
        for lock in [path for path in paths if path.suffix == ".lock"]:
            _refuse_running(lock)
        for path in paths:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot delete {error.filename}: {error.strerror or error}") from error


def _belongs(started: Path, names: set[str]) -> bool:
    stem = started.name.removesuffix(".lock")
    return f"{stem}.gguf" in names or any(
        SPLIT_FILE.sub("", stem) == SPLIT_FILE.sub("", name.removesuffix(".gguf")) for name in names
    )


def _refuse_running(lock: Path) -> None:
    """
    Raises: ConfigError: another process holds the lock of a download.
    """
    if sys.platform == "win32":
        return
    import fcntl

    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{lock.stem} is being downloaded by another process; stop that first") from None
