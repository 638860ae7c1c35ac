"""A program in a pseudo-terminal: what its screen shows, keys typed into it, and a recording (asciicast v2).

    with Terminal(command, environment, folder) as terminal:
        terminal.wait_for("trust this folder")
        terminal.type("\\r")

pyte draws the screen. The terminal answers the queries of full-screen programs, such as its type and cursor position.
"""

import errno
import fcntl
import json
import os
import pty
import re
import resource
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyte

COLUMNS: Final = 100
ROWS: Final = 36
_UNKNOWN: Final = re.compile(r"\x1b\[[<>=?][0-9;:]*[^0-9;:hl]|\x1b\[[0-9;:]* q|\x1b[P_][^\x1b]*\x1b\\")
"""Sequences that pyte misinterprets: keyboard protocols, cursor shapes, terminal names."""
_UNFINISHED: Final = re.compile(r"\x1b(\[[0-9;:<>=?]*|[P_][^\x1b]*\x1b?|\][^\x07\x1b]*)?$")
_KEY_REPEAT_S: Final = 5.0
"""Time after which Ctrl-C is typed again."""
_KEY_PRESSES: Final = 5
_QUERIES: Final = {
    "\x1b[c": "\x1b[?62;c",
    "\x1b[>0q": "\x1bP>|pyte\x1b\\",
    "\x1b]11;?": "\x1b]11;rgb:1e1e/2222/2a2a\x07",
}
"""Queries of programs and their answers; the screen answers that for the cursor position."""


class Terminal:
    """A program and its terminal. Not thread-safe."""

    def __init__(
        self, command: Sequence[str], environ: Mapping[str, str], folder: Path, columns: int = COLUMNS, rows: int = ROWS
    ) -> None:
        """Starts the command as the leader of a session with this terminal."""
        self.events: list[tuple[float, str, str]] = []
        """When, in seconds from the start; "o", "i" or "m" (output, input, marker); the text."""
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.Stream(self._screen)
        self._rest = ""
        self._bytes = b""
        self._size = (columns, rows)
        self._started_s = time.monotonic()
        self._started_at = time.time()
        self._before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._fd, program_fd = pty.openpty()
        fcntl.ioctl(program_fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _LEADER, *command],
            stdin=program_fd,
            stdout=program_fd,
            stderr=program_fd,
            env={"TERM": "xterm-256color", "COLORTERM": "truecolor", **environ},
            cwd=folder,
            start_new_session=True,
        )
        os.close(program_fd)
        self._lines = [""] * rows
        self._screen.write_process_input = self._answer  # type: ignore[method-assign]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Ends all processes of the session."""
        group = self.process.pid
        for number in (signal.SIGHUP, signal.SIGKILL):
            try:
                os.killpg(group, number)
            except ProcessLookupError:
                break
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                continue
        self.process.wait()
        os.close(self._fd)

    @property
    def seconds(self) -> float:
        """Returns the seconds since the start of the program."""
        return time.monotonic() - self._started_s

    @property
    def text(self) -> str:
        """Returns the text of the screen, without trailing blanks."""
        for row in self._screen.dirty:
            self._lines[row] = self._line(row)
        self._screen.dirty.clear()
        return "\n".join(self._lines).rstrip()

    def _line(self, row: int) -> str:
        """Returns a line of the screen; `Screen.display` visits each cell of all lines."""
        cells = self._screen.buffer[row]
        return "".join(cells[column].data for column in range(max(cells, default=-1) + 1)).rstrip()

    @property
    def output(self) -> str:
        """Returns the program's complete output, with control sequences."""
        return "".join(text for _, kind, text in self.events if kind == "o")

    def type(self, text: str) -> None:
        """Types keys into the program, as UTF-8; control keys are their characters."""
        self.events.append((self.seconds, "i", text))
        os.write(self._fd, text.encode())

    def interrupt(self, expected: str | Callable[[str], object]) -> str:
        """Types Ctrl-C until the screen contains a text or fulfils a condition; returns the screen.

        CPython handles a SIGINT between readline's prompt and its wait for keys only at the next key.

        Raises: AssertionError: as in `wait_for`.
        """
        for _ in range(_KEY_PRESSES):
            self.type("\x03")
            with suppress(AssertionError):
                return self.wait_for(expected, _KEY_REPEAT_S)
        return self.wait_for(expected)

    def mark(self, label: str) -> None:
        """Adds a marker to the recording."""
        self.events.append((self.seconds, "m", label))

    def wait_for(self, expected: str | Callable[[str], object], deadline_s: float = 60.0) -> str:
        """Reads until the screen contains a text or fulfils a condition; returns the screen.

        Raises: AssertionError: the time is over or the program has ended; the message contains the screen.
        """
        shows = expected if callable(expected) else lambda screen: expected in screen
        end_s = time.monotonic() + deadline_s
        while not shows(screen := self.text):
            left_s = end_s - time.monotonic()
            if left_s <= 0 or not self.read(min(left_s, 0.25)):
                why = "the program has ended" if left_s > 0 else f"not within {deadline_s:g} s"
                raise AssertionError(f"{why}: {expected}\n{screen}")
        return screen

    def settle(self, quiet_s: float = 0.3) -> None:
        """Reads until the program has written nothing for a while."""
        before = -1
        while before != len(self.events):
            before = len(self.events)
            if not self.read(quiet_s):
                return

    def wait_end(self, deadline_s: float = 30.0) -> int:
        """Reads until the program has ended; returns its exit status."""
        end_s = time.monotonic() + deadline_s
        while self.read(0.25) and time.monotonic() < end_s:
            pass
        return self.process.wait(max(1.0, end_s - time.monotonic()))

    def read(self, timeout_s: float) -> bool:
        """Reads the program's output within this time; returns False if it has ended."""
        if not select.select([self._fd], [], [], timeout_s)[0]:
            return True
        try:
            data = os.read(self._fd, 65536)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            data = b""
        if data:
            self._feed(data)
        return bool(data)

    def _feed(self, data: bytes) -> None:
        self._bytes += data
        if not _is_complete(self._bytes):
            return
        text = self._bytes.decode("utf-8", "ignore" if len(self._bytes) > 3 else "strict")
        self._bytes = b""
        self.events.append((self.seconds, "o", text))
        for query, answer in _QUERIES.items():
            if query in text:
                self._answer(answer)
        text = self._rest + text
        found = _UNFINISHED.search(text)
        self._rest = text[found.start() :] if found else ""
        self._stream.feed(_UNKNOWN.sub("", text[: found.start()] if found else text))

    def _answer(self, data: str) -> None:
        os.write(self._fd, data.encode())

    def cpu_s(self) -> float:
        """Returns CPU seconds of the ended program and its children."""
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        return now.ru_utime + now.ru_stime - self._before.ru_utime - self._before.ru_stime

    def save(self, path: Path, title: str, hidden: Mapping[str, str]) -> None:
        """Writes the recording; `hidden`: texts of this machine and their replacements."""
        columns, rows = self._size
        head = {
            "version": 2,
            "width": columns,
            "height": rows,
            "timestamp": int(self._started_at),
            "title": title,
            "env": {"TERM": "xterm-256color"},
        }
        lines = [json.dumps(head)]
        lines += [json.dumps([round(at, 3), kind, text], ensure_ascii=False) for at, kind, text in self.events]
        text = "\n".join(lines) + "\n"
        for found, replacement in hidden.items():
            text = text.replace(found, replacement)
        path.write_text(text)


def terminal_text(text: str) -> str:
    """Returns output without the sequences that pyte misinterprets."""
    return _UNKNOWN.sub("", text)


def _is_complete(data: bytes) -> bool:
    """Whether the bytes end with a complete character."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.reason != "unexpected end of data"
    return True


_LEADER: Final = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.SIG_DFL)  # a background job of a shell starts with it ignored
os.execvp(sys.argv[1], sys.argv[1:])
"""
