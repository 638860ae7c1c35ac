"""Starts the child process that runs llama.cpp, and explains how it ended."""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

_KILLED: Final = -9
"""The return code after SIGKILL, which Windows does not have."""
_CODE: Final = "import sys; sys.path.append(sys.argv[1]); from llama_worker.main import main; main()"
"""Imports the child's package alone: as a part of ours it would import the whole of it first."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings of the child process."""

    path: Path
    context_window: int
    max_concurrency: int
    max_queue: int
    threads: int
    memory_limit_mb: int
    load_timeout_s: float
    stall_timeout_s: float
    """Maximum time without output during a request; each batch of prompt tokens produces output."""
    batch_tokens: int = 0
    """Prompt tokens that are read in one step; 0: as suits the hardware."""
    reading_threads: int = 0
    """Threads while a prompt is read; 0: as many as `threads`."""
    cache_mb: int = 512
    """Memory for prompts that were evicted from a slot and may be used again."""
    projector: Path | None = None
    """Turns images or sound into embeddings."""
    prefix_dir: Path | None = None
    """Folder of saved prompt prefixes."""
    prefix_cache_mb: int = 0
    pooling: int = 0
    """`gguf.Metadata.pooling` of the model."""
    program: str = ""
    """The llama-server program; empty: the Python package runs the model."""
    gpu_layers: str = "auto"
    """`auto`, `all`, or a number."""
    tensor_split: tuple[float, ...] = ()
    flash_attention: str = "auto"
    cache_types: tuple[str, str] = ("f16", "f16")
    """Number types of the keys and the values in the KV cache."""


_ENVIRONMENT: Final = (
    *("PATH", "HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "XDG_RUNTIME_DIR"),
    *("CUDA_*", "NVIDIA_*", "HIP_*", "HSA_*", "ROC*", "VK_*", "GGML_*", "MESA_*", "ONEAPI_*", "SYCL_*", "ZE_*"),
)
"""Variables that the child process gets: those with which GPU drivers are selected are among them."""


def child_environment() -> dict[str, str]:
    """Returns the environment of a child process that uses llama.cpp."""
    environment = {k: v for k, v in os.environ.items() if any(fnmatchcase(k, pattern) for pattern in _ENVIRONMENT)}
    # Threads that spin at barriers are very slow on a busy machine; a crash must not start gdb.
    return environment | {"OMP_WAIT_POLICY": "passive", "GGML_NO_BACKTRACE": "1", "PYTHONUNBUFFERED": "1"}


async def start(line_limit_bytes: int) -> asyncio.subprocess.Process:
    """Starts the child process, which waits for its first line."""
    return await asyncio.create_subprocess_exec(
        # -P: the current folder may contain a json.py of its own.
        *(sys.executable, "-P", "-c", _CODE, str(Path(__file__).parent)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=child_environment(),
        limit=line_limit_bytes,
        start_new_session=True,  # Ctrl-C is handled by the parent
    )


def settings_message(settings: EngineSettings, private: str, command: Sequence[str]) -> dict[str, Any]:
    """Returns the first message to the child.

    Args:
        settings: the settings of the engine.
        private: a folder for the child, which it removes.
        command: the command line of llama-server; empty: the Python package runs the model.
    """
    return {
        "command": list(command),
        "path": str(settings.path),
        "pooling": settings.pooling,
        "projector": str(settings.projector or ""),
        "context_window": settings.context_window,
        "max_concurrency": settings.max_concurrency,
        "threads": settings.threads,
        "reading_threads": settings.reading_threads or settings.threads,
        "memory_limit_mb": settings.memory_limit_mb,
        "batch_tokens": settings.batch_tokens,
        "gpu_layers": settings.gpu_layers,
        "tensor_split": settings.tensor_split,
        "flash_attention": settings.flash_attention,
        "cache_types": settings.cache_types,
        "cache_mb": settings.cache_mb,
        "prefix_dir": str(settings.prefix_dir or ""),
        "private": private,
    }


def kill(process: asyncio.subprocess.Process) -> None:
    """Kills the child process, and the llama-server that it may have started."""
    if sys.platform == "win32":  # no process groups
        import psutil  # here, as the base install has none, and lists models

        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # it leads a session of its own


def private_dir_parent() -> str | None:
    """Returns the parent of the private folder: the path of a socket in it is limited to 103 bytes."""
    return "/tmp" if len(os.fsencode(tempfile.gettempdir())) > 60 and os.path.isdir("/tmp") else None


def describe_exit(returncode: int | None, stderr: Iterable[str], memory_limit_mb: int) -> str:
    """Returns how the process ended, and reason: `signal SIGABRT: GGML_ASSERT(…) failed`.

    llama.cpp marks errors with an E after the time; the first of them is the most useful.
    """
    status_text = f"exit status {returncode}"
    if returncode is not None and returncode < 0:
        status_text = f"signal {signal.Signals(-returncode).name}"
    lines = list(stderr)
    marked = [line.partition(" E ")[2].strip() for line in lines if " E " in line]
    reason = [*marked[:1], *lines[-1:]][:1]
    if memory_limit_mb and returncode != _KILLED:
        reason.append(f"embedded.memory_limit_mb = {memory_limit_mb} may be too small")
    return "; ".join([f"{status_text}: {reason[0]}", *reason[1:]]) if reason else status_text
