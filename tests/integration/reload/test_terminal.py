"""SIGHUP of a gateway in a terminal: sent by a user it reloads; a closed terminal stops the gateway."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.gateway import DEADLINE_S, environment

IN_TERMINAL = (
    "import os, sys; os.open(sys.argv[1], os.O_RDWR); os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
)
"""Makes a terminal the controlling one of this session, and runs a Python program."""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux makes the first opened terminal the controlling one")
def test_closed_terminal_stops_gateway(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    config = tmp_path / "config.toml"
    config.write_text('[server]\nport = 0\n[upstreams.a]\nurl = "http://127.0.0.1:9/v1"\nmodels = ["m"]\n')
    line = ["-m", "dragoman", "serve", "--config", str(config), "--log-format", "json"]
    argv = [sys.executable, "-c", IN_TERMINAL, os.ttyname(slave), *line]
    process = subprocess.Popen(
        argv,
        env=environment(tmp_path),
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        os.close(slave)
        assert process.stderr
        try:
            assert any("try: curl" in line for line in process.stderr)
            process.send_signal(signal.SIGHUP)
            assert any("SIGHUP: the configuration is unchanged" in line for line in process.stderr)
            os.close(master)
            assert "SIGHUP: stopping" in process.stderr.readline()
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()
