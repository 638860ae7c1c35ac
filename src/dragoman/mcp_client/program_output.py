"""What a program of an MCP server writes to standard error: its last part is kept, for the log of a failed start.

The first line of a program that `program_worker` starts is its process id.

Nothing else is done with it: it may contain content, and the terminal may show something else, such as an agent.
"""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Final, TextIO

_MAX_BYTES: Final = 2000
_CHUNK_BYTES: Final = 65536


class ProgramErrors:
    """The end of what a program wrote."""

    def __init__(self) -> None:
        self._tail = b""
        self._ended = threading.Event()
        self.pid: Future[int] = Future()
        """Id of the process; 0: it ended before it could report its id."""

    @property
    def tail(self) -> str:
        """The last part of the text."""
        return self._tail.decode("utf-8", "replace").strip()

    def wait_for_end(self, timeout_s: float) -> None:
        """Blocks until all is read that the program wrote before it ended."""
        self._ended.wait(timeout_s)

    @contextmanager
    def opened(self, *, has_pid: bool) -> Iterator[TextIO]:
        """Yields the file for the program; close it when the program runs.

        Args:
            has_pid: Whether the first line is the id of the process.
        """
        read, write = os.pipe()
        threading.Thread(target=self._read, args=(read, has_pid), name="mcp stderr", daemon=True).start()
        with os.fdopen(write, "w") as file:
            yield file

    def _read(self, pipe: int, has_pid: bool) -> None:
        # A thread, as a loop of Windows cannot read pipes; it ends when all programs that have the pipe have ended.
        with suppress(OSError):
            while data := os.read(pipe, _CHUNK_BYTES):
                if has_pid:  # written at once, and less than a pipe splits
                    line, _, data = data.partition(b"\n")
                    self.pid.set_result(int(line))
                    has_pid = False
                self._tail = (self._tail + data)[-_MAX_BYTES:]
        os.close(pipe)
        self._ended.set()
        if has_pid:
            self.pid.set_result(0)
