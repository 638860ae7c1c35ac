"""Counts the instructions of a process with callgrind: the same on a busy machine, to 1 %.

Instructions of the kernel (sockets) are not counted.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_OUTPUT: Final = "callgrind"
_TOTALS: Final = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)


def unavailable() -> str:
    """Returns why instructions cannot be counted here; empty if they can."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"instructions are counted on x86-64 Linux only, this is {sys.platform} {platform.machine()}"
    if not shutil.which("valgrind"):
        return "valgrind is not on PATH"
    return ""


def under_callgrind(command: list[str], folder: Path) -> list[str]:
    """Returns the command that runs another under callgrind, which counts from the first `Counter` on."""
    options = (
        "--tool=callgrind",
        "--instr-atstart=no",
        f"--callgrind-out-file={folder / _OUTPUT}",
        "--log-file=/dev/null",
    )
    return ["valgrind", *options, *command]


def environment(**changes: str) -> dict[str, str]:
    """Returns an environment in which hashes, and so the order of sets, are the same in each run."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DRAGOMAN_"))}
    return {**inherited, "PYTHONHASHSEED": "0", **changes}


class Counter:
    """Counts what a process that runs under callgrind executes."""

    def __init__(self, pid: int, folder: Path) -> None:
        self._pid = pid
        self._folder = folder
        self._control("-i", "on")

    def count(self, work: Callable[[], object]) -> int:
        """Returns the number of instructions while `work` waits for the process."""
        self._control("-z")
        work()
        self._control("-d")
        (dump,) = self._folder.glob(f"{_OUTPUT}.*")
        found = _TOTALS.search(dump.read_text())
        dump.unlink()
        assert found, "callgrind writes a sum"
        return int(found[1])

    def _control(self, *arguments: str) -> None:
        subprocess.run(["callgrind_control", *arguments, str(self._pid)], check=True, capture_output=True)


class Worker:
    """`bench.micro` under callgrind: executes named work."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self._process = process
        self.run("", 0)  # it has started
        self.counter = Counter(process.pid, folder)

    def run(self, name: str, times: int) -> int:
        """Executes the work so many times; returns how many units it has, such as deltas."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(name, times, sep="\t", file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("bench.micro ended; its error is printed above")
        return int(line)


@contextmanager
def micro_worker(environ: Mapping[str, str], folder: Path) -> Iterator[Worker]:
    """Starts the worker."""
    command = under_callgrind([sys.executable, "-m", "bench.micro"], folder)
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, env=environ, cwd=folder, stdin=pipe, stdout=pipe, text=True)
    try:
        yield Worker(process, folder)
    finally:
        process.kill()
        process.communicate()
