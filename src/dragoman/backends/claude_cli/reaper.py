"""Ends processes when this program is gone, however it went: SIGKILL leaves nobody to tidy up.

A small process of its own holds the other end of a pipe, and hears on it of each process group that begins and ends,
and of the folder that is to go with it (`+123 /tmp/dragoman-x`, `-123`). When the pipe closes, which the system sees
to, it ends those that are left. On Windows, which has no groups, it ends the processes themselves.
"""

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import Final

_CHILD: Final = Path(__file__).with_name("reaper_process.py")
_NEEDED: Final = ("SYSTEMROOT",)
"""Without which Python does not start on Windows."""


class Reaper:
    """Tells that process what there is to be ended."""

    def __init__(self) -> None:
        self._child: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()
        self._folders: dict[int, str] = {}
        """Of what there is to be ended."""

    async def start(self) -> None:
        """Have it run; again where somebody ended it."""
        async with self._starting:
            if self._child is None or self._child.returncode is not None:
                self._child = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-I", "-S", str(_CHILD)),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                    env={name: os.environ[name] for name in _NEEDED if name in os.environ},
                    start_new_session=True,
                )
                for group, folder in self._folders.items():
                    self._tell(f"+{group} {folder}")

    def watch(self, group: int, folder: str) -> None:
        """End this group when we are gone, and remove its folder."""
        self._folders[group] = folder
        self._tell(f"+{group} {folder}")

    def forget(self, group: int) -> None:
        """It has come to its end."""
        self._folders.pop(group, None)
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
                self._child.stdin.write(os.fsencode(line) + b"\n")
