"""What a saved state depends on besides the prompt: the model's file, the engine and its settings."""

import dataclasses
import hashlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from dragoman.backends.embedded.start_worker import EngineSettings

_SAMPLE_BYTES: Final = 1 << 16
_WITHOUT_EFFECT: Final = frozenset(
    (
        "path",
        "max_concurrency",
        "max_queue",
        "threads",
        "reading_threads",
        "memory_limit_mb",
        "load_timeout_s",
        "stall_timeout_s",
        "cache_mb",
        "prefix_dir",
        "prefix_cache_mb",
    )
)
"""Settings that do not change the engine's state after a prompt."""


def model_key(settings: EngineSettings) -> str:
    """Returns a text that is another one whenever a saved state must not be used.

    Args:
        settings: the settings of the engine.

    Raises:
        OSError: the model's file cannot be read.
    """
    fields = dataclasses.asdict(settings)
    used = {name: str(value) for name, value in fields.items() if name not in _WITHOUT_EFFECT}
    return repr((_file_identity(settings.path), _engine_version(settings.program), sorted(used.items())))


def _file_identity(path: Path) -> tuple[int, int, str]:
    """Returns what changes with a file's content, without reading gigabytes."""
    status = path.stat()
    digest = hashlib.sha256()
    with path.open("rb") as file:
        digest.update(file.read(_SAMPLE_BYTES))
        file.seek(max(0, status.st_size - _SAMPLE_BYTES))
        digest.update(file.read())
    return status.st_size, status.st_mtime_ns, digest.hexdigest()


def _engine_version(program: str) -> str:
    """Returns the version of the package, or what changes with the llama-server program."""
    if program:
        status = Path(program).stat()
        return f"{status.st_size} {status.st_mtime_ns}"
    try:
        return version("xllamacpp")
    except PackageNotFoundError:
        return ""
