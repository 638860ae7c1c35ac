"""What a running gateway has loaded, and the commands `models ps` and `models stop`."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from dragoman import compose
from dragoman import config as settings
from dragoman.cli._common import gateway_key, missing_extras_message, require_extras
from dragoman.cli._terminal import printable
from dragoman.cli.models.table import format_table
from dragoman.core.errors import BackendUnavailableError, ConfigError, DragomanError, UpstreamError

if TYPE_CHECKING:
    pass

_UNLOAD_TIMEOUT_S: Final = 60.0


class GatewayAddress(NamedTuple):
    """Where the gateway is."""

    url: str
    api_key: str
    """"": none."""


def gateway_address(args: argparse.Namespace, config: settings.Config) -> GatewayAddress:
    """Returns the gateway of `--gateway`, else that of the settings.

    Raises: ConfigError: the settings use any free port.
    """
    from dragoman.cli.doctor.gateway_client import gateway_url

    url = (args.gateway or "").rstrip("/").removesuffix("/v1")
    if not url and not config.server.port:
        raise ConfigError("the settings let the gateway use any free port (server.port = 0); name it: --gateway URL")
    return GatewayAddress(url or gateway_url(config.server), gateway_key(config.server))


def load_settings(args: argparse.Namespace) -> settings.Config:
    """Returns the settings.

    Raises: ConfigError: they are wrong.
    """
    return settings.load(compose.settings_path(args.config), os.environ, {})[0]


async def fetch_states(address: GatewayAddress) -> dict[str, Mapping[str, Any]]:
    """Returns the state of each model that the gateway has loaded or is loading, by name.

    Raises:
        BackendUnavailableError: no gateway responds.
        ConfigError: another program responds, or the gateway needs a key.
    """
    from dragoman.cli.doctor.gateway_client import open_gateway

    async with open_gateway(*address) as gateway:
        _, body = await gateway.request("GET", "/health")
    backends = _decode(body).get("backends")
    if not isinstance(backends, list):
        raise ConfigError(f"the gateway at {address.url} reports its models for admin keys only: set DRAGOMAN_API_KEY")
    states: dict[str, Mapping[str, Any]] = {}
    for backend in backends:
        if isinstance(models := backend.get("models"), dict):
            states |= models
    return states


def find_states(args: argparse.Namespace, config: settings.Config) -> dict[str, Mapping[str, Any]] | None:
    """Returns the same for a command that does not need a gateway; None: none runs, or it cannot be asked."""
    if missing_extras_message("server"):
        return None
    try:
        return asyncio.run(fetch_states(gateway_address(args, config)))
    except DragomanError:
        if args.gateway:
            raise
        return None


def ps(args: argparse.Namespace) -> int:
    """Prints what the gateway has loaded.

    Raises: DragomanError: no gateway responds, or it needs a key.
    """
    require_extras("server", doing="asking a gateway")
    address = gateway_address(args, load_settings(args))
    try:
        states = asyncio.run(fetch_states(address))
    except BackendUnavailableError as error:
        raise BackendUnavailableError(f"{error.message}; start one: dragoman serve") from error
    if args.json:
        print(json.dumps([{"name": name, **state} for name, state in states.items()], indent=2))
    elif states:
        print(printable(format_states(states)))
    else:
        print(
            f"the gateway at {address.url} has not loaded a model; a request loads the one that it names",
            file=sys.stderr,
        )
    return 0


def format_states(states: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the table of `models ps`."""
    has_prefixes = any(_prefixes(state) != "-" for state in states.values())
    head = [
        "NAME",
        "STATE",
        "MEMORY",
        "ACTIVE",
        "WAITING",
        "EXPIRES",
        "RESTARTS",
        *(["PREFIXES"] if has_prefixes else []),
    ]
    rows = [
        [
            name,
            str(state.get("state", "")),
            f"{state.get('memory_mb', 0)} MB",
            str(state.get("active", 0)),
            str(state.get("waiting", 0)),
            _expires(state),
            str(state.get("restarts", 0)),
            *([_prefixes(state)] if has_prefixes else []),
        ]
        for name, state in states.items()
    ]
    return format_table(head, rows)


def _expires(state: Mapping[str, Any]) -> str:
    seconds = state.get("expires_s")
    if seconds is None:
        return "never" if state.get("state") == "ready" and not state.get("active") else "-"
    return f"{seconds} s" if seconds < 120 else f"{round(seconds / 60)} min"


def _prefixes(state: Mapping[str, Any]) -> str:
    """Returns the number and size of the saved prompt prefixes."""
    prefixes = state.get("prefixes") or {}
    return f"{prefixes['files']} ({prefixes['mb']} MB)" if prefixes.get("files") else "-"


def stop(args: argparse.Namespace) -> int:
    """Unloads a model from the gateway's memory.

    Raises: DragomanError: it is not loaded or pinned, or no gateway responds.
    """
    require_extras("server", doing="asking a gateway")
    address = gateway_address(args, load_settings(args))
    asyncio.run(unload(address, args.name))
    still = asyncio.run(fetch_states(address)).get(args.name)
    if args.json:
        print(json.dumps({"name": args.name, "unloaded": still is None}))
    elif still is None:
        print(printable(f"unloaded {args.name}"))
    else:
        print(printable(f"{args.name} is unloaded after its {still.get('active', 0)} running requests"))
    return 0


async def unload(address: GatewayAddress, name: str) -> None:
    """Unloads a model: at once, or after its running requests.

    Raises:
        ConfigError: it is unknown, not loaded, or pinned.
        RemoteError: the gateway does not respond, or failed.
    """
    from dragoman.cli.doctor.gateway_client import open_gateway

    async with open_gateway(*address) as gateway:
        status, body = await gateway.request("POST", "/models/unload", {"model": name}, timeout_s=_UNLOAD_TIMEOUT_S)
    if status == 200:
        return
    error = _decode(body).get("error")
    message = str(error.get("message", "")) if isinstance(error, dict) else ""
    text = message or f"the gateway at {address.url} answered with status {status}"
    raise ConfigError(text) if 400 <= status < 500 else UpstreamError(text)


def _decode(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
