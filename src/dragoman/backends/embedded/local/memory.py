"""How much memory a model needs, and how much there is for all of them.

The need is estimated before a model is loaded: its file, its weights that the engine copies, the KV cache of all
concurrency slots, and a constant for the process and the buffers of a computation. `python -m bench.model_memory`
compares it with running engines.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from dragoman.backends.embedded.config import EmbeddedConfig, context_window_of
from dragoman.backends.embedded.engine.settings import cache_size_factor
from dragoman.backends.embedded.gguf import Shape
from dragoman.core.errors import UnsupportedError, quote

MB: Final = 1_000_000
PROCESS_BYTES: Final = 100 * MB
"""The engine's process and buffers."""
_USABLE_SHARE: Final = 0.9
"""Share of the available memory that models may use."""
_MAX_LISTED: Final = 5
_CGROUPS: Final = Path("/sys/fs/cgroup")


def needed_bytes(size_bytes: int, shape: Shape, config: EmbeddedConfig) -> int:
    """Returns the estimated memory of a loaded model.

    Args:
        size_bytes: the size of its files.
        shape: the sizes in its header.
        config: the settings.
    """
    tokens = context_window_of(shape.context_window, config) * config.max_concurrency
    weights = size_bytes * (1 + shape.repacked_share)
    cache = shape.cache_bytes_per_token * cache_size_factor(config) * tokens
    return round(weights + cache) + PROCESS_BYTES


def budget_bytes(memory_mb: int, engines: Iterable[int]) -> int:
    """Returns the memory for all loaded models together.

    Args:
        memory_mb: the setting; 0: what is available now, and what the engines use already.
        engines: the process ids of the engines.
    """
    if memory_mb:
        return memory_mb * MB
    import psutil  # here, as the base install has no psutil, and needs the functions above

    used = 0
    for pid in engines:
        try:
            status = psutil.Process(pid).memory_info()
        except psutil.Error:
            continue
        # The weights are pages of a file, which count as available.
        used += status.rss - getattr(status, "shared", 0)
    available = min([psutil.virtual_memory().available, *available_in_cgroups(_CGROUPS, _own_cgroup())])
    return int((available + used) * _USABLE_SHARE)


def total_bytes() -> int:
    """Returns the size of the memory of this machine, or of this container; 0: not known."""
    try:
        import psutil
    except ImportError:
        if not hasattr(os, "sysconf"):  # Windows
            return 0
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    else:
        total = int(psutil.virtual_memory().total)
    return min([total, *_limits_of_cgroups(_CGROUPS, _own_cgroup())])


def too_large_error(
    name: str, needed: int, available: int, used: int, fitting: Callable[[int], list[str]]
) -> UnsupportedError:
    """Returns the error for a model that does not fit.

    Args:
        name: the model.
        needed: the bytes that it needs.
        available: the bytes for all models together.
        used: the bytes of models that are not unloaded for it.
        fitting: returns the models that need at most so many bytes.
    """
    pinned = f", of which pinned models use {round(used / MB)} MB" if used else ""
    names = [other for other in fitting(max(0, available - used)) if other != name][:_MAX_LISTED]
    others = f"these fit: {', '.join(names)}" if names else "no other model here fits"
    return UnsupportedError(
        f"model {quote(name)} needs about {round(needed / MB)} MB of memory, expected at most "
        f"{round(available / MB)} MB for all models (setting embedded.memory_mb){pinned}; {others}; a smaller "
        "embedded.context_window or embedded.max_concurrency needs less",
        "model",
    )


def _own_cgroup() -> str:
    """Returns the path of this process's control group (version 2), such as `/system.slice/dragoman.service`."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return "/"
    return next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "/")


def available_in_cgroups(root: Path, own: str) -> list[int]:
    """Returns the available memory of each control group with a limit that contains this process.

    In a container the root is that of the container.

    Args:
        root: where control groups are mounted.
        own: the path of the process's own group below it.
    """
    available = []
    for each in _cgroup_folders(root, own):
        try:
            limit, current = (each / "memory.max").read_text(), int((each / "memory.current").read_text())
            status = dict(line.split() for line in (each / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):
            continue
        if limit.strip().isdecimal():
            # Pages of files can be dropped.
            available.append(
                int(limit) - current + int(status.get("inactive_file", 0)) + int(status.get("active_file", 0))
            )
    return available


def _limits_of_cgroups(root: Path, own: str) -> list[int]:
    """Returns the memory limit of each control group that contains this process; arguments as above."""
    limits = []
    for each in _cgroup_folders(root, own):
        try:
            limit = (each / "memory.max").read_text().strip()
        except OSError:
            continue
        limits += [int(limit)] if limit.isdecimal() else []
    return limits


def _cgroup_folders(root: Path, own: str) -> list[Path]:
    folder = root / own.lstrip("/")
    folders = (folder, *folder.parents) if folder.is_relative_to(root) and folder.is_dir() else (root,)
    return [each for each in folders if each.is_relative_to(root)]
