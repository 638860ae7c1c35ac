"""Checks the upstream servers: whether each responds, and its tool modes; finds unconfigured local servers."""

import asyncio
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from dragoman.backends.http.config import HttpConfig
from dragoman.cli._common import missing_extras_message
from dragoman.cli.doctor.finding import Finding, check
from dragoman.cli.doctor.local import hide_credentials
from dragoman.config.server import ServerConfig
from dragoman.core.errors import BackendUnavailableError, ConfigError, DragomanError
from dragoman.host_names import LOOPBACK

if TYPE_CHECKING:
    from dragoman.backends.http.model_modes import ModelModes
    from dragoman.backends.probe.server_info import ServerInfo
    from dragoman.catalog.servers import Provider

_PROVIDER_TIMEOUT_S: Final = 2.0
"""Time to identify a server, by a dozen short requests."""
_MAX_SHOWN: Final = 4
"""Maximum number of models of a server that are listed in full, or by name."""


async def server_finding(name: str, config: HttpConfig) -> Finding:
    """Returns whether the server responds and accepts the key, and what is known of its models; no model is called."""
    what = f"server {name}"
    try:
        from dragoman.backends.http.model_modes import ModelModes
        from dragoman.backends.probe.connect import list_models, open_connection
        from dragoman.backends.probe.server_info import ServerInfo
    except ImportError:
        return check(what, "no", missing_extras_message("server"))
    try:
        modes = ModelModes(name, config)
        async with open_connection(config, os.environ) as connection:
            server_info = ServerInfo(connection, config.url)
            listed = await list_models(connection, server_info, config, os.environ)
            provider = await _find_provider(server_info)
    except DragomanError as error:
        return check(what, "no", error.message, _fix(name, config, error, os.environ))
    models, url = config.models or listed, hide_credentials(config.url)
    if not models:
        return Finding(what, "no", f"{url} lists no model", f"load one there, or name them: upstreams.{name}.models")
    many = f"{len(models)} models" if len(models) > 1 else models[0]
    known, unknown = _model_modes(models, config, modes, provider)
    text = f"{url} is {provider.title if provider else 'of an unknown provider'}, with {many}"
    lines, fix = _lines(known, unknown, measures=bool(known)), ""
    if unknown:
        fix = _probing(config, "" if len(models) == 1 else unknown[0])
    return Finding(what, "ok", text, fix, lines)


async def _find_provider(server_info: "ServerInfo") -> "Provider | None":
    try:
        async with asyncio.timeout(_PROVIDER_TIMEOUT_S):
            return await server_info.find_provider()
    except TimeoutError:
        return None


def _fix(name: str, config: HttpConfig, error: DragomanError, environ: Mapping[str, str]) -> str:
    if isinstance(error, BackendUnavailableError):
        return f"start it there, or take [upstreams.{name}] out of the settings"
    if config.api_key_env and not environ.get(config.api_key_env):
        return f"export {config.api_key_env}=…"
    return f"correct [upstreams.{name}] in the settings" if isinstance(error, ConfigError) else ""


def _model_modes(
    models: Iterable[str], config: HttpConfig, modes: "ModelModes", provider: "Provider | None"
) -> tuple[list[tuple[str, str]], list[str]]:
    """Returns the tool mode of each model that has one, and the models that have not been probed yet."""
    from dragoman.backends.http.auto_mode import mode_from
    from dragoman.backends.probe.cache import load

    known, unknown = [], []
    for model in models:
        probe = load(config, model)
        if probe is not None:
            modes.set_measured(model, mode_from(probe.choice))
        mode = modes.get(model)
        if probe is None and modes.is_auto(model) and not (provider and provider.native == "trusted"):
            unknown.append(model)
            continue
        written = mode.call_format or (mode.format_of(model).name if mode.tool_mode != "native" else "")
        constraint = f"constrained by {mode.constrain[0]}" if mode.constrain else ""
        trusted = probe is None and modes.is_auto(model)
        why = "as its provider can be trusted to" if trusted else mode.why
        known.append((model, f"{', '.join(filter(None, (mode.tool_mode, written, constraint)))}: {why}"))
    return known, unknown


def _lines(known: list[tuple[str, str]], unknown: list[str], *, measures: bool) -> tuple[str, ...]:
    first = known[:_MAX_SHOWN]
    width = max((len(model) for model, _ in first), default=0)
    lines = [f"{model.ljust(width)}  {text}" for model, text in first]
    if len(known) > len(first):
        lines.append(f"and {len(known) - len(first)} more that are known")
    if unknown:
        names = ", ".join(unknown[:_MAX_SHOWN])
        more = f" and {len(unknown) - _MAX_SHOWN} more" if len(unknown) > _MAX_SHOWN else ""
        lines.append(f"not measured yet: {names}{more}" if measures or len(unknown) > 1 else "not measured yet")
    return tuple(lines)


def _probing(config: HttpConfig, model: str) -> str:
    named = f" --model {model}" if model else ""
    key = f" --api-key-env {config.api_key_env}" if config.api_key_env else ""
    return f"dragoman probe {hide_credentials(config.url)}{named}{key}"


async def unconfigured_servers(servers: Iterable[HttpConfig], gateway: ServerConfig) -> list[Finding]:
    """Returns the servers that run on this machine and are not in the settings, with the command that uses each."""
    try:
        from dragoman.backends.probe.discover import default_ports, discover_servers
    except ImportError:
        return []
    named = {_port(config.url) for config in servers} | {gateway.port}
    discovered = await discover_servers(os.environ, [port for port in default_ports() if port not in named])
    return [
        Finding(
            "nearby",
            "note",
            f"{each.provider.title if each.provider else 'a server'} at {each.url}, {_many(each.models)}; "
            "not in the settings",
            f"dragoman serve --upstream {each.url}",
        )
        for each in discovered
    ]


def _port(url: str) -> int | None:
    """Returns the port of a URL on this machine, else None."""
    at = urlsplit(url)
    return at.port if at.hostname in LOOPBACK else None


def _many(models: tuple[str, ...]) -> str:
    if len(models) <= 1:
        return f"with {models[0]}" if models else "no model loaded"
    return f"with {len(models)} models"
