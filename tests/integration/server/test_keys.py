"""Named API keys: what their owners may use, over HTTP in all APIs."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from dragoman import compose
from dragoman.config import Config
from dragoman.config.keys import KeyConfig
from dragoman.config.routes import take_routes
from dragoman.config.server import CaptureConfig
from dragoman.core.backend import EventStream
from dragoman.core.errors import UpstreamError
from dragoman.core.events import AnyEvent, TextDelta
from dragoman.core.messages import Request
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.routing.route import Routes
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.server.keys.ring import KeyRing
from dragoman.tool_executors.config import ToolsConfig
from dragoman.vendor_tools.executor import ToolExecutor
from dragoman.vendor_tools.tool import ToolRunResult, VendorToolCall
from support.gateway import shape_of
from support.mcp_servers import stdio
from support.scripted_backend import Script, Scripted, eventually, plain, serving
from support.vendor_tools import ONLY, OWN, body, scripted

PATHS: Final = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
}
DIALECTS: Final = list(PATHS)


def secret(name: str) -> str:
    return f"the-secret-of-{name}"


def ring(**keys: KeyConfig) -> KeyRing:
    named = {name: KeyConfig(**{**_fields(config), "secret": secret(name)}) for name, config in keys.items()}
    return KeyRing(named, ("unnamed-key",))


def _fields(config: KeyConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.__struct_fields__}


def named(name: str, *models: str, script: Script = plain) -> Scripted:
    """A backend of this name with model m and more models."""
    backend = Scripted(script, models)
    backend.name = name
    return backend


class Clients:
    """Clients of one gateway, by the names of their keys."""

    def __init__(self, url: str, http: httpx2.AsyncClient) -> None:
        self.url, self._http = url, http

    async def request(self, key: str, method: str, path: str, content: object = None) -> httpx2.Response:
        headers = {"authorization": f"Bearer {secret(key) if key else 'unnamed-key'}"}
        return await self._http.request(method, f"{self.url}{path}", json=content, headers=headers)

    async def ask(self, key: str, dialect: str = "openai_chat", **fields: Any) -> httpx2.Response:
        return await self.request(key, "POST", PATHS[dialect], body(dialect, False, **fields))

    async def models(self, key: str) -> list[str]:
        return [model["id"] for model in (await self.request(key, "GET", "/v1/models")).json()["data"]]


@asynccontextmanager
async def clients(gateway: Gateway, keys: KeyRing, **more: Any) -> AsyncIterator[Clients]:
    async with serving(gateway, keys=keys, **more) as (_, url), httpx2.AsyncClient() as http:
        yield Clients(url, http)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_refused_keys_get_401_in_the_shape_of_the_api(dialect: str) -> None:
    keys = ring(old=KeyConfig(expires="2020-01-01"), out=KeyConfig(revoked="2020-01-01"), alice=KeyConfig())
    async with clients(Gateway([named("a")]), keys) as it:
        assert (await it.ask("alice", dialect)).status_code == 200
        for name, message in {
            "old": "the API key old expired (2020-01-01)",
            "out": "the API key out was revoked",
            "unknown": "expected an API key in 'Authorization: Bearer …' or 'x-api-key'",
        }.items():
            answer = await it.ask(name, dialect)
            assert answer.status_code == 401
            error = shape_of(PATHS[dialect], answer.json())
            assert error["message"].startswith(message)
            code = "authentication_error" if dialect == "anthropic_messages" else "invalid_api_key"
            assert (error.get("code") or error["type"]) == code


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_model_of_another_key_looks_like_one_that_does_not_exist(dialect: str) -> None:
    gateway = Gateway([named("a", "hidden-model", "alice-1", "alice-2")], {"best": "hidden-model"})
    async with clients(gateway, ring(alice=KeyConfig(models=("alice-*",)))) as it:
        assert (await it.ask("alice", dialect, model="alice-2")).status_code == 200
        assert (await it.ask("", dialect, model="hidden-model")).status_code == 200
        for model in ("hidden-model", "best", "m"):
            answer, unknown = await it.ask("alice", dialect, model=model), await it.ask("alice", dialect, model="x" * 9)
            assert (answer.status_code, unknown.status_code) == (404, 404)
            assert answer.text.replace(f"'{model}'", f"'{'x' * 9}'") == unknown.text
            error = shape_of(PATHS[dialect], answer.json())
            message = f"unknown model '{model}', or the API key alice may not use it; available: 'alice-1', 'alice-2'"
            assert error["message"] == message
            assert error.get("code", "model_not_found") == "model_not_found"


async def test_lists_of_models_and_other_paths_know_only_the_models_of_the_key() -> None:
    gateway = Gateway([named("a", "hidden", "alice-1")], {"alice-best": "hidden", "best": "alice-1"})
    async with clients(gateway, ring(alice=KeyConfig(models=("alice-*",)))) as it:
        assert await it.models("alice") == ["alice-1", "alice-best"]
        assert await it.models("") == ["m", "hidden", "alice-1", "n", "alice-best", "best"]
        assert (await it.request("alice", "GET", "/v1/models/alice-1")).status_code == 200
        assert (await it.request("alice", "GET", "/v1/models/hidden")).status_code == 404
        assert (await it.ask("alice", model="alice-best")).status_code == 200, "the name that is requested counts"
        for path in ("/v1/messages/count_tokens", "/v1/responses/input_tokens", "/v1/embeddings", "/v1/completions"):
            content = body("openai_responses" if "input" in path else "anthropic_messages", False, model="hidden")
            assert (await it.request("alice", "POST", path, content)).status_code == 404, path


async def test_failover_and_aliases_do_not_leave_the_upstreams_of_the_key() -> None:
    async def failing(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        raise UpstreamError("the server is down", status=500)
        yield

    asked: list[Request] = []
    other = named("other", "theirs", script=scripted(*[[TextDelta("a")]] * 9, asked=asked))
    gateway = Gateway([named("own", "ours", script=failing), other], {"either": ("ours", "theirs"), "all": "theirs"})
    async with clients(gateway, ring(alice=KeyConfig(upstreams=("ow?",)))) as it:
        assert await it.models("alice") == ["m", "ours", "n", "either"]
        for model, status in {"m": 502, "either": 502, "theirs": 404, "all": 404}.items():
            answer = await it.ask("alice", model=model)
            assert answer.status_code == status, answer.text
            assert "other" not in answer.text
        assert not asked
        assert (await it.ask("", model="either")).status_code == 200
        assert len(asked) == 1


async def test_rules_do_not_leave_the_upstreams_of_the_key() -> None:
    asked: list[Request] = []
    other = named("other", "theirs", script=scripted(*[[TextDelta("a")]] * 9, asked=asked))
    rules = Routes(take_routes({"routes": [{"use": ["theirs", "ours"]}]}, "file"))
    gateway = Gateway([named("own", "ours"), other], rules=rules)
    async with clients(gateway, ring(alice=KeyConfig(upstreams=("own",)))) as it:
        answer = await it.ask("alice", model="m")
        assert (answer.status_code, answer.headers["x-dragoman-upstream"]) == (200, "own")
        assert not asked
        assert await it.models("alice") == ["m", "ours", "n"], "as without rules"
        assert (await it.ask("", model="m")).headers["x-dragoman-upstream"] == "other"


class _Starting(Scripted):
    def models(self) -> tuple[()]:
        return ()

    def generate(self, request: Request, context: object) -> EventStream:
        raise NotImplementedError


async def test_backends_that_are_not_ready_are_named_to_their_keys_only() -> None:
    starting = _Starting(plain)
    starting.name = "starting"
    gateway = Gateway([named("own"), starting])
    keys = ring(alice=KeyConfig(upstreams=("own",)), bob=KeyConfig(models=("b*",)), carol=KeyConfig(upstreams=("s*",)))
    async with clients(gateway, keys) as it:
        statuses = {key: (await it.ask(key, model="x")).status_code for key in ("alice", "bob", "carol", "")}
    assert statuses == {"alice": 404, "bob": 404, "carol": 503, "": 503}


async def test_stored_responses_belong_to_their_key() -> None:
    async with clients(Gateway([named("a")]), ring(alice=KeyConfig(), bob=KeyConfig())) as it:
        first = (await it.ask("alice", "openai_responses", store=True)).json()["id"]
        path = f"/v1/responses/{first}"
        for method, at in (("GET", path), ("GET", f"{path}/input_items"), ("DELETE", path)):
            assert (await it.request("bob", method, at)).status_code == 404
        unknown = await it.ask("bob", "openai_responses", previous_response_id=first)
        assert unknown.status_code == 400
        counted = await it.request(
            "bob", "POST", "/v1/responses/input_tokens", {"model": "m", "input": "a", "previous_response_id": first}
        )
        assert counted.status_code == 400
        assert (await it.ask("alice", "openai_responses", previous_response_id=first)).status_code == 200
        assert (await it.request("", "GET", path)).status_code == 200
        assert (await it.request("alice", "DELETE", path)).status_code == 200


async def test_only_admin_keys_may_use_what_concerns_all_clients() -> None:
    async with clients(Gateway([named("a")]), ring(alice=KeyConfig(), root=KeyConfig(admin=True))) as it:
        for method, path in (("GET", "/metrics"), ("POST", "/models/load"), ("POST", "/models/unload")):
            refused = await it.request("alice", method, path, {"model": "m"})
            assert refused.status_code == 403
            message = f"expected an API key with admin = true for '{path}', got alice - at keys.alice.admin"
            assert refused.json()["error"]["message"] == message
            for admin in ("root", ""):
                assert (await it.request(admin, method, path, {"model": "m"})).status_code != 403
        for key, details in {"alice": False, "root": True, "unknown": False, "": True}.items():
            assert ("backends" in (await it.request(key, "GET", "/health")).json()) is details
            assert ("backends" in (await it.request(key, "GET", "/ready")).json()) is details


async def test_usage_describes_the_own_key() -> None:
    alice = KeyConfig(models=("m*",), expires="2099-12-31", requests_per_minute=5, budget_usd_per_day=2.5)
    async with clients(Gateway([named("a")]), ring(alice=alice)) as it:
        own = (await it.request("alice", "GET", "/v1/usage")).json()
        unnamed = (await it.request("", "GET", "/v1/usage")).json()
        assert (await it.request("unknown", "GET", "/v1/usage")).status_code == 401
    limits = dict.fromkeys(own["limits"]) | {"requests_per_minute": 5, "budget_usd_per_day": 2.5}
    assert own == {
        "object": "key",
        "name": "alice",
        "admin": False,
        "models": ["m*"],
        "upstreams": None,
        "tools": None,
        "expires_at": "2100-01-01T00:00:00+00:00",
        "limits": limits,
    }
    assert (unnamed["name"], unnamed["admin"], unnamed["models"], unnamed["expires_at"]) == (None, True, None, None)


class _Search(ToolExecutor):
    def __init__(self) -> None:
        self.calls = 0

    async def run(self, call: VendorToolCall) -> ToolRunResult:
        self.calls += 1
        return ToolRunResult("found it")


@pytest.mark.parametrize("dialect", ["anthropic_messages", "openai_responses"])
async def test_vendor_tools_are_offered_to_keys_that_may_use_them(dialect: str) -> None:
    asked: list[Request] = []
    gateway = Gateway(
        [named("a", script=scripted(*[[TextDelta("no")]] * 9, asked=asked))],
        vendor_tools=VendorToolRunner({"web_search": _Search(), "web_fetch": _Search()}),
    )
    keys = ring(alice=KeyConfig(tools=("web_search",)), bob=KeyConfig(tools=("web_fetch", "mcp:*")), carol=KeyConfig())
    tools = [*ONLY[dialect]["tools"], OWN[dialect]]
    async with clients(gateway, keys) as it:
        for key, is_offered in {"alice": True, "bob": False, "carol": True}.items():
            assert (await it.ask(key, dialect, tools=tools)).status_code == 200
            functions = {tool.name for tool in asked[-1].tools if tool.kind == "function"}
            assert ("web_search" in functions) is is_offered, key
            assert ("open_page" in functions) is (key == "carol" and dialect == "openai_responses"), (
                "it needs web_fetch"
            )


def _with_servers(asked: list[Request], **servers: Any) -> Gateway:
    config = Config(mcp=servers, tools=ToolsConfig(mcp_allowed_hosts=("mcp.example",)))
    backend = named("a", script=scripted(*[[TextDelta("no")]] * 9, asked=asked))
    return Gateway([backend], vendor_tools=compose.vendor_tools(config))


async def test_mcp_servers_are_those_of_the_key() -> None:
    keys = ring(alice=KeyConfig(tools=("mcp:books",)), bob=KeyConfig(tools=("mcp:other*",)))
    asked: list[Request] = []
    async with clients(_with_servers(asked, books=stdio(), other=stdio(offer_to=("*",))), keys) as it:
        for key, server in {"alice": "books", "bob": "other"}.items():
            async with (
                httpx2.AsyncClient(headers={"x-api-key": secret(key)}) as http,
                Client(streamable_http_client(f"{it.url}/mcp", http_client=http)) as client,
            ):
                tools = [tool.name for tool in (await client.list_tools()).tools]
                assert {tool.partition("__")[0] for tool in tools} == {server}
                for name in ("books", "other"):
                    result = await client.call_tool(f"{name}__add", {"a": 2, "b": 3})
                    assert result.is_error is (name != server), "also without being listed"
        await it.ask("alice")
        assert not asked[-1].tools, "servers that are offered in every request"
        await it.ask("bob")
        assert {tool.name.partition("__")[0] for tool in asked[-1].tools} == {"other"}
        for label, url in (("books", ""), ("books", "mcp:books"), ("x", "https://mcp.example/mcp")):
            declared = {"type": "mcp", "server_label": label, "require_approval": "never"}
            declared |= {"server_url": url} if url else {}
            refused = await it.ask("bob", "openai_responses", tools=[declared])
            name = "mcp.example" if label == "x" else "books"
            assert refused.status_code == 400
            assert refused.json()["error"]["message"].startswith(f"this API key may not use the MCP server '{name}'")
        declared = {"type": "mcp", "server_label": "books", "server_url": "mcp:books", "require_approval": "never"}
        assert (await it.ask("alice", "openai_responses", tools=[declared])).status_code == 200


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_captures_contain_no_secret(tmp_path: Any) -> None:
    capture = CaptureConfig(dir=str(tmp_path))
    async with clients(Gateway([named("a")]), ring(alice=KeyConfig()), capture=capture) as it:
        content = [{"role": "user", "content": f"my environment has {secret('alice')} in it"}]
        assert (await it.ask("alice", messages=content)).status_code == 200
        await eventually(lambda: any(b"my environment has" in path.read_bytes() for path in files(tmp_path)))
    assert not [path for path in files(tmp_path) if secret("alice").encode() in path.read_bytes()]
