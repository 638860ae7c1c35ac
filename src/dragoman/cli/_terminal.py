"""What is written to a terminal: texts whose control characters are escaped, and a line that is overwritten."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from dragoman.core.errors import ClientError, DragomanError

_EVERY_S: Final = 0.2
_SOON_S: Final = 1.0
"""For shorter waits no seconds are shown."""


def printable(text: str) -> str:
    r"""Returns the text with unprintable characters, except line breaks, as escapes such as `\x1b`."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    r"""Returns the text with unprintable characters as escapes, and line breaks as `\n`."""
    return printable(text).replace("\n", r"\n")


def exit_status(error: DragomanError) -> int:
    """Returns the exit status of a command that ends with this error."""
    return 2 if isinstance(error, ClientError) else 1


class ProgressLine:
    """Shows what the user waits for, and for how long already; without a terminal, nothing. Thread-safe."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = threading.RLock()
        self._tty = out.isatty()
        self._text = ""
        self._since_s = 0.0

    def redraw(self) -> None:
        """Updates the seconds of the line, if there is one."""
        with self._lock:
            if self._text:
                self._draw()

    def print(self, text: str) -> None:
        """Shows this text from now on."""
        with self._lock:
            if text and not self._text:
                self._since_s = time.monotonic()
            self._text = printable(text)
            self._draw()

    def update(self, text: str) -> None:
        """Replaces the text of the line; does nothing while no line is shown, as a report may arrive late."""
        with self._lock:
            if self._text:
                self.print(text)

    def clear(self) -> None:
        """Removes the line."""
        with self._lock:
            if self._text:
                self.print("")

    @contextmanager
    def showing(self, text: str) -> Iterator[None]:
        """Shows the text while the block runs; the line is removed at its end, also after an exception."""
        self.print(text)
        try:
            yield
        finally:
            self.clear()

    @contextmanager
    def counting_seconds(self) -> Iterator[None]:
        """Counts the seconds while the block runs; the line is removed at its end."""
        task = asyncio.ensure_future(self._count()) if self._tty else None
        try:
            yield
        finally:
            if task is not None:
                task.cancel()
            self.clear()

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            self.redraw()

    def _draw(self) -> None:
        if not self._tty:
            return
        waited_s = time.monotonic() - self._since_s
        count = f" · {waited_s:.0f} s" if self._text and waited_s >= _SOON_S else ""
        self._out.write(f"\r\x1b[K{self._text}{count}")
        self._out.flush()
