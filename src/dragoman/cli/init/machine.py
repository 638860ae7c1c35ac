"""Lists what this machine has: model servers, models, agents, the login of Claude Code, a free port.

No model is called, and nothing is started except `claude`, to ask whether it is logged in.
"""

import asyncio
import errno
import os
import shutil
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from msgspec.structs import replace

from dragoman import agents, extras
from dragoman import config as settings
from dragoman.backends.claude_cli.config import ClaudeCliConfig
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.local.files import LocalFiles, LocalModel
from dragoman.backends.http.config import HttpConfig
from dragoman.catalog import servers
from dragoman.cli._common import listed_models
from dragoman.cli.doctor import local
from dragoman.cli.doctor.gateway import port_finding
from dragoman.cli.run.preface import is_local
from dragoman.cli.run.select_model import NEARBY, find_running_gateway, with_local_servers
from dragoman.config.server import ServerConfig
from dragoman.core.errors import BackendUnavailableError, ConfigError, DragomanError

_PORTS_TRIED: Final = 20


class FoundServer(NamedTuple):
    """A model server that responds."""

    name: str
    """Its table in the settings, `[upstreams.NAME]`."""
    title: str
    """For the user."""
    config: HttpConfig
    models: tuple[str, ...] = ()
    requires_key: bool = False
    """It does not list its models without an API key."""


class Machine(NamedTuple):
    """What was found."""

    servers: tuple[FoundServer, ...] = ()
    files: tuple[LocalModel, ...] = ()
    """Models that write text."""
    agents: tuple[str, ...] = ()
    """Names of the installed agents."""
    has_claude_login: bool = False
    gateway_url: str = ""
    """A gateway that is running."""
    port: int = settings.Config().server.port
    """Where a gateway can listen."""
    memory_bytes: int | None = None
    """Memory for models; None: unknown."""
    missing_extras: tuple[str, ...] = ()


async def examine_machine(config: settings.Config, upstream: HttpConfig | None) -> Machine:
    """Returns what this machine has.

    Args:
        config: the settings without a file.
        upstream: a server that the user names; None: none.

    Raises:
        ConfigError: there is no API at the URL of `upstream`, or it does not accept the key.
        BackendUnavailableError: nothing answers there.
    """
    missing = extras.missing_extras("server", "embedded", "terminal")
    files, claude, near, gateway_url = await asyncio.gather(
        asyncio.to_thread(list_files),
        local.claude(ClaudeCliConfig()),
        _no_servers() if "server" in missing else _servers(config, upstream),
        _no_gateway() if "server" in missing else _gateway_url(config),
    )
    return Machine(
        servers=near,
        files=files,
        agents=tuple(name for name in agents.names() if any(map(shutil.which, agents.get(name).programs))),
        has_claude_login=any(finding.what == "claude's login" and finding.verdict == "ok" for finding in claude),
        gateway_url=gateway_url,
        port=config.server.port if gateway_url else _free_port(config.server),
        memory_bytes=_memory_bytes(),
        missing_extras=tuple(missing),
    )


def list_files() -> tuple[LocalModel, ...]:
    """Returns the models of Dragoman, Ollama, LM Studio and the Hugging Face cache that write text."""
    found = LocalFiles(EmbeddedConfig())
    found.refresh()
    return tuple(
        model
        for model in found.models.values()
        if not model.shape.pooling and model.id.isprintable() and str(model.path).isprintable()
    )


async def _no_servers() -> tuple[FoundServer, ...]:
    return ()


async def _no_gateway() -> str:
    return ""


async def _gateway_url(config: settings.Config) -> str:
    try:
        offers = await find_running_gateway(config)
    except DragomanError:  # such as a gateway that requires a key
        return ""
    return offers[0].url if offers else ""


async def _servers(config: settings.Config, upstream: HttpConfig | None) -> tuple[FoundServer, ...]:
    named = [await _identified(upstream, config.server.port)] if upstream else []
    discovered = (await with_local_servers(config)).upstreams
    urls = [server.config.url.rstrip("/") for server in named]
    others = await asyncio.gather(
        *(_examined(name, server) for name, server in discovered.items() if server.url not in urls)
    )
    return _with_unique_names([*named, *others])


def _with_unique_names(found: Sequence[FoundServer]) -> tuple[FoundServer, ...]:
    names: list[str] = []
    for server in found:
        names.append(server.name if server.name not in names else f"{server.name}{len(names) + 1}")
    return tuple(server._replace(name=name) for server, name in zip(found, names, strict=True))


async def _identified(upstream: HttpConfig, port: int) -> FoundServer:
    """Returns the server that the user names; `port` is the gateway's own."""
    from dragoman.backends.probe.connect import open_connection
    from dragoman.backends.probe.server_info import ServerInfo

    models = await listed_models(upstream)
    if models is None:
        raise BackendUnavailableError(f"nothing answers at {upstream.url}; start the server, or correct --upstream")
    async with open_connection(upstream, os.environ) as connection:
        provider = await ServerInfo(connection, upstream.url).find_provider()
    if provider == servers.get("dragoman") and urlsplit(upstream.url).port == port and is_local(upstream):
        raise ConfigError(f"{upstream.url} is this gateway itself; name the server that it should ask: --upstream URL")
    name = provider.name if provider else "upstream"
    config = replace(upstream, provider=provider.name if provider else "")
    return FoundServer(name, provider.title if provider else upstream.url, config, _printable(models))


async def _examined(name: str, server: HttpConfig) -> FoundServer:
    """Returns a server that was discovered, and whether it requires a key."""
    title = servers.get(server.provider).title if server.provider else "a server of an unknown provider"
    own = FoundServer(name if name != NEARBY else "local", title, replace(server, models=()), _printable(server.models))
    if own.models:
        return own
    try:
        await listed_models(own.config)
    except ConfigError:
        return own._replace(requires_key=True)
    return own


def _printable(models: Sequence[str]) -> tuple[str, ...]:
    """Returns the names that can be typed."""
    return tuple(name for name in models if name.isprintable())


def _free_port(server: ServerConfig) -> int:
    """Returns the configured port, or the next one if another program uses it."""
    for port in range(server.port, min(server.port + _PORTS_TRIED, 65535) + 1):
        error = port_finding(server.host, port)
        if error is None or error.errno != errno.EADDRINUSE:
            return port
    return server.port


def _memory_bytes() -> int | None:
    from dragoman.backends.embedded.local.memory import budget_bytes

    try:
        return budget_bytes(0, ())
    except ImportError:  # psutil
        return None
