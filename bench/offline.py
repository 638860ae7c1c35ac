"""Runs third-party programs isolated: without the user's settings and keys, and with loopback as the only network.

    python offline.py PORT SOCKET COMMAND…      in a separate network (`apart`)

Connections of the command to the port are forwarded to the gateway outside, which also listens at the socket.
"""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

CLIENTS = Path(__file__).parent.parent / ".cache" / "npm" / "node_modules"
"""Folder in which `make test-clients` installs npm packages."""
AGENTS = Path(__file__).parent.parent / ".cache" / "agents" / "bin"
"""Folder in which `make agents` installs Python programs."""
PINNED = Path(__file__).parent.parent / "tests" / "support" / "clients" / "package.json"
"""Which they are."""


def environment(home: Path, **more: str) -> Mapping[str, str]:
    """Returns the complete environment of such a program."""
    return {"PATH": os.defpath, "HOME": str(home), "LANG": "C.UTF-8", **more}


def claude_code() -> Path:
    """Returns the command; raises FileNotFoundError if it is not installed."""
    for path in CLIENTS.glob("@anthropic-ai/claude-code-*/claude"):
        return path
    raise FileNotFoundError(f"Claude Code is not in {CLIENTS}; install it: make test-clients")


def old_claude_code() -> Path:
    """Returns the oldest supported one; it needs `node` on PATH. Raises FileNotFoundError if it is not installed."""
    path = CLIENTS / "claude-code-old" / "cli.js"
    if path.exists():
        return path
    raise FileNotFoundError(f"an old Claude Code is not in {CLIENTS}; install it: make test-clients")


def codex() -> Path:
    """Returns the command; raises FileNotFoundError if it is not installed."""
    for path in CLIENTS.glob("@openai/codex-*/vendor/*/bin/codex"):
        return path
    raise FileNotFoundError(f"Codex is not in {CLIENTS}; install it: make test-clients")


def opencode() -> Path:
    """Returns the command; raises FileNotFoundError if it is not installed."""
    for path in sorted(CLIENTS.glob("opencode-*-*/bin/opencode")):
        return path
    raise FileNotFoundError(f"OpenCode is not in {CLIENTS}; install it: make test-clients")


def openclaw() -> Path:
    """Returns the command, which needs `node` on PATH; raises FileNotFoundError if it is not installed."""
    path = CLIENTS / ".bin" / "openclaw"
    if path.exists():
        return path
    raise FileNotFoundError(f"OpenClaw is not in {CLIENTS}; install it: make test-clients")


def agent(name: str) -> Path:
    """Returns the command of this name, such as `python`; raises FileNotFoundError if it is not installed."""
    if (path := AGENTS / name).exists():
        return path
    raise FileNotFoundError(f"there is no {name} in {AGENTS}; install it: make agents")


def version(package: str) -> str:
    """Returns the command of an npm package that `make test-clients` installs."""
    pinned: str = json.loads(PINNED.read_text())["dependencies"][package]
    return pinned


def node() -> Path:
    """Returns the node of the tests' environment, else the machine's; raises FileNotFoundError if both are missing."""
    if found := shutil.which("node", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])):
        return Path(found)
    raise FileNotFoundError("there is no node; install it: make test-clients")


def unshared() -> list[str]:
    """Returns the prefix of a command that gives it a separate network; empty if the system forbids that."""
    command = ["unshare", "--net"] if hasattr(os, "geteuid") and os.geteuid() == 0 else ["unshare", "--net", "-r"]
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return []
    return command if subprocess.run([*command, "true"], capture_output=True).returncode == 0 else []


def apart(port: int, socket_path: Path) -> list[str]:
    """Returns the prefix of a command whose network has this port only; empty if the system forbids that."""
    found = unshared()
    return [*found, sys.executable, "-P", __file__, str(port), str(socket_path)] if found else []


def loopback_up() -> None:
    """Enables the loopback device, which is disabled in a new network."""
    import fcntl

    get_flags, set_flags, is_up = 0x8913, 0x8914, 1  # SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP of linux/sockios.h and if.h
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("16sh22x", b"lo", 0)
        _, flags = struct.unpack("16sh22x", fcntl.ioctl(any_socket, get_flags, asked))
        if not flags & is_up:
            with contextlib.suppress(PermissionError):
                fcntl.ioctl(any_socket, set_flags, struct.pack("16sh22x", b"lo", flags | is_up))


async def _beside(port: int, socket_path: str, command: list[str]) -> int:
    """Runs the command and forwards its connections to the port; returns its exit status."""

    async def link(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_unix_connection(socket_path)
        await asyncio.gather(carry(reader, there_writer), carry(there_reader, writer))

    links = await asyncio.start_server(link, "127.0.0.1", port)
    try:
        return await (await asyncio.create_subprocess_exec(*command)).wait()
    finally:
        links.close()


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forwards all bytes."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    loopback_up()
    sys.exit(asyncio.run(_beside(int(sys.argv[1]), sys.argv[2], sys.argv[3:])))
