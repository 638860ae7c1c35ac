"""Runs chromium in a network of its own, from which it reaches loopback only, through a SOCKS proxy.

    python isolated.py COMMAND…

The proxy connects to 127.0.0.1, also for names that end in `.test`, and refuses all other hosts. Where the system does
not allow a network namespace, only the proxy keeps the browser from other hosts.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from bench.offline import forward, loopback_up

NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000  # CLONE_NEWUSER, CLONE_NEWNET of linux/sched.h
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of linux/prctl.h
BY_IPV4, BY_NAME = 1, 3
LIBC = ctypes.CDLL(None, use_errno=True)
SUCCEEDED, NOT_ALLOWED, REFUSED = 0, 2, 5


def is_allowed(host: str) -> bool:
    """Whether the browser may connect to the host."""
    return host in ("127.0.0.1", "localhost") or host.endswith(".test")


async def serve(listener: socket.socket) -> None:
    """Serves the proxy until the browser has ended."""

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            host, port = await _target(reader, writer)
            if not is_allowed(host):
                return await _respond(writer, NOT_ALLOWED)
            try:
                there, back = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                return await _respond(writer, REFUSED)
            await _respond(writer, SUCCEEDED, closes=False)
            await asyncio.gather(forward(reader, back), forward(there, writer))

    async with await asyncio.start_server(connect, sock=listener) as server:
        await server.serve_forever()


async def _target(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[str, int]:
    _, methods = await reader.readexactly(2)
    await reader.readexactly(methods)
    writer.write(bytes((5, 0)))
    _, _, _, kind = await reader.readexactly(4)
    if kind == BY_NAME:
        host = (await reader.readexactly((await reader.readexactly(1))[0])).decode("ascii", "replace")
    else:
        family, size = (socket.AF_INET, 4) if kind == BY_IPV4 else (socket.AF_INET6, 16)
        host = socket.inet_ntop(family, await reader.readexactly(size))
    return host, int.from_bytes(await reader.readexactly(2))


async def _respond(writer: asyncio.StreamWriter, status: int, closes: bool = True) -> None:
    writer.write(bytes((5, status, 0, BY_IPV4, 0, 0, 0, 0, 0, 0)))
    await writer.drain()
    if closes:
        writer.close()


def main() -> None:
    """Forks the proxy, which stays in the outer network, and becomes the browser."""
    here, there = socket.socketpair()
    if os.fork() == 0:
        here.close()
        LIBC.prctl(DIE_WITH_PARENT, signal.SIGKILL)
        _, (descriptor, *_), *_ = socket.recv_fds(there, 1, 1)
        os.closerange(3, descriptor)  # the pipes of the browser
        os.closerange(descriptor + 1, 256)
        asyncio.run(serve(socket.socket(fileno=descriptor)))
    there.close()
    flags = NEW_NETWORK if os.geteuid() == 0 else NEW_NETWORK | NEW_USER
    if LIBC.unshare(flags) == 0:
        loopback_up()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        socket.send_fds(here, [b"x"], [listener.fileno()])
        port = listener.getsockname()[1]
    here.close()
    proxy = (f"--proxy-server=socks5://127.0.0.1:{port}", "--proxy-bypass-list=<-loopback>")
    os.execv(sys.argv[1], [*sys.argv[1:], *proxy])


if __name__ == "__main__":
    main()
