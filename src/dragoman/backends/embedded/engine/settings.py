"""From the settings of `[embedded]` to those of an engine; the errors name the setting."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from dragoman.backends.embedded.config import CACHE_TYPE_BYTES, EmbeddedConfig
from dragoman.backends.embedded.engine.llama_server import find_program
from dragoman.backends.embedded.start_worker import EngineSettings
from dragoman.backends.embedded.weights import cache_dir
from dragoman.core.errors import ConfigError, nearest, quote

ENGINES: Final = ("xllamacpp", "llama-server")
_FLASH_ATTENTION: Final = ("auto", "on", "off")
_MAX_GPUS: Final = 16
"""GPUs that llama.cpp manages at once (GGML_CUDA_MAX_DEVICES)."""
_UNQUANTIZED: Final = ("f32", "f16", "bf16")


def engine_settings(
    path: Path, projector: Path | None, context_window: int, pooling: int, config: EmbeddedConfig
) -> EngineSettings:
    """Returns the settings of the engine for one model.

    Args:
        path: the weights.
        projector: the projector for images or sound.
        context_window: the context window of each request, in tokens.
        pooling: `gguf.Metadata.pooling` of the model.
        config: the settings of all models.

    Raises:
        ConfigError: a setting has a value that no engine accepts, or the llama-server program is missing.
    """
    keys, values = _cache_types(config)
    threads, reading_threads = thread_counts(config)
    # The engine can neither save nor restore the state of a model with a projector.
    has_prefixes = config.prefix_cache_mb > 0 and projector is None
    return EngineSettings(
        path=path,
        context_window=context_window,
        max_concurrency=config.max_concurrency,
        max_queue=config.max_queue,
        threads=threads,
        reading_threads=reading_threads,
        memory_limit_mb=config.memory_limit_mb,
        load_timeout_s=config.load_timeout_s,
        stall_timeout_s=config.stall_timeout_s,
        batch_tokens=config.batch_size,
        prefix_dir=cache_dir() / "prefixes" if has_prefixes else None,
        prefix_cache_mb=config.prefix_cache_mb,
        projector=projector,
        pooling=pooling,
        program=find_program(config.llama_server) if _is_one_of(config.engine, ENGINES, "engine") != ENGINES[0] else "",
        gpu_layers=_gpu_layers(config.gpu_layers),
        tensor_split=_tensor_split(config.tensor_split),
        flash_attention=_is_one_of(config.flash_attention, _FLASH_ATTENTION, "flash_attention"),
        cache_types=(keys, values),
    )


def thread_counts(config: EmbeddedConfig) -> tuple[int, int]:
    """Returns the number of threads, and of those that read a prompt."""
    cores = os.cpu_count() or 1
    return config.threads or max(1, cores - 1), config.reading_threads or config.threads or cores


def cache_size_factor(config: EmbeddedConfig) -> float:
    """Returns the size of the KV cache relative to one of 16-bit numbers.

    Raises:
        ConfigError: a number type is unknown.
    """
    return sum(CACHE_TYPE_BYTES[kind] for kind in _cache_types(config)) / (2 * CACHE_TYPE_BYTES["f16"])


def _gpu_layers(value: int | str) -> str:
    """Returns `auto`, `all` or a number."""
    text = str(value)
    if text not in ("auto", "all") and not text.isdecimal():
        got = quote(value) if isinstance(value, str) else value
        raise ConfigError(f"expected 'auto', 'all' or a number of layers, got {got} - at embedded.gpu_layers")
    return text


def _tensor_split(shares: tuple[float, ...]) -> tuple[float, ...]:
    if len(shares) > _MAX_GPUS:
        raise ConfigError(f"expected at most {_MAX_GPUS} shares, got {len(shares)} - at embedded.tensor_split")
    if any(share < 0 for share in shares) or (shares and not any(shares)):
        listed = ", ".join(f"{share:g}" for share in shares)
        raise ConfigError(
            f"expected the share of each GPU, with at least one above 0, got [{listed}] - at embedded.tensor_split"
        )
    return shares


def _cache_types(config: EmbeddedConfig) -> tuple[str, str]:
    """Returns the number types of keys and values."""
    keys = _is_one_of(config.cache_type, CACHE_TYPE_BYTES, "cache_type")
    values = _is_one_of(config.cache_type_v or keys, CACHE_TYPE_BYTES, "cache_type_v")
    if values not in _UNQUANTIZED and config.flash_attention == "off":
        setting = "cache_type_v" if config.cache_type_v else "cache_type"
        raise ConfigError(
            f"expected {', '.join(_UNQUANTIZED)} for the values in the KV cache, since flash attention is off, got "
            f'{values!r} - at embedded.{setting}; flash_attention = "auto" allows it, or cache_type_v = "f16"'
        )
    return keys, values


def _is_one_of(value: str, known: Iterable[str], setting: str) -> str:
    names = list(known)
    if value not in names:
        raise ConfigError(
            f"expected one of {', '.join(names)}, got {quote(value)}{nearest(value, names)} - at embedded.{setting}"
        )
    return value
