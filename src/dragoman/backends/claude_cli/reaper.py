"""Terminates the CLI's processes when the gateway has exited for whatever reason, including SIGKILL.

A small process holds the other end of a pipe, on which it receives each process group that begins and ends, and
the folder to remove with it (`+123 /tmp/dragoman-x`, `-123`). When the operating system closes the pipe, it terminates
the groups that are left. On Windows, which has no groups, it terminates the processes themselves.
"""

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import Final

_CHILD: Final = Path(__file__).with_name("reaper_worker.py")
_NEEDED: Final = ("SYSTEMROOT",)
"""Variables without which Python does not start on Windows."""


class Reaper:
    """Starts that process, and sends it the groups to terminate."""

    def __init__(self) -> None:
        self._child: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()
        self._folders: dict[int, str] = {}
        """The folders of the running groups."""

    async def start(self) -> None:
        """Starts the process, or starts it again if it was killed."""
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
                    self._send_line(f"+{group} {folder}")

    def watch(self, group: int, folder: str) -> None:
        """Has this group terminated, and its folder removed, when the gateway exits."""
        self._folders[group] = folder
        self._send_line(f"+{group} {folder}")

    def forget(self, group: int) -> None:
        """Removes a group that has exited."""
        self._folders.pop(group, None)
        self._send_line(f"-{group}")

    async def close(self) -> None:
        """Ends the process, which terminates the groups that are left."""
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()
            await self._child.wait()
            self._child = None

    def _send_line(self, line: str) -> None:
        if self._child is not None and self._child.stdin is not None:
            with contextlib.suppress(ConnectionError):
                self._child.stdin.write(os.fsencode(line) + b"\n")
