"""Shows the progress of reading a prompt while the agent uses the terminal: in a file, and in the window's title."""

import os
import sys
import time
from pathlib import Path
from typing import Final

_EVERY_S: Final = 1.0
"""Minimum time between two writes of the title."""
_LONGEST: Final = 120


class Status:
    """Shows the latest line."""

    def __init__(self, file: Path) -> None:
        """Args:
        file: receives the line, for agents that have a status line of their own.
        """
        self._file = file
        self._terminal = _terminal()
        self._titled = False
        self._wrote_s = 0.0

    def show(self, line: str) -> None:
        """Shows a line; "" removes it."""
        written = self._file.with_suffix(".new")
        written.write_text(f"{line}\n" if line else "", encoding="utf-8")
        written.replace(self._file)
        now_s = time.monotonic()
        if self._terminal is None or (line and now_s - self._wrote_s < _EVERY_S) or not (line or self._titled):
            return
        self._wrote_s, self._titled = now_s, bool(line)
        try:
            os.write(self._terminal, f"\x1b]2;{line[:_LONGEST]}\x07".encode())
        except OSError:  # the terminal was closed
            self._terminal, self._titled = None, False

    def close(self) -> None:
        """Restores the title."""
        if self._titled:
            self.show("")


def _terminal() -> int | None:
    """Returns the terminal that the agent uses, or None if it has no title."""
    if os.environ.get("TERM", "dumb") in ("dumb", "linux"):
        return None
    return next((stream.fileno() for stream in (sys.stderr, sys.stdout) if stream.isatty()), None)
