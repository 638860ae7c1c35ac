"""The programs that the scenarios run on, each started with the same weights, context and threads."""

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from bench.accuracy.scenarios.scenario import ToolScenario
from dragoman.backends.embedded import weights

_ROOT: Final = Path(__file__).parents[3]
_LLAMA_SERVER: Final = _ROOT / "tests" / "support" / "servers" / "llama_server.py"
CONTEXT: Final = 8192
THREADS: Final = max(1, (os.cpu_count() or 2) - 1)
"""Threads of the engine; `_LLAMA_SERVER` uses as many."""
_START_S: Final = 180.0
FORGE_PYTHON: Final = Path(".cache/forge/bin/python")
"""Python of the environment that contains the proxy of forge-guardrails."""


@dataclass(frozen=True)
class Arm:
    """A program, and how it is asked."""

    title: str
    program: str
    """`llama_server`, `forge` or `dragoman`."""
    has_steps: bool = False
    settings: str = ""
    """Settings of the gateway, in TOML, after those of all arms."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of each request."""

    def fields(self, scenario: ToolScenario) -> dict[str, Any]:
        """Returns what a request contains apart from the conversation."""
        steps = scenario.request_steps if self.has_steps else {}
        return {**self.extra, **({"dragoman": {"steps": steps}} if steps else {})}


ARMS: Final[dict[str, Arm]] = {
    "bare": Arm("llama.cpp's server", "llama_server"),
    "forge": Arm("forge's proxy", "forge"),
    "dragoman": Arm("Dragoman", "dragoman"),
    "derived": Arm("Dragoman with derived steps", "dragoman", extra={"dragoman": {"steps": "derive"}}),
    "steps": Arm("Dragoman with steps", "dragoman", has_steps=True),
}
"""By name."""


class RunningArm:
    """A running arm."""

    def __init__(self, base_url: str, pids: list[int]) -> None:
        self.base_url = base_url
        self._pids = pids

    def cpu_s(self) -> float:
        """Returns the CPU seconds of all its processes so far."""
        total = 0.0
        for pid in self._pids:
            try:
                process = psutil.Process(pid)
                times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
            except psutil.NoSuchProcess:
                continue
            total += sum(each.user + each.system for each in times)
        return total


@contextmanager
def running(arm: Arm, model: str, forge_python: Path = FORGE_PYTHON) -> Iterator[RunningArm]:
    """Starts an arm, and stops it at the end.

    Args:
        arm: the arm.
        model: name of a known model.
        forge_python: Python of the environment of forge's proxy.

    Raises:
        RuntimeError: it does not start.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if arm.program == "dragoman":
            yield stack.enter_context(_dragoman(arm, model, folder))
            return
        file = str(weights.find_weights(model))
        server = stack.enter_context(
            _process([sys.executable, str(_LLAMA_SERVER), file, str(CONTEXT), "1"], folder / "llama.log")
        )
        url = _wait_for_url(server, folder / "llama.log")
        if arm.program == "llama_server":
            yield RunningArm(url, [server.pid])
            return
        port = _free_port()
        command = [str(forge_python), "-m", "forge.proxy", "--backend-url", url, "--port", str(port)]
        proxy = stack.enter_context(_process(command, folder / "forge.log"))
        _wait_for_port(proxy, port, folder / "forge.log")
        yield RunningArm(f"http://127.0.0.1:{port}", [server.pid, proxy.pid])


@contextmanager
def _dragoman(arm: Arm, model: str, folder: Path) -> Iterator[RunningArm]:
    port, config = _free_port(), folder / "config.toml"
    config.write_text(
        f'[embedded]\nmodel = "{model}"\ncontext_window = {CONTEXT}\nmax_concurrency = 1\nthreads = {THREADS}\n'
        f"reading_threads = {THREADS}\nprefix_cache_mb = 0\n{arm.settings}\n"
    )
    command = [sys.executable, "-m", "dragoman", "serve", "--config", str(config), "--port", str(port)]
    with _process(command, folder / "dragoman.log") as gateway:
        _wait_for_port(gateway, port, folder / "dragoman.log")
        yield RunningArm(f"http://127.0.0.1:{port}", [gateway.pid])


@contextmanager
def _process(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, cwd=_ROOT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_url(process: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + _START_S
    while time.monotonic() < end and process.poll() is None:
        if found := re.search(r"https?://[\d.]+:\d+", log.read_text(errors="replace")):
            return found[0]
        time.sleep(0.2)
    raise RuntimeError(f"llama.cpp's server did not start: {log.read_text(errors='replace')[-2000:]}")


def _wait_for_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=10):
                return
        except OSError:
            time.sleep(0.3)
    raise RuntimeError(f"the program did not start: {log.read_text(errors='replace')[-2000:]}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe_socket:
        port: int = probe_socket.getsockname()[1]
        return port
