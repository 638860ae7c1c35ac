"""A gateway that is killed at any moment leaves neither a folder nor a process of the CLI."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from support.gateway import DEADLINE_S, environment, until

KILLED_AT = {
    "the folder is created": "process.os.mkdir = die",
    "the process has started": "Reaper.watch_group = die",
    "the process is running": "process.Process.stop = die",
    "the process has exited": "Reaper.forget_group = die",
    "the folder is deleted": "process.shutil.rmtree = die",
}
"""The line that makes the gateway kill itself, by the moment."""
GATEWAY = """
import asyncio, os, signal, sys, tempfile
from dragoman.backends.claude_cli import process
from dragoman.process_reaper.reaper import Reaper

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    tempfile.tempdir = sys.argv[1]
    started = await process.Process.start(["cat", sys.argv[1], "-"], {{"PATH": os.defpath}}, Reaper())
    await started.stop()

{line}
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
@pytest.mark.parametrize("line", KILLED_AT.values(), ids=KILLED_AT)
def test_killed_gateway_leaves_nothing(line: str, tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", GATEWAY.format(line=line), str(folder)], env=environment(tmp_path), timeout=DEADLINE_S
    )
    assert done.returncode == -signal.SIGKILL
    until(lambda: not list(folder.iterdir()), "the end of the folder")
    until(lambda: not left_over(str(folder)), "the end of the process")


def left_over(word: str) -> list[int]:
    """Running processes of `cat` with this word in their command lines."""
    return [
        found.pid
        for found in psutil.process_iter(["name", "cmdline"])
        if found.info["name"] == "cat" and word in (found.info["cmdline"] or ())
    ]
