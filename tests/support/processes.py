"""Small Python processes that a test talks to by lines, and kills."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator


class Lines:
    """A running program; it reads lines and prints lines."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def read(self) -> str:
        """Returns the next line; fails if the program has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.endswith("\n"), "the program has ended"
        return line.rstrip("\n")

    def ask(self, line: str) -> str:
        self.write(line)
        return self.read()

    def rest(self) -> list[str]:
        """Returns all further complete lines, until the program has ended."""
        assert self._process.stdout is not None
        return [line.rstrip("\n") for line in self._process.stdout if line.endswith("\n")]

    def kill(self) -> None:
        """Ends the program at once, by SIGKILL."""
        self._process.kill()
        self._process.wait()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)


@contextlib.contextmanager
def python_process(program: str, *args: object) -> Iterator[Lines]:
    """Runs this program; at the end of the block it is killed, also if it was stopped."""
    command = [sys.executable, "-c", program, *map(str, args)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Lines(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            with contextlib.suppress(BrokenPipeError):
                process.communicate()
