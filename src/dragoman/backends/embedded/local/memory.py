"""How much memory a model needs, and how much there is for all of them.

The need is estimated before a model is loaded: its file, the KV cache of all concurrency slots, and a constant for
the process and the buffers of a computation.
"""

from collections.abc import Iterable
from typing import Final

from dragoman.backends.embedded.config import EmbeddedConfig, context_window_of
from dragoman.backends.embedded.gguf import Shape

MB: Final = 1_000_000
PROCESS_BYTES: Final = 300 * MB
"""The engine's process and buffers."""
_USABLE_SHARE: Final = 0.9
"""Share of the available memory that models may use."""


def needed_bytes(size_bytes: int, shape: Shape, config: EmbeddedConfig) -> int:
    """Returns the estimated memory of a loaded model.

    Args:
        size_bytes: the size of its files.
        shape: the sizes in its header.
        config: the settings.
    """
    tokens = context_window_of(shape.context_window, config) * config.max_concurrency
    return size_bytes + shape.cache_bytes_per_token * tokens + PROCESS_BYTES


def budget_bytes(memory_mb: int, engines: Iterable[int]) -> int | None:
    """Returns the memory for all loaded models together; None: not known.

    Args:
        memory_mb: the setting; 0: what is available now, and what the engines use already.
        engines: the process ids of the engines.
    """
    if memory_mb:
        return memory_mb * MB
    try:
        import psutil
    except ImportError:  # the extra `embedded` alone does not have it
        return None
    used = 0
    for pid in engines:
        try:
            status = psutil.Process(pid).memory_info()
        except psutil.Error:
            continue
        # The weights are pages of a file, which count as available.
        used += status.rss - getattr(status, "shared", 0)
    return int((psutil.virtual_memory().available + used) * _USABLE_SHARE)
