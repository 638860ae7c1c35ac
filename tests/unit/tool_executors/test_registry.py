"""Executors from settings, and errors about the settings."""

from pathlib import Path
from typing import Any

import pytest

from dragoman import extras
from dragoman.core.errors import ConfigError
from dragoman.mcp_client.config import McpServerConfig
from dragoman.mcp_client.pool import McpServers
from dragoman.tool_executors.config import CodeExecutionConfig, ToolsConfig, WebFetchConfig, WebSearchConfig
from dragoman.tool_executors.registry import build_executors
from dragoman.vendor_tools.executor import ToolServers


def built(**settings: Any) -> list[str]:
    executors = build_executors(ToolsConfig(web_search=WebSearchConfig(**settings)))
    return [f"{kind}: {type(executor).__name__}" for kind, executor in executors.items()]


def test_nothing_is_run_by_default() -> None:
    assert build_executors(ToolsConfig()) == {}


def test_each_use_has_its_executor(tmp_path: Path) -> None:
    assert built(use="local", path=str(tmp_path)) == ["web_search: LocalSearch"]
    assert built(use="searxng", url="https://search.example.com/x") == ["web_search: SearxngSearch"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"use": "searx"},
            "unknown 'searx'; did you mean 'searxng'? expected 'searxng', 'local' - at tools.web_search.use",
        ),
        ({"use": "searxng"}, "expected a URL like http://127.0.0.1:8888, got none - at tools.web_search.url"),
        (
            {"use": "searxng", "url": "127.0.0.1:8888"},
            "expected a URL like http://127.0.0.1:8888, got '127.0.0.1:8888' - at tools.web_search.url",
        ),
        ({"use": "local"}, "expected the path of a folder with documents, got none - at tools.web_search.path"),
        (
            {"use": "local", "path": "/no/such/folder"},
            "expected the path of a folder with documents, got '/no/such/folder' - at tools.web_search.path",
        ),
        ({"url": "http://x"}, 'tools.web_search.url is set, but no search uses it: set use = "searxng" next to it'),
        ({"path": "/x"}, 'tools.web_search.path is set, but no search uses it: set use = "local" next to it'),
        ({"base_url": "/x"}, 'tools.web_search.base_url is set, but no search uses it: set use = "local" next to it'),
        (
            {"use": "local", "url": "http://x"},
            'tools.web_search.url is set, but no search uses it: set use = "searxng" next to it',
        ),
        (
            {"use": "searxng", "url": "http://x", "path": "/x"},
            'tools.web_search.path is set, but no search uses it: set use = "local" next to it',
        ),
        (
            {"use": "mcp:books/search", "base_url": "http://x"},
            'tools.web_search.base_url is set, but no search uses it: set use = "local" next to it',
        ),
        ({"models": ("qwen*",)}, "tools.web_search.models is set, but no search uses it: set use next to it"),
    ],
)
def test_wrong_settings_are_explained(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        built(**settings)
    assert str(caught.value) == message


def test_code_is_run_for_models_of_settings() -> None:
    servers = McpServers({"box": McpServerConfig(command=("box",))}, {})
    settings = CodeExecutionConfig(use="mcp:box/run", models=("qwen*",))
    executor = build_executors(ToolsConfig(code_execution=settings), servers)["code_execution"]
    assert (executor.admits("alias", "Qwen3"), executor.admits("m")) == (True, False)


def test_code_settings_without_use_are_rejected() -> None:
    message = "tools.code_execution.models is set, but nothing runs code: set use next to it"
    with pytest.raises(ConfigError, match=message):
        build_executors(ToolsConfig(code_execution=CodeExecutionConfig(models=("qwen*",))))


@pytest.mark.parametrize(
    ("names", "offered"),
    [(["qwen3"], True), (["Qwen3"], True), (["lan/qwen3", "qwen3"], True), (["claude", "QWEN3"], True), (["m"], False)],
)
def test_tools_are_offered_to_each_name_of_a_model(names: list[str], offered: bool) -> None:
    servers = McpServers({"box": McpServerConfig(command=("box",), offer_to=("Qwen*",))}, {})
    executor = build_executors(ToolsConfig(), servers)["mcp"]
    assert isinstance(executor, ToolServers)
    assert bool(executor.offered(*names)) == offered


def fetching(**settings: Any) -> list[str]:
    executors = build_executors(ToolsConfig(web_fetch=WebFetchConfig(**settings)))
    return [f"{kind}: {type(executor).__name__}" for kind, executor in executors.items()]


def test_pages_are_fetched_if_configured() -> None:
    assert fetching(use="http", allow_private=("10.0.0.0/8", "wiki.example.com")) == ["web_fetch: WebFetch"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"use": "htp"},
            "unknown 'htp'; did you mean 'http'? expected 'http', 'mcp:NAME/TOOL' - at tools.web_fetch.use",
        ),
        ({"use": "mcp:pages"}, "expected mcp:NAME/TOOL, got 'mcp:pages' - at tools.web_fetch.use"),
        (
            {"use": "mcp:pages/read", "max_bytes": 1000},
            'tools.web_fetch.max_bytes is set, but the MCP server fetches: set use = "http" next to it',
        ),
        (
            {"use": "mcp:pages/read", "allowed_hosts": ("*.example.com",)},
            "expected a host name, got '*.example.com' - at tools.web_fetch.allowed_hosts",
        ),
        (
            {"any_url": True},
            'tools.web_fetch has settings, but is off: set use = "http" next to them',
        ),
        (
            {"use": "http", "allow_private": ("10.0.0.0/33",)},
            "expected a network or a host name, got '10.0.0.0/33' - at tools.web_fetch.allow_private",
        ),
        (
            {"use": "http", "allow_private": ("http://wiki.example.com",)},
            "expected a network or a host name, got 'http://wiki.example.com' - at tools.web_fetch.allow_private",
        ),
        (
            {"use": "http", "allowed_hosts": ("*.example.com",)},
            "expected a host name, got '*.example.com' - at tools.web_fetch.allowed_hosts",
        ),
    ],
)
def test_wrong_settings_of_fetch_are_explained(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        fetching(**settings)
    assert str(caught.value) == message


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_is_installed", lambda module: module not in extras.PACKAGES["tools"])
    with pytest.raises(ConfigError, match=r"web fetch needs the tools extra: .*tools.* - at tools\.web_fetch\.use"):
        fetching(use="http")
    assert fetching() == []
