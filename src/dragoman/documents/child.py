"""Runs a parser of untrusted files in a child process: it can neither block the event loop nor use all memory."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

_MEMORY_BYTES: Final = 1_500_000_000


async def run_parser(program: Path, job: Mapping[str, object], content: bytes, cpu_s: int) -> bytes:
    """Returns what the program writes, or nothing if it fails.

    Args:
        program: A Python file that begins with `limit_process` of its job.
        job: Its first line of input, as JSON.
        content: The rest of its input.
        cpu_s: Limit of its CPU time.
    """
    first = msgspec.json.encode({**job, "memory_bytes": _MEMORY_BYTES, "cpu_s": cpu_s})
    environment = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH")}
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", str(program)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment,
        start_new_session=True,  # Ctrl-C is handled by the parent
    )
    try:
        written, _ = await child.communicate(first + b"\n" + content)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return written if child.returncode == 0 else b""
