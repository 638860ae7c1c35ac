"""Deploys the application on a running cluster, and removes it."""

import logging
import os
import socket
from collections.abc import Callable, Sequence
from typing import Final

import ray
from ray import serve

from dragoman.backends.ray.config import PROXIES
from dragoman.config import Config
from dragoman.core.errors import ConfigError, RemoteError, quote
from dragoman.ray_serve.application import bind
from dragoman.ray_serve.plan import APPLICATION, DeploymentPlan, missing_nodes

_CONNECT_S: Final = 5.0
_START: Final = "start one with `ray start --head`, and add machines with `ray start --address=HEAD:6379`"


def deploy(config: Config, plans: Sequence[DeploymentPlan], address: str, report: Callable[[str], None]) -> str:
    """Deploys the application, or updates it replica by replica, and returns its URL once it is ready.

    Args:
        config: the settings.
        plans: its deployments.
        address: the cluster; see `connect`.
        report: receives what takes long.

    Raises:
        ConfigError: there is no cluster, or none of its nodes has what a deployment needs.
        RemoteError: a deployment did not start.
    """
    connect(address)
    if missing := missing_nodes(plans, [node["Resources"] for node in ray.nodes() if node["Alive"]]):
        raise ConfigError("; ".join(missing))
    server = config.server
    serve.start(PROXIES[config.ray.proxies], {"host": server.host, "port": server.port})
    report(f"deploying {', '.join(each.name for each in plans)}")
    try:
        serve.run(bind(plans), name=APPLICATION, route_prefix="/")
    except RuntimeError as error:
        raise RemoteError(f"the application did not start: {_reasons() or error}") from None
    return f"http://{server.host}:{server.port}"


def remove(address: str) -> None:
    """Removes the application from the cluster, after its running responses.

    Raises: ConfigError: there is no cluster, or the application does not run on it.
    """
    connect(address)
    if APPLICATION not in serve.status().applications:
        raise ConfigError(f"expected the application {APPLICATION} on the cluster, got none; nothing was removed")
    serve.delete(APPLICATION)


def connect(address: str) -> None:
    """Connects to a cluster.

    Args:
        address: `HOST:PORT` or `ray://HOST:PORT`; empty: `RAY_ADDRESS`, or the cluster of this machine.

    Raises: ConfigError: there is no cluster.
    """
    found = address or os.environ.get("RAY_ADDRESS", "") or "auto"
    _check_reachable(found)
    try:
        ray.init(address=found, namespace="serve", log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        what = "on this machine" if found == "auto" else f"at {quote(found)}"
        first = str(error).partition("\n")[0]
        raise ConfigError(f"expected a Ray cluster {what}, got none ({first}); {_START}") from None


def _check_reachable(address: str) -> None:
    """Checks that something listens: Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if address == "auto":
        return
    if not (colon and host and port.isdecimal()):
        raise ConfigError(f"expected an address like 10.0.0.1:6379, got {quote(address)} - at --address")
    try:
        socket.create_connection((host, int(port)), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        why = (getattr(error, "strerror", "") or str(error)).lower()
        raise ConfigError(f"expected a Ray cluster at {quote(address)}, got none ({why}); {_START}") from None


def _reasons() -> str:
    """Returns why deployments of the application are not running."""
    found = serve.status().applications.get(APPLICATION)
    states = found.deployments.items() if found else ()
    return "; ".join(f"{name}: {state.message}" for name, state in states if state.message)
