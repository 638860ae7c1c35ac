"""The user's own `llama-server` program: where it is, and its command line for a model.

Source: `llama-server --help` of builds 10434 and 11434 (2026-10).
"""

import os
import shutil
from typing import Final

from dragoman.backends.embedded import gguf
from dragoman.backends.embedded.start_worker import EngineSettings
from dragoman.core.errors import ConfigError, quote

NAME: Final = "llama-server"
_POOLING: Final = {1: "mean", 2: "cls", 3: "last", gguf.RANKS: "rank"}
"""Names of `gguf.Metadata.pooling`."""
_BATCH_TOKENS: Final = 512
_LOG_LEVEL: Final = "4"
"""The lowest level at which a load reports its hardware; prompts are not logged below 5."""


def find_program(configured: str) -> str:
    """Returns the path of the program.

    Args:
        configured: the setting `embedded.llama_server`: a path or a name; empty: the usual name.

    Raises:
        ConfigError: it is not there, or is not executable.
    """
    name = os.path.expanduser(configured or NAME)
    if found := shutil.which(name):
        return os.path.abspath(found)
    if configured:
        raise ConfigError(f"expected an executable program, got {quote(configured)} - at embedded.llama_server")
    raise ConfigError(
        f"expected the program {NAME!r} on the PATH, found none - at embedded.engine; set embedded.llama_server to "
        'its path, or engine = "xllamacpp"'
    )


def command(settings: EngineSettings) -> list[str]:
    """Returns the command line; the child process adds the address, and passes the key in the environment.

    Args:
        settings: the settings of the engine.
    """
    keys, values = settings.cache_types
    # A text to embed is read in one batch.
    batch = settings.context_window if settings.pooling else settings.batch_tokens or _BATCH_TOKENS
    options = {
        "--model": settings.path,
        "--ctx-size": settings.context_window * settings.max_concurrency,
        "--parallel": settings.max_concurrency,
        "--threads": settings.threads,
        "--threads-batch": settings.reading_threads or settings.threads,
        "--batch-size": batch,
        "--ubatch-size": batch,
        "--n-gpu-layers": settings.gpu_layers,
        "--flash-attn": settings.flash_attention,
        "--cache-type-k": keys,
        "--cache-type-v": values,
        "--cache-ram": settings.cache_mb,
        "--log-verbosity": _LOG_LEVEL,
    }
    if settings.tensor_split:
        options["--tensor-split"] = ",".join(f"{share:g}" for share in settings.tensor_split)
    if settings.projector:
        options["--mmproj"] = settings.projector
    if settings.prefix_dir:
        options["--slot-save-path"] = os.path.join(settings.prefix_dir, "")
    switches = ["--no-warmup", "--no-webui", "--metrics", "--offline"]
    if settings.pooling:
        options["--pooling"] = _POOLING[settings.pooling]
        switches.append("--reranking" if settings.pooling == gguf.RANKS else "--embedding")
    return [settings.program, *(str(each) for pair in options.items() for each in pair), *switches]
