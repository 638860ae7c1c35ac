"""Terminates processes when the gateway has exited for whatever reason, including SIGKILL.

A small process holds the other end of a pipe, on which it receives each process group and each folder when it begins
and ends (`+group 123`, `-folder /tmp/dragoman-x`). When the operating system closes the pipe, it terminates the groups
and removes the folders that are left. A folder is registered before it exists, so that none remains if the gateway is
killed while a process starts. On Windows, which has no groups, the processes themselves are terminated.
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
        self._watched: dict[str, None] = {}
        """What is registered: `group 123`, `folder /tmp/dragoman-x`."""

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
                for watched in self._watched:
                    self._send_line(f"+{watched}")

    def watch_group(self, group: int) -> None:
        """Has this process group terminated when the gateway exits."""
        self._watch(f"group {group}")

    def watch_folder(self, folder: str) -> None:
        """Has this folder removed when the gateway exits; it need not exist yet."""
        self._watch(f"folder {folder}")

    def forget_group(self, group: int) -> None:
        """Removes a group that has exited."""
        self._forget(f"group {group}")

    def forget_folder(self, folder: str) -> None:
        """Removes a folder that was deleted."""
        self._forget(f"folder {folder}")

    async def close(self) -> None:
        """Ends the process, which terminates the groups that are left."""
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()
            await self._child.wait()
            self._child = None

    def _watch(self, what: str) -> None:
        self._watched[what] = None
        self._send_line(f"+{what}")

    def _forget(self, what: str) -> None:
        self._watched.pop(what, None)
        self._send_line(f"-{what}")

    def _send_line(self, line: str) -> None:
        if self._child is not None and self._child.stdin is not None:
            with contextlib.suppress(ConnectionError):
                self._child.stdin.write(os.fsencode(line) + b"\n")
