"""A text stream to which several processes write whole lines: a pipe mixes writes of more than 4 KB."""

import fcntl
import io
import os
import threading
from pathlib import Path


class WholeLines(io.TextIOBase):
    """Writes to a file descriptor, line by line, while it holds a lock that all processes have in common."""

    def __init__(self, descriptor: int, lock: Path) -> None:
        """
        Args:
            descriptor: where the lines are written.
            lock: a file that all processes can open; created if it is missing.
        """
        self._descriptor = descriptor
        self._lock = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._threads = threading.Lock()
        self._unfinished = ""

    def writable(self) -> bool:
        """Whether it accepts text: always."""
        return True

    def fileno(self) -> int:
        """Returns the file descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Returns whether a terminal shows the lines."""
        return os.isatty(self._descriptor)

    def write(self, text: str) -> int:
        """Writes the lines that are complete; the rest waits for its end."""
        with self._threads:
            lines, end, rest = text.rpartition("\n")
            if not end:
                self._unfinished += rest
                return len(text)
            data = f"{self._unfinished}{lines}\n".encode(errors="backslashreplace")
            self._unfinished = rest
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            finally:
                fcntl.flock(self._lock, fcntl.LOCK_UN)
        return len(text)
