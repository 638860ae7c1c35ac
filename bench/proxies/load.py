"""The upstream server and load client of the benchmark: `load.c`, compiled at the first use."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from bench.proxies.processes import LOAD_CORE, on_core

SOURCE: Final = Path(__file__).with_name("load.c")
_OPEN_MS: Final = 60_000
_PROGRAMS: Final = Path(__file__).parents[2] / ".cache/bench"


class Outcome(msgspec.Struct, frozen=True):
    """What the client received in one run."""

    done: int
    failed: int
    """Responses with another status than 200, and connections that were closed early."""
    short: int
    """Responses that lack text."""
    status: int
    """HTTP status of the last failed response."""
    seconds: float
    """Duration of the run."""


class LoadProgram:
    """The running program; `port` is the upstream's."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self.port = int(self._read())

    def run(self, port: int, request: bytes, **options: int) -> Outcome:
        """Sends the request repeatedly and returns when the last response is complete; options: see `load.c`."""
        return self._command("run", port, request, options)

    @contextmanager
    def open_streams(self, port: int, request: bytes, conns: int, spread: int) -> Iterator[Outcome]:
        """Keeps streams open, each of which has received its first text; `done` of the outcome counts them.

        Args:
            port: port of the proxy.
            request: the complete HTTP request.
            conns: number of streams.
            spread: milliseconds over which they begin.
        """
        options = {"conns": conns, "spread": spread, "millis": _OPEN_MS}
        try:
            yield self._command("open", port, request, options)
        finally:
            self._write(b"close\n")
            self._read()

    def _command(self, name: str, port: int, request: bytes, options: dict[str, int]) -> Outcome:
        fields = {"port": port, "size": len(request), **options}
        line = " ".join([name, *(f"{key}={value}" for key, value in fields.items())])
        self._write(line.encode() + b"\n" + request)
        return msgspec.json.decode(self._read(), type=Outcome)

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def _read(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the load program ended with status {self._process.wait()}; see its message above")
        return line


@contextmanager
def load_program() -> Iterator[LoadProgram]:
    """Compiles and starts the program, on the second core if there is one."""
    with on_core(LOAD_CORE):
        process = subprocess.Popen([compile_program()], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield LoadProgram(process)
    finally:
        process.kill()
        process.communicate()


def compile_program() -> Path:
    """Returns the program's path, named by a hash of its source."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise RuntimeError(
            "expected a C compiler `cc` on PATH, which compiles bench/proxies/load.c; install gcc or clang"
        )
    program = _PROGRAMS / f"load-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=program.parent) as folder:
            target = Path(folder, "load")
            subprocess.run([compiler, "-O2", "-o", str(target), str(SOURCE)], check=True)
            target.rename(program)
    return program
