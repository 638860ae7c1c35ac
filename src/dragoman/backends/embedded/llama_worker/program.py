"""The user's llama-server, started and ended by the child process."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

from .listener import Listener

POLL_S: Final = 0.05
_ENDING_S: Final = 0.5
"""Time between the loss of a connection and the end of the process that closed it."""
_PARENT_DIED: Final = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""


class Program:
    """The user's llama-server, which does not outlive this process."""

    def __init__(self, settings: dict[str, Any], listener: Listener, key: str) -> None:
        self._listener = listener
        host, port = listener.address
        environment = os.environ | {"LLAMA_API_KEY": key}
        if settings["projector"] and sys.platform != "win32":
            environment["PATH"] = settings["private"]  # a client's data never reaches a program of the machine
        self._process = subprocess.Popen(
            [*settings["command"], "--host", host, *(["--port", str(port)] if port else [])],
            stdin=subprocess.DEVNULL,
            stdout=2,
            env=environment,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
        self.pid = self._process.pid
        threading.Thread(target=self._watch, daemon=True).start()
        while not listener.is_ready():
            time.sleep(POLL_S)

    def complete(self, body: dict[str, Any], took: Callable[[dict[str, Any]], bool]) -> None:
        """Passes chunks to `took` until it returns True."""
        with closing(self._listener.complete(body)) as chunks:
            for chunk in chunks:
                if took(chunk):
                    return

    def close(self) -> None:
        """Kills the program."""
        self._process.kill()

    def has_ended(self) -> bool:
        """Returns whether it ends just now; this process then ends too."""
        try:
            self._process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _watch(self) -> None:
        """Ends this process as llama-server has ended."""
        status = self._process.wait()
        if status < 0:
            os.kill(os.getpid(), -status)
        os._exit(status or 1)


def _end_with_parent() -> None:
    """Lets the kernel kill this child process when its parent dies, however that happens."""
    ctypes.CDLL(None).prctl(_PARENT_DIED, signal.SIGKILL)
