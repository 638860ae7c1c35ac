"""The command line without what Python lacks on Windows (`support.windows_like`); nothing ran on Windows itself."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.gateway import CHAT, SMALL, ask, environment, until
from support.http_client import DEADLINE_S, blocking_http_client
from support.paths import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pretends to be on Windows")


def started(home: Path, *args: str) -> "subprocess.Popen[str]":
    env = environment(home, SMALL) | {"PYTHONPATH": str(ROOT / "tests")}
    command = [sys.executable, "-m", "support.windows_like", *args]
    return subprocess.Popen(
        command,
        env=env,
        cwd=home,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@pytest.mark.parametrize(
    "args",
    [
        ("--version",),
        ("doctor",),
        ("formats",),
        ("pull", "--list"),
        ("serve", "--print-config"),
        pytest.param(("ask", "Say hello.", "--tool-choice", "none"), marks=pytest.mark.model),
        pytest.param(("chat", "Say hello.", "--model", "smollm2"), marks=pytest.mark.model),
    ],
    ids=lambda args: args[0],
)
def test_command_works(tmp_path: Path, args: tuple[str, ...]) -> None:
    process = started(tmp_path, *args)
    printed, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, printed
    assert "Traceback" not in printed


@pytest.mark.model
def test_gateway_serves_and_ends(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    process = started(tmp_path, "serve", "--port", str(port))
    try:
        with blocking_http_client(f"http://127.0.0.1:{port}") as client:
            until(lambda: process.poll() is not None or _is_ready(port), "the gateway accepts connections")
            answer = client.post(CHAT, json=ask(CHAT, "Say hello.", max_tokens=8))
        assert answer.status_code == 200
        os.kill(process.pid, signal.SIGINT)
        printed, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, printed
        assert "Traceback" not in printed
    finally:
        process.kill()


def test_several_workers_are_refused(tmp_path: Path) -> None:
    process = started(tmp_path, "serve", "--workers", "2")
    printed, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2
    assert "Windows" in printed


def _is_ready(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
