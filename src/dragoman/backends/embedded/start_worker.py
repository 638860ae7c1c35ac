"""Starts the child process that runs llama.cpp, and explains how it ended."""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_KILLED: Final = -9
"""The return code after SIGKILL, which Windows does not have."""
_CHILD: Final = Path(__file__).with_name("llama_worker.py")


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
    batch_tokens: int = 256
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


async def start(line_limit_bytes: int) -> asyncio.subprocess.Process:
    """Starts the child process, which waits for its first line."""
    environment = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH")}
    # Threads that spin at barriers are very slow on a busy machine; a crash must not start gdb.
    environment |= {"OMP_WAIT_POLICY": "passive", "GGML_NO_BACKTRACE": "1", "PYTHONUNBUFFERED": "1"}
    return await asyncio.create_subprocess_exec(
        # By its path and not as a module, which would import the whole package first. -P: a folder, be it the current
        # one or that of the file, may contain a json.py of its own.
        *(sys.executable, "-P", str(_CHILD)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        limit=line_limit_bytes,
        start_new_session=True,  # Ctrl-C is handled by the parent
    )


def settings_message(settings: EngineSettings, private: str) -> dict[str, Any]:
    """Returns the first message to the child; `private` is a folder for it, which it removes."""
    return {
        "path": str(settings.path),
        "pooling": settings.pooling,
        "projector": str(settings.projector or ""),
        "context_window": settings.context_window,
        "max_concurrency": settings.max_concurrency,
        "threads": settings.threads,
        "reading_threads": settings.reading_threads or settings.threads,
        "memory_limit_mb": settings.memory_limit_mb,
        "batch_tokens": settings.batch_tokens,
        "cache_mb": settings.cache_mb,
        "prefix_dir": str(settings.prefix_dir or ""),
        "private": private,
    }


def private_dir_parent() -> str | None:
    """Returns the parent of the private folder: the path of a socket in it is limited to 103 bytes."""
    return "/tmp" if len(os.fsencode(tempfile.gettempdir())) > 80 and os.path.isdir("/tmp") else None


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
