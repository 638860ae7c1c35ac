"""Builds the executors that the settings name, one for each kind of tool.

To add a kind: its settings in `config.py`, an executor, and a function in `_BUILDERS`.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from dragoman.core.errors import ConfigError, one_of, quote
from dragoman.extras import install_command, missing_extras
from dragoman.host_names import host_name
from dragoman.mcp_client.pool import McpServers
from dragoman.tool_executors.config import WEB_SEARCH, ToolsConfig, WebFetchConfig, WebSearchConfig
from dragoman.vendor_tools.executor import ToolExecutor

NO_SERVERS: Final = McpServers({})
_DEFAULTS: Final = WebSearchConfig()
_USES: Final[Mapping[str, str]] = {"url": "searxng", "path": "local", "base_url": "local"}
"""Settings of a web search that only one `use` has."""
_HOST: Final = re.compile(r"[\w-]+(\.[\w-]+)*")


def build_executors(config: ToolsConfig, servers: McpServers = NO_SERVERS) -> dict[str, ToolExecutor]:
    """Returns the configured executors, by kind of tool.

    Args:
        config: The settings.
        servers: The MCP servers, for `use = "mcp:NAME/TOOL"`.

    Raises:
        ConfigError: A setting is missing or wrong.
    """
    built = {kind: build(config, servers) for kind, build in _BUILDERS.items()}
    return {kind: executor for kind, executor in built.items() if executor is not None}


def _web_search(config: ToolsConfig, servers: McpServers) -> ToolExecutor | None:
    settings = config.web_search
    is_mcp = settings.use.startswith("mcp:")
    if not is_mcp and settings.use not in WEB_SEARCH:
        hint = one_of(settings.use, [each for each in WEB_SEARCH if each], "expected ")
        raise ConfigError(f"unknown {quote(settings.use)}{hint} - at tools.web_search.use")
    _reject_unused(settings)
    if not settings.use:
        return None
    if is_mcp:
        executor = _mcp_tool(settings.use, "web_search", servers, settings.max_results)
    else:
        executor = _searxng(settings) if settings.use == "searxng" else _local(settings)
    executor.timeout_s, executor.models = settings.timeout_s, settings.models
    return executor


def _code_execution(config: ToolsConfig, servers: McpServers) -> ToolExecutor | None:
    settings = config.code_execution
    if not settings.use:
        if settings.models:
            raise ConfigError("tools.code_execution.models is set, but nothing runs code: set use next to it")
        return None
    executor = _mcp_tool(settings.use, "code_execution", servers)
    executor.models = settings.models
    return executor


def _mcp_servers(config: ToolsConfig, servers: McpServers) -> ToolExecutor | None:
    if not servers.by_name and not config.mcp_allowed_hosts:
        return None
    if missing_extras("tools"):
        raise ConfigError(f"tools.mcp_allowed_hosts needs more than is installed: {install_command('tools')}")
    for entry in config.mcp_allowed_hosts:
        if not host_name(entry):
            raise ConfigError(f"expected a host's name, got {quote(entry)} - at tools.mcp_allowed_hosts")
    from dragoman.tool_executors.mcp_servers import McpServersExecutor

    return McpServersExecutor(servers, config.mcp_allowed_hosts)


def _mcp_tool(use: str, kind: str, servers: McpServers, max_results: int = 0) -> ToolExecutor:
    from dragoman.tool_executors.mcp_tool import McpToolExecutor

    return McpToolExecutor(*servers.find(use, f"tools.{kind}.use"), kind, max_results)


def _reject_unused(settings: WebSearchConfig) -> None:
    """Rejects settings that no search uses: the user expects that they have an effect."""
    for name in settings.__struct_fields__:
        if getattr(settings, name) == getattr(_DEFAULTS, name):
            continue
        use = _USES.get(name, settings.use)
        if not use or use != settings.use:
            needed = f'use = "{use}"' if use else "use"
            raise ConfigError(f"tools.web_search.{name} is set, but no search uses it: set {needed} next to it")


def _searxng(settings: WebSearchConfig) -> ToolExecutor:
    from dragoman.tool_executors.searxng import SearxngSearch

    if not settings.url.startswith(("http://", "https://")) or not host_name(settings.url):
        got = quote(settings.url) if settings.url else "none"
        raise ConfigError(f"expected a URL like http://127.0.0.1:8888, got {got} - at tools.web_search.url")
    return SearxngSearch(settings.url, settings.max_results, settings.timeout_s)


def _local(settings: WebSearchConfig) -> ToolExecutor:
    from dragoman.tool_executors.local_index import LocalSearch

    folder = Path(settings.path).expanduser()
    if not settings.path or not folder.is_dir():
        got = quote(settings.path) if settings.path else "none"
        raise ConfigError(f"expected the path of a folder with documents, got {got} - at tools.web_search.path")
    return LocalSearch(folder, settings.base_url, settings.max_results)


def _web_fetch(config: ToolsConfig, servers: McpServers) -> ToolExecutor | None:
    settings = config.web_fetch
    if not settings.use:
        if settings != WebFetchConfig():
            raise ConfigError('tools.web_fetch has settings, but is off: set use = "http" next to them')
        return None
    is_mcp = settings.use.startswith("mcp:")
    if not is_mcp and settings.use != "http":
        hint = one_of(settings.use, ["http", "mcp:NAME/TOOL"], "expected ")
        raise ConfigError(f"unknown {quote(settings.use)}{hint} - at tools.web_fetch.use")
    _check_hosts(settings)
    executor = _mcp_fetch(settings, servers) if is_mcp else _http_fetch(settings)
    executor.models = settings.models
    return executor


def _mcp_fetch(settings: WebFetchConfig, servers: McpServers) -> ToolExecutor:
    for name in ("max_bytes", "max_redirects"):
        if getattr(settings, name) != getattr(WebFetchConfig(), name):
            raise ConfigError(f'tools.web_fetch.{name} is set, but the MCP server fetches: set use = "http" next to it')
    server, tool = servers.find(settings.use, "tools.web_fetch.use")
    from dragoman.tool_executors.fetch.mcp_fetch import ARGUMENT_NAMES, McpFetch
    from dragoman.tool_executors.mcp_tool import McpTool

    return McpFetch(settings, McpTool(server, tool, ARGUMENT_NAMES))


def _http_fetch(settings: WebFetchConfig) -> ToolExecutor:
    if missing_extras("tools"):
        command = install_command("tools")
        raise ConfigError(f"web fetch needs the tools extra: {command} - at tools.web_fetch.use")
    from dragoman.tool_executors.fetch.web_fetch import WebFetch

    return WebFetch(settings)


def _check_hosts(settings: WebFetchConfig) -> None:
    for entry in settings.allow_private:
        if not (_is_network(entry) or _HOST.fullmatch(entry)):
            raise ConfigError(
                f"expected a network or a host name, got {quote(entry)} - at tools.web_fetch.allow_private"
            )
    for entry in settings.allowed_hosts:
        if not _HOST.fullmatch(entry):
            raise ConfigError(f"expected a host name, got {quote(entry)} - at tools.web_fetch.allowed_hosts")


def _is_network(entry: str) -> bool:
    try:
        ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
    return True


_BUILDERS: Final[Mapping[str, Callable[[ToolsConfig, McpServers], ToolExecutor | None]]] = {
    "web_search": _web_search,
    "web_fetch": _web_fetch,
    "code_execution": _code_execution,
    "mcp": _mcp_servers,
}
