"""Discovery of servers on this machine: by default ports, identified by their responses."""

import json
import socket

import pytest

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.probe.discover import DiscoveredServer, default_ports, discover_servers
from dragoman.catalog import servers
from dragoman.gateway.gateway import Gateway
from support.fake_upstream import says_nothing, server, whole
from support.scripted_backend import plain, served, serving

MODELS = whole(200, json.dumps({"object": "list", "data": [{"id": "qwen3", "object": "model", "owned_by": "vllm"}]}))


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def test_default_ports_are_those_of_known_providers() -> None:
    assert {1234, 8000, 8080, 8484, 11434, 52415} <= set(default_ports())
    assert len(set(default_ports())) == len(default_ports())


async def test_running_server_is_discovered_with_models() -> None:
    async with server(MODELS) as behind:
        found = await discover_servers({}, [port_of(behind.url)])
    assert found == [DiscoveredServer(f"{behind.url}/v1", servers.get("vllm"), ("qwen3",))]


async def test_gateway_is_identified_as_dragoman() -> None:
    async with served(plain) as s:
        (found,) = await discover_servers({}, [port_of(s.url)])
    assert found.provider == servers.get("dragoman")
    assert found.models[0] == "m"


async def test_gateway_with_vllm_upstream_is_identified_as_dragoman() -> None:
    """Its models are listed with the name of their upstream, which may be a provider's name."""
    async with server(MODELS) as far:
        behind = HttpBackend("vllm", HttpConfig(url=f"{far.url}/v1", models=("qwen3",)), {})
        async with serving(Gateway([behind])) as (_, url):
            (found,) = await discover_servers({}, [port_of(url)])
    assert found.provider == servers.get("dragoman")
    assert "qwen3" in found.models


async def test_foreign_http_server_is_ignored() -> None:
    page = whole(200, "<html>Hello</html>", "text/html")
    async with server(page) as other, server(whole(404, "")) as empty:
        assert await discover_servers({}, [port_of(other.url), port_of(empty.url)]) == []


async def test_port_without_listener_is_ignored() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, so that no other process can use it, but not listening
        assert await discover_servers({}, [taken.getsockname()[1]]) == []


async def test_silent_server_does_not_delay_discovery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.backends.probe.discover.IDENTIFY_TIMEOUT_S", 0.1)
    async with server(says_nothing) as silent, server(MODELS) as behind:
        found = await discover_servers({}, [port_of(silent.url), port_of(behind.url)])
    assert [each.models for each in found] == [("qwen3",)]
