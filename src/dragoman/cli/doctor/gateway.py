"""Checks the gateway's address: the program that listens there, and the metrics of a gateway with these settings."""

import errno
import os
import socket
import sys
from contextlib import closing

from dragoman.cli._common import missing_extras_message
from dragoman.cli.doctor.finding import Finding
from dragoman.config.server import ServerConfig
from dragoman.core.errors import BackendUnavailableError, ConfigError
from dragoman.host_names import LOOPBACK
from dragoman.server.ports import port_owner

_PORTS_TRIED = 20
"""Number of ports above the one in use among which a free one is sought."""


async def gateway(config: ServerConfig, command: str = "dragoman serve", named_keys: int = 0) -> list[Finding]:
    """Returns whether a gateway is running, with its metrics, or whether one could be started.

    Args:
        config: address and keys.
        command: the command that starts a gateway with these settings.
        named_keys: the number of tables `[keys.NAME]` in the settings.
    """
    access = _access_text(config, named_keys)
    if missing_extras_message("server"):
        return [_address_finding(config, command, access)]
    from dragoman.cli.doctor.gateway_client import ForeignError, gateway_url
    from dragoman.cli.doctor.metrics_client import fetch_metrics

    try:
        metrics = await fetch_metrics(config)
    except (BackendUnavailableError, ForeignError):
        return [_address_finding(config, command, access)]
    except ConfigError as error:
        return [Finding("gateway", "note", error.message)]
    counts = f"{_number(metrics.requests, 'request')}, {metrics.failures} failed, {metrics.in_flight} being answered"
    text = f"{metrics.version} at {gateway_url(config)}, up for {format_duration(metrics.up_s)}: {counts}; "
    text += access
    if metrics.not_ready:
        text += f"; not ready: {', '.join(metrics.not_ready)}"
    many = _number(sum(model.calls for model in metrics.models), "tool call") if metrics.models else "no tool calls"
    return [
        Finding("gateway", "note" if metrics.not_ready else "ok", text),
        Finding("calls", "ok", f"{many} since then", models=metrics.models),
    ]


def _address_finding(config: ServerConfig, command: str, access: str) -> Finding:
    """Returns whether the address is free; nothing is sent to a program that listens there."""
    host, port = config.host, config.port
    if port == 0:
        return Finding("gateway", "ok", f"not checked, because it uses any free port of {host}; {access}")
    error = port_finding(host, port)
    if error is None:
        text = f"not running; {host} port {port} is free; {access}"
        return Finding("gateway", "ok", text, command)
    if error.errno != errno.EADDRINUSE:
        why = (error.strerror or str(error)).lower()
        fix = f"{command} --port 8484" if error.errno == errno.EACCES else "correct server.host in the settings"
        return Finding("gateway", "no", f"cannot listen on {host} port {port}: {why}", fix)
    owner = port_owner(port)
    text = f"{host} port {port} is taken by {owner or 'another program'}, which is not a gateway"
    free_port = next(
        (p for p in range(port + 1, port + 1 + _PORTS_TRIED) if p < 65536 and port_finding(host, p) is None), 0
    )
    return Finding("gateway", "no", text, f"end that, or: {command} --port {free_port}")


def port_finding(host: str, port: int) -> OSError | None:
    """Returns why the address cannot be listened on, or None if it can; it is bound for a moment to find out."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with closing(socket.socket(family, kind, protocol)) as tried:
            if sys.platform != "win32":
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
    except OSError as error:
        return error
    return None


def _access_text(config: ServerConfig, named_keys: int) -> str:
    """Returns who may use the gateway, as a phrase."""
    count = len(config.api_keys) + named_keys
    if os.path.exists(config.keys_path):
        more = f", and {_number(count, 'other key')}" if count else ""
        return f"accepts the keys in {config.keys_path}{more}"
    if count:
        return f"accepts {_number(count, 'key')}"
    return "loopback only, no key needed" if config.host in LOOPBACK else "no key needed"


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def format_duration(seconds: float) -> str:
    """Returns `5 s`, `3 min`, `2 h`, `4 days`."""
    for unit, size_s in (("days", 2 * 86_400), ("h", 2 * 3600), ("min", 2 * 60)):
        if seconds >= size_s:
            return f"{seconds * 2 / size_s:.0f} {unit}"
    return f"{seconds:.0f} s"
