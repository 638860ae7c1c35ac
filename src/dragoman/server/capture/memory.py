"""Captures in memory, for as long as the process runs."""

import threading
from typing import Final

from dragoman.server.capture.files import Files

MAX_EXCHANGES: Final = 200
"""Maximum number of exchanges; the oldest are deleted."""
MAX_TOTAL_BYTES: Final = 64 * 1024 * 1024
"""Maximum total size of the exchanges; the newest one may be larger."""


class MemoryCaptures:
    """The newest captures of a process. Safe for use by several threads."""

    def __init__(self, max_exchanges: int = MAX_EXCHANGES, max_bytes: int = MAX_TOTAL_BYTES) -> None:
        """Args:
        max_exchanges: maximum number of captures.
        max_bytes: maximum total size of their files.
        """
        self._max_exchanges, self._max_bytes = max_exchanges, max_bytes
        self._captures: dict[str, Files] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def add(self, name: str, files: Files) -> None:
        """Adds a capture, and deletes the oldest ones that exceed the limits.

        Args:
            name: the name of the capture, which ends in the id of its request.
            files: its files.
        """
        with self._lock:
            self._captures[name] = files
            self._bytes += _size(files)
            while len(self._captures) > 1 and (
                len(self._captures) > self._max_exchanges or self._bytes > self._max_bytes
            ):
                oldest = next(iter(self._captures))
                self._bytes -= _size(self._captures.pop(oldest))

    def get(self, name: str) -> Files | None:
        """Returns the files of a capture; None: there is no such capture."""
        with self._lock:
            return self._captures.get(name)

    def names(self) -> list[str]:
        """Returns the names of all captures, the oldest first."""
        with self._lock:
            return list(self._captures)

    def clear(self) -> None:
        """Deletes all captures."""
        with self._lock:
            self._captures.clear()
            self._bytes = 0


def _size(files: Files) -> int:
    return sum(map(len, files.values()))
