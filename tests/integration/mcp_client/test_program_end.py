"""A gateway that is killed at any moment leaves no program of an MCP server, even one that ignores the end of input."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import psutil
import pytest

from dragoman.mcp_client.config import McpServerConfig
from dragoman.mcp_client.pool import McpServers
from support.gateway import DEADLINE_S, environment, until
from support.mcp_servers import COMMAND

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL, and job objects")
STUBBORN: Final = "import signal, subprocess, sys; subprocess.run(sys.argv[2:]); signal.pause()"
"""A program that runs the server of the other arguments, and goes on after that has ended; the first is a mark."""
GATEWAY: Final = """
import asyncio, os, signal, sys
from dragoman.mcp_client import connection
from dragoman.mcp_client.config import McpServerConfig
from dragoman.mcp_client.pool import McpServers
from dragoman.process_reaper.reaper import Reaper

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    servers = McpServers({{"books": McpServerConfig(command=tuple(sys.argv[1:]), timeout_s=60.0)}})
    assert len(await servers.by_name["books"].tools()) == 46
    {running}
    await servers.close()

{line}
asyncio.run(main())
"""
KILLED_AT: Final = {
    "the program is running": ("die()", ""),
    "the program has exited": ("", "Reaper.forget_group = die"),
}
"""The lines that make the gateway kill itself, by the moment."""


def command(mark: Path) -> tuple[str, ...]:
    return (sys.executable, "-c", STUBBORN, str(mark), *COMMAND)


@pytest.mark.parametrize(("running", "line"), KILLED_AT.values(), ids=KILLED_AT)
def test_killed_gateway_leaves_no_program(running: str, line: str, tmp_path: Path) -> None:
    code = GATEWAY.format(running=running, line=line)
    done = subprocess.run(
        [sys.executable, "-c", code, *command(tmp_path)], env=environment(tmp_path), timeout=DEADLINE_S
    )
    assert done.returncode == -signal.SIGKILL
    until(lambda: not left_over(tmp_path), "the end of the program")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows which signals a process ignores")
async def test_program_ignores_no_signals() -> None:
    command = ("/bin/sh", "-c", "grep SigIgn /proc/self/status >&2")
    servers = McpServers({"books": McpServerConfig(command=command)})
    server = servers.by_name["books"]
    with pytest.raises(Exception, match="could not be started"):
        await server.tools()
    await servers.close()
    ignored = int(server.last_output.removeprefix("SigIgn:\t"), 16)
    assert ignored & 0x7FFF_FFFF == 0  # of the signals that have names; a parent may ignore others


@pytest.mark.parametrize("program", ["no-such-program", "./no-such-program"])
async def test_missing_program_is_named(program: str, tmp_path: Path) -> None:
    servers = McpServers({"books": McpServerConfig(command=(program,), cwd=str(tmp_path))})
    with pytest.raises(Exception, match=f"could not be started: there is no program {program}"):
        await servers.by_name["books"].tools()
    await servers.close()


async def test_program_is_found_from_its_working_directory(tmp_path: Path) -> None:
    program = tmp_path / "start"
    program.write_text(f"#!{sys.executable}\nimport os, sys\nos.execv(sys.executable, {list(COMMAND)!r})\n")
    program.chmod(0o755)
    servers = McpServers({"books": McpServerConfig(command=("./start",), cwd=str(tmp_path), timeout_s=60.0)})
    assert len(await servers.by_name["books"].tools()) == 46
    await servers.close()


def left_over(mark: Path) -> list[int]:
    """Running processes with this mark in their command lines."""
    return [
        found.pid
        for found in psutil.process_iter(["cmdline", "status"])
        if str(mark) in (found.info["cmdline"] or ()) and found.info["status"] != psutil.STATUS_ZOMBIE
    ]
