"""Binds the address of the gateway, and finds the program that listens on a port already."""

import contextlib
import errno
import os
import socket
import sys
from typing import Any

import msgspec

from dragoman.config.server import ServerConfig
from dragoman.core.errors import ConfigError


def port_owner(port: int) -> str:
    """Returns the program that listens on this port, such as `python3 (process 4711)`, or "" if it cannot be found."""
    try:
        import psutil
    except ImportError:
        return ""
    try:
        for one in psutil.net_connections("tcp"):
            if _listens(one, port) and one.pid:
                owner = _oldest_owner(psutil.Process(one.pid), port)
                return f"{owner.name()} (process {owner.pid})"
    except psutil.Error:
        pass  # some systems do not show the programs of other users
    return ""


def _oldest_owner(process: Any, port: int) -> Any:
    """Returns the program that gave the socket to its workers, and would start one again that the user ends."""
    while (parent := process.parent()) and any(_listens(each, port) for each in parent.net_connections("tcp")):
        process = parent
    return process


def _listens(connection: Any, port: int) -> bool:
    return bool(connection.laddr) and connection.laddr.port == port and connection.status == "LISTEN"


def bind_for_workers(config: ServerConfig) -> list[socket.socket]:
    """Binds the address once for each worker, so that the system distributes the connections evenly.

    One socket for all is returned where the system does not distribute them: then any worker accepts them.

    Raises: ConfigError: the address cannot be listened on.
    """
    if not sys.platform.startswith("linux"):
        return [bind(config)]
    if config.port:
        bind(config).close()  # fails if another program listens, which sockets that share their port do not notice
    with contextlib.ExitStack() as bound:
        sockets = [bound.enter_context(bind(config, shares_port=True))]
        port = sockets[0].getsockname()[1]
        at_port = msgspec.structs.replace(config, port=port)
        sockets += (bound.enter_context(bind(at_port, shares_port=True)) for _ in range(config.workers - 1))
        bound.pop_all()
    return sockets


def bind(config: ServerConfig, *, shares_port: bool = False) -> socket.socket:
    """Binds the address before a model is loaded; connections are accepted later.

    Args:
        config: the address.
        shares_port: whether other sockets of this user may be bound to the same port.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    with contextlib.ExitStack() as opened:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[
                0
            ]
            listener = opened.enter_context(socket.socket(family, kind, protocol))  # asyncio: TCP_NODELAY if it is TCP
            if sys.platform != "win32":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if shares_port:
                    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind(address)
        except OSError as e:
            raise address_in_use(config.host, config.port, e) from None
        opened.pop_all()
    return listener


def address_in_use(host: str, port: int, error: OSError) -> ConfigError:
    """Returns the error about an address that cannot be listened on, with the program that has it."""
    why = (error.strerror or str(error)).lower()
    owner = port_owner(port) if error.errno == errno.EADDRINUSE else ""
    choice = 'ARGS="--port 0"' if "MAKELEVEL" in os.environ else "--port 0"
    return ConfigError(
        f"cannot listen on {host} port {port}: {why}{f' by {owner}' if owner else ''}; choose another with --host and "
        f"--port ({choice} takes a free port)"
    )


def url_of(listener: socket.socket) -> str:
    """Returns the URL of a bound socket."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
