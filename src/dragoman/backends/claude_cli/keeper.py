"""Ends processes when this program is gone, however it went: SIGKILL leaves nobody to tidy up.

A small process of its own holds the other end of a pipe, and hears on it of each process group that begins and ends
(`+123`, `-123`). When the pipe closes, which the system sees to, it ends those that are left.
"""

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Final

_CHILD: Final = Path(__file__).with_name("keeper_child.py")


class Keeper:
    """Tells that process what there is to be ended."""

    def __init__(self) -> None:
        self._child: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Have it run; again where somebody ended it."""
        async with self._starting:
            if self._child is None or self._child.returncode is not None:
                self._child = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-I", "-S", str(_CHILD)),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                    env={},
                    start_new_session=True,
                )

    def watch(self, group: int) -> None:
        """End this group when we are gone."""
        self._tell(f"+{group}")

    def forget(self, group: int) -> None:
        """It has come to its end."""
        self._tell(f"-{group}")

    async def close(self) -> None:
        """End it, and what it still knows of."""
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()
            await self._child.wait()
            self._child = None

    def _tell(self, line: str) -> None:
        if self._child is not None and self._child.stdin is not None:
            with contextlib.suppress(ConnectionError):
                self._child.stdin.write(line.encode() + b"\n")
