"""Server processes: their core, CPU time and memory. Linux only, as the figures are read from /proc."""

import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final, NamedTuple

SERVER_CORE: Final = 0
LOAD_CORE: Final = 1
_READY_S: Final = 180.0
"""LiteLLM takes half a minute to start on a busy machine."""
_CPU_CLOCK: Final = 2
_DESCRIPTORS: Final = 16_384


class ServerProcess(NamedTuple):
    """A server that accepts connections at this port of 127.0.0.1."""

    pid: int
    port: int


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Pins the processes that are started meanwhile to one of the cores, if there are several."""
    cores = os.sched_getaffinity(0)
    if len(cores) > 1:
        os.sched_setaffinity(0, {sorted(cores)[core]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def raise_descriptor_limit() -> None:
    """Lets the processes that are started later open as many descriptors as the system allows, up to 16,384."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def free_port() -> int:
    """Returns a port that is free now."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


@contextmanager
def running(
    command: Sequence[str], environ: Mapping[str, str], port: int, folder: Path, *, pin: bool = True
) -> Iterator[ServerProcess]:
    """Starts a server and waits until it accepts connections; at the end, terminates its process group.

    Args:
        command: program and arguments.
        environ: the complete environment.
        port: port at which it will listen.
        folder: working folder, which gets the file `log`.
        pin: whether it runs on `SERVER_CORE` only.

    Raises:
        RuntimeError: it ended, or did not listen in time; the message contains the end of its log.
    """
    log = folder / "log"
    with log.open("wb") as output, on_core(SERVER_CORE) if pin else nullcontext():
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        _wait(process, port, log)
        yield ServerProcess(process.pid, port)
    finally:
        _end(process)


def _wait(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    end = time.monotonic() + _READY_S
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    lines = log.read_text(errors="replace").splitlines()[-5:]
    raise RuntimeError(f"{process.args!r} does not listen on port {port}; the end of its log: {lines}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            continue


def cpu_ns(pid: int) -> int:
    """Returns the CPU time of a process and its living descendants, in nanoseconds.

    The clock of a process also contains the threads that have ended, unlike `/proc/PID/task/*/schedstat`.
    """
    return sum(time.clock_gettime_ns((~one << 3) | _CPU_CLOCK) for one in _tree(pid))


def memory_bytes(pid: int) -> int:
    """Returns the proportional set size of a process and its descendants: memory that several share counts once."""
    return sum(map(_proportional_bytes, _tree(pid)))


def _proportional_bytes(pid: int) -> int:
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(row.split()[1]) * 1024 for row in rows if row.startswith("Pss:"))


def _tree(pid: int) -> list[int]:
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return [pid, *(one for child in children for one in _tree(child))]
