"""What a program of an MCP server writes to standard error: its last part is kept, for the log of a failed start.

Nothing else is done with it: it may contain content, and the terminal may show something else, such as an agent.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, TextIO

_MAX_BYTES: Final = 2000
_CHUNK_BYTES: Final = 65536


class ProgramErrors:
    """The end of what a program wrote."""

    def __init__(self) -> None:
        self._tail = b""

    @property
    def tail(self) -> str:
        """The last part of the text."""
        return self._tail.decode("utf-8", "replace").strip()

    @contextmanager
    def opened(self) -> Iterator[TextIO]:
        """Yields the file for the program; close it when the program runs."""
        read, write = os.pipe()
        threading.Thread(target=self._read, args=(read,), name="mcp stderr", daemon=True).start()
        with os.fdopen(write, "w") as file:
            yield file

    def _read(self, pipe: int) -> None:
        # A thread, as a loop of Windows cannot read pipes; it ends when all programs that have the pipe have ended.
        with suppress(OSError):
            while data := os.read(pipe, _CHUNK_BYTES):
                self._tail = (self._tail + data)[-_MAX_BYTES:]
        os.close(pipe)
