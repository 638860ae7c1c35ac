"""The composition root: builds the backends and the gateway that the settings name.

Nothing here prints. What the user should know meanwhile goes to callbacks: `report` receives one line of text for
whatever takes long or is missing; `get_weights` and `waiting` are where a command line shows progress.
"""

import contextlib
import functools
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from dragoman import config as settings
from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.shared_state import SharedState
from dragoman.closing import close_all
from dragoman.compose.costs import price_book
from dragoman.compose.embedded_weights import get_weights
from dragoman.compose.examples import remember_examples
from dragoman.compose.plugin_parts import gateway_type, plugin_backends
from dragoman.compose.prefixes import share_prefixes
from dragoman.compose.progress import Report, no_report
from dragoman.compose.replies import share_replies, shared_replies
from dragoman.compose.responses import response_store
from dragoman.compose.state import state_store
from dragoman.config.own_formats import with_formats
from dragoman.core.backend import Backend
from dragoman.gateway.compaction import Seal
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.routing.route import Routes
from dragoman.gateway.storage.shared_key import SharedKey
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.mcp_client.endpoint import McpEndpoint
from dragoman.mcp_client.pool import McpServers
from dragoman.prices.price_book import PriceBook
from dragoman.state.config import StateConfig
from dragoman.tool_executors.registry import build_executors

if TYPE_CHECKING:
    from dragoman.backends.text_mode.verbatim_history import ReplyStore

GetWeights: TypeAlias = Callable[[EmbeddedConfig], Path]
"""Returns the weights of the configured model, downloaded if necessary."""

MODELS_SOCKET: Final = "models.sock"
"""Name of the socket of the process that runs the models, in the folder that several gateway processes share."""
NO_BACKENDS: Final[Mapping[str, Backend]] = MappingProxyType({})
_CLAUDE: Final = "claude_cli"
_EMBEDDED: Final = "embedded"


def settings_path(named: Path | None) -> Path | None:
    """Returns the path of the settings file.

    Args:
        named: the path from the command line, or None.

    Returns:
        `named`, else the path in `DRAGOMAN_CONFIG`, else the default path if that file exists, else None.
    """
    chosen = named or os.environ.get("DRAGOMAN_CONFIG")
    usual = settings.default_path()
    return Path(chosen) if chosen else usual if usual.is_file() else None


def build_gateway(
    config: settings.Config,
    embedded: bool,
    report: Report = no_report,
    get_weights: GetWeights = get_weights,
    shared_dir: Path | None = None,
    remote: Sequence[Backend] | None = None,
) -> Gateway:
    """Returns the gateway that these settings describe. Call it in the process that serves: it opens files.

    Args:
        config: the settings.
        embedded: whether it also serves the embedded model.
        report: receives what takes long, or is missing.
        get_weights: returns the weights of the embedded model.
        shared_dir: the private folder of several gateway processes, whose models run in another process, which listens
            at `MODELS_SOCKET` in it; None: this is the only gateway process.
        remote: the backends of other machines, in place of those that run programs on this one; None: there are none.

    Raises:
        ConfigError: an API does not exist, the variable with a key is not set, or weights are missing.
    """
    seal = _seal(config, shared_dir)
    servers = upstream_backends(config, probe=True, shared=shared_state(shared_dir, config.state))
    if remote is not None:
        backends = [*servers, *plugin_backends(config), *remote]
    elif shared_dir is None:
        local = local_backends(config, embedded, report, get_weights)
        backends = [*servers, *plugin_backends(config), *local.values()]
    else:
        backends = [*servers, *plugin_backends(config), *_shared(config, embedded, shared_dir / MODELS_SOCKET)]
    store = response_store(config, shared_dir)
    prices = price_book(config)
    new_gateway = gateway_type(config.hooks)
    tools = vendor_tools(config, prices)
    gateway = new_gateway(backends, config.model_aliases, store, config.guard, seal, tools, prices, routes(config))
    remember_examples(gateway, config, shared_dir)
    share_prefixes(gateway, config, shared_dir)
    share_replies(gateway.backends, config, shared_dir)
    return gateway


def routes(config: settings.Config) -> Routes | None:
    """Returns the rules that select models; None: there are none.

    Raises:
        ConfigError: A rule is not valid.
    """
    return Routes(config.routes) if config.routes else None


@functools.cache
def shared_state(shared_dir: Path | None, state: StateConfig) -> SharedState | None:
    """Returns what the processes of a gateway, or of all replicas, share; None: there is one process.

    A process has one such object for the same arguments.
    """
    if state.url or state.database_url:
        return SharedState(shared_dir, state_store(state, shared_dir))
    return SharedState(shared_dir) if shared_dir is not None else None


def vendor_tools(config: settings.Config, prices: PriceBook | None = None) -> VendorToolRunner:
    """Returns what runs the tools that the settings name, with the prices of models for the limit of the cost.

    Raises:
        ConfigError: A setting is missing or wrong.
    """
    tools = config.tools
    servers = McpServers(config.mcp)
    endpoint = McpEndpoint(servers) if servers.served() else None

    async def close() -> None:
        await close_all(*([endpoint.close] if endpoint else []), servers.close)

    return VendorToolRunner(
        build_executors(tools, servers),
        tools.max_rounds,
        tools.timeout_s,
        tools.max_result_chars,
        tools.max_concurrent_calls,
        tools.max_tokens,
        tools.max_cost_usd,
        tools.search_above,
        tuple(servers.secret_values()),
        close,
        endpoint,
        prices,
    )


def build_backends(
    config: settings.Config,
    *,
    embedded: bool,
    report: Report = no_report,
    get_weights: GetWeights = get_weights,
    probe: bool = True,
) -> list[Backend]:
    """Returns a backend for each server of the settings, then those of packages, Claude, and the embedded model.

    This is also the order in which they are tried. Missing weights are downloaded.

    Args:
        config: the settings.
        embedded: whether the embedded model is one of them.
        report: receives what takes long, also later, while backends start.
        get_weights: returns the weights of the embedded model.
        probe: whether models of servers are probed, after their first response.

    Raises:
        ConfigError: the settings are wrong.
        RemoteError: the download of the weights failed.
    """
    servers = upstream_backends(config, probe=probe)
    return [*servers, *plugin_backends(config), *local_backends(config, embedded, report, get_weights).values()]


def local_backends(
    config: settings.Config, embedded: bool, report: Report, get_weights: GetWeights
) -> dict[str, Backend]:
    """Returns the backends that run programs on this machine, by name, in the order in which they are tried.

    Args:
        config: the settings.
        embedded: whether the embedded model is one of them.
        report: receives what takes long, also later, while backends start.
        get_weights: returns the weights of the embedded model.

    Raises:
        ConfigError: the settings are wrong.
        RemoteError: the download of the weights failed.
    """
    backends: dict[str, Backend] = {}
    if config.claude_cli.enabled:
        from dragoman.backends.claude_cli.backend import ClaudeCliBackend

        backends[_CLAUDE] = ClaudeCliBackend(config.claude_cli, os.environ)
    if embedded:
        from dragoman.backends.embedded.backend import EmbeddedBackend

        local = EmbeddedBackend.from_config(config.embedded, get_weights(config.embedded), report)
        if (replies := shared_replies(config.state, None)) is not None:
            local.share_replies(replies)
        backends[_EMBEDDED] = local
    return backends


def _shared(config: settings.Config, embedded: bool, path: Path) -> list[Backend]:
    """Returns the backends of `local_backends` in another process, which listens at this path."""
    from dragoman.backends.claude_cli import models as claude_models
    from dragoman.backends.shared.client import SharedBackend
    from dragoman.backends.shared.models_process import ModelsProcess

    process = ModelsProcess(path)
    claude = [SharedBackend(process, _CLAUDE, claude_models.resolve_model)] if config.claude_cli.enabled else []
    return [*claude, *([SharedBackend(process, _EMBEDDED)] if embedded else [])]


def upstream_backends(
    config: settings.Config,
    *,
    probe: bool,
    shared: SharedState | None = None,
    reuse: Mapping[str, Backend] = NO_BACKENDS,
    replies: "ReplyStore | None" = None,
) -> list[Backend]:
    """Returns a backend for each upstream server, in the order of the settings file.

    Args:
        config: the settings.
        probe: whether models of servers are probed, after their first response.
        shared: what all processes of the gateway share; None: there is one process.
        reuse: backends that are not built again, by the names of their servers.
        replies: where recent replies are stored; None: a new store.

    Raises: ConfigError: an API does not exist, or the variable with a key is not set.
    """
    if not config.upstreams:
        return []
    from dragoman.backends.http.backend import HttpBackend
    from dragoman.backends.text_mode.verbatim_history import ReplyStore

    store = ReplyStore() if replies is None else replies

    def build(name: str, server: HttpConfig) -> Backend:
        full = with_formats(server, config.formats)
        return HttpBackend(name, full, os.environ, may_probe=probe, may_recall=True, shared=shared, replies=store)

    return [reuse.get(name) or build(name, server) for name, server in config.upstreams.items()]


def has_upstreams(config: settings.Config) -> bool:
    """Whether the settings name a server or another backend, or enable Claude."""
    return bool(config.upstreams or config.backends) or config.claude_cli.enabled


def serves_embedded(config: settings.Config, origin: Mapping[str, str]) -> bool:
    """Whether the embedded model is served: if the settings name nothing else, or name the model itself.

    Args:
        config: the settings.
        origin: where each setting that is not at its default comes from, by its key.
    """
    if not has_upstreams(config):
        return True
    return config.embedded.enabled and any(key.startswith("embedded.") for key in origin)


def _seal(config: settings.Config, shared_dir: Path | None) -> Seal:
    """Returns what signs compacted conversations: with the same key in all replicas that share state."""
    if config.response_store.seal_key:
        return Seal(config.response_store.seal_key.encode())
    key = seal_key(shared_dir)
    if not (config.state.url or config.state.database_url):
        return Seal(key)
    shared = SharedKey(state_store(config.state, shared_dir), key or secrets.token_bytes(32))
    return Seal(shared=shared.keys)


def seal_key(shared_dir: Path | None = None) -> bytes | None:
    """Returns the key of this machine, created if missing, or None if it cannot be stored.

    With None, the gateway uses a key that lasts as long as its process.

    Args:
        shared_dir: a folder that several gateway processes share, for a key that is not stored elsewhere.
    """
    for folder in (weights.cache_dir(), *([shared_dir] if shared_dir else [])):
        path = folder / "seal.key"
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError), open(path, "xb", opener=_private) as file:
                file.write(secrets.token_bytes(32))
            return _read_key(path)
    return None


def _read_key(path: Path) -> bytes | None:
    """Returns the key in this file; waits a moment for one that another process is writing."""
    for _ in range(_KEY_READS):
        if key := path.read_bytes():
            return key
        time.sleep(_KEY_READ_S)
    return None


_KEY_READS: Final = 50
_KEY_READ_S: Final = 0.01


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
