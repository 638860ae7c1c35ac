"""Runs `dragoman` as on Windows, as far as Python can pretend: without the modules and functions that it lacks there.

    python -m support.windows_like serve --port 8000

The standard library and packages with parts for Windows are imported before and keep their parts for POSIX, so
processes and sockets work as here.
"""

import asyncio
import asyncio.unix_events
import contextlib
import importlib.abc
import importlib.machinery
import multiprocessing
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from functools import partial
from types import ModuleType, SimpleNamespace

import mcp.client.stdio
import platformdirs  # noqa: F401  chooses the folders of its platform when it is imported
import psutil
import rich.console
import rich.live
import structlog
import uvicorn

ABSENT_MODULES = ("fcntl", "grp", "pty", "pwd", "readline", "resource", "termios", "tty", "uvloop")
ABSENT = {
    os: ("fork", "forkpty", "geteuid", "getpgid", "getuid", "killpg", "mkfifo", "setsid", "statvfs", "uname"),
    signal: (
        "SIGALRM",
        "SIGHUP",
        "SIGKILL",
        "SIGPIPE",
        "SIGQUIT",
        "SIGUSR1",
        "SIGUSR2",
        "pthread_sigmask",
        "setitimer",
    ),
    socket: ("AF_UNIX", "SO_REUSEPORT"),
    asyncio: ("open_unix_connection", "start_unix_server"),
}
_IMPORTED = (contextlib, mcp, multiprocessing, platform, rich, shutil, structlog, tempfile, threading, uvicorn)


class _Absent(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] in ABSENT_MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}, as on Windows", name=name)
        return None


def _no_signal_handler(*_: object) -> None:
    raise NotImplementedError


def pretend() -> None:
    """Removes from this process what Windows does not have."""
    for library in (asyncio.unix_events, psutil, subprocess):
        library.signal = SimpleNamespace(**vars(signal))
    sys.meta_path.insert(0, _Absent())
    for name in ABSENT_MODULES:
        sys.modules.pop(name, None)
    socket.socketpair = partial(socket.socketpair, socket.AF_UNIX)  # Windows' own is emulated
    for module, names in ABSENT.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    for method in ("add_signal_handler", "remove_signal_handler"):
        setattr(asyncio.unix_events._UnixSelectorEventLoop, method, _no_signal_handler)
    asyncio.ProactorEventLoop = asyncio.SelectorEventLoop
    sys.platform = "win32"


def main() -> None:
    """Runs the command."""
    pretend()
    from dragoman.cli import main as dragoman

    sys.exit(dragoman())


if __name__ == "__main__":
    main()
