"""Runs third-party programs isolated: without the user's settings and keys, and with loopback as the only network.

    python offline.py PORT SOCKET COMMAND…      in a separate network (`port_network`)

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
PACKAGE_FILE = Path(__file__).parent.parent / "tests" / "support" / "clients" / "package.json"
"""The versions of the npm packages."""


def environment(home: Path, **variables: str) -> Mapping[str, str]:
    """Returns the complete environment of such a program."""
    return {"PATH": os.defpath, "HOME": str(home), "LANG": "C.UTF-8", **variables}


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
    """Returns the version of an npm package that `make test-clients` installs."""
    versions: dict[str, str] = json.loads(PACKAGE_FILE.read_text())["dependencies"]
    return versions[package]


def node() -> Path:
    """Returns the node of the tests' environment, else the machine's; raises FileNotFoundError if both are missing."""
    if found := shutil.which("node", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])):
        return Path(found)
    raise FileNotFoundError("there is no node; install it: make test-clients")


def separate_network() -> list[str]:
    """Returns the prefix of a command that gives it a separate network; empty if the system forbids that."""
    command = ["unshare", "--net"] if hasattr(os, "geteuid") and os.geteuid() == 0 else ["unshare", "--net", "-r"]
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return []
    return command if subprocess.run([*command, "true"], capture_output=True).returncode == 0 else []


def port_network(port: int, socket_path: Path) -> list[str]:
    """Returns the prefix of a command whose network has this port only; empty if the system forbids that."""
    found = separate_network()
    return [*found, sys.executable, "-P", __file__, str(port), str(socket_path)] if found else []


def loopback_up() -> None:
    """Enables the loopback device, which is disabled in a new network."""
    import fcntl

    get_flags, set_flags, is_up = 0x8913, 0x8914, 1  # SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP of linux/sockios.h and if.h
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        query = struct.pack("16sh22x", b"lo", 0)
        _, flags = struct.unpack("16sh22x", fcntl.ioctl(any_socket, get_flags, query))
        if not flags & is_up:
            with contextlib.suppress(PermissionError):
                fcntl.ioctl(any_socket, set_flags, struct.pack("16sh22x", b"lo", flags | is_up))


async def _run_with_port(port: int, socket_path: str, command: list[str]) -> int:
    """Runs the command and forwards its connections to the port; returns its exit status."""

    async def link(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gateway_reader, gateway_writer = await asyncio.open_unix_connection(socket_path)
        await asyncio.gather(forward(reader, gateway_writer), forward(gateway_reader, writer))

    links = await asyncio.start_server(link, "127.0.0.1", port)
    try:
        return await (await asyncio.create_subprocess_exec(*command)).wait()
    finally:
        links.close()


async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forwards all bytes."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    loopback_up()
    sys.exit(asyncio.run(_run_with_port(int(sys.argv[1]), sys.argv[2], sys.argv[3:])))
