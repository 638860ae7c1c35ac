"""The model list: OpenAI and Anthropic shapes, pagination, and names that Claude Code's discovery accepts."""

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any
from urllib.parse import quote

import anthropic
import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import dialects
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.config.server import ServerConfig
from dragoman.core.backend import ServedModel
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta
from dragoman.core.messages import Request
from dragoman.gateway.gateway import Gateway
from dragoman.server.app import App
from support.fake_upstream import server, whole
from support.gateway import MESSAGES
from support.http_client import http_client
from support.scripted_backend import Scripted, serving

IDS = ("qwen/qwen3:8b", "long[1m]", "Claude-3", "anthropic/claude-5", "a~b c?d%2F", "größe")
CLAUDES = ("claude-qwen/qwen3:8b", "claude-long~5b1m~5d", "claude-a~7eb~20c~3fd~252F", "claude-gr~c3~b6~c3~9fe")
ANTHROPIC = {"anthropic-version": "2023-06-01"}


class Several(Scripted):
    def models(self) -> Sequence[ServedModel]:
        return tuple(map(ServedModel, IDS))


async def echoes_model_name(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield TextDelta(request.model)
    yield Finish("stop")


def client(**headers: str) -> httpx2.AsyncClient:
    app = App(Gateway([Several(echoes_model_name)], {"mine": IDS[0]}), ServerConfig())
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1", headers=headers)


async def get(path: str, **headers: str) -> Any:
    async with client(**headers) as http:
        return (await http.get(path)).json()


async def test_openai_client_lists_all_models() -> None:
    async with (
        client() as http,
        openai.AsyncOpenAI(api_key="k", base_url="http://127.0.0.1/v1", http_client=http) as sdk,
    ):
        assert [model.id async for model in sdk.models.list()] == [*IDS, "mine"]


@pytest.mark.parametrize("limit", [1, 3, 1000])
async def test_anthropic_sdk_lists_all_pages(limit: int) -> None:
    async with (
        client() as http,
        anthropic.AsyncAnthropic(api_key="k", base_url="http://127.0.0.1", http_client=http) as sdk,
    ):
        models = [model async for model in sdk.models.list(limit=limit)]
    assert [model.id for model in models] == [*IDS, "mine", *CLAUDES, "claude-mine"]
    real = {id: id for id in IDS} | dict(zip(CLAUDES, (IDS[0], IDS[1], IDS[4], IDS[5]), strict=True))
    assert {model.id: model.display_name for model in models} == real | {"mine": "mine", "claude-mine": "mine"}


async def test_model_list_pages_before_and_after_an_id() -> None:
    page = await get(f"/v1/models?limit=2&before_id={quote(IDS[3])}")
    assert ([m["id"] for m in page["data"]], page["has_more"]) == (list(IDS[1:3]), True)
    assert (page["first_id"], page["last_id"]) == (IDS[1], IDS[2])
    page = await get(f"/v1/models?limit=2&before_id={quote(IDS[2])}")
    assert ([m["id"] for m in page["data"]], page["has_more"]) == (list(IDS[:2]), False)
    page = await get("/v1/models?after_id=mine")
    assert (page["data"], page["has_more"], page["first_id"], page["last_id"]) == ([], False, None, None)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("limit=0", "expected a whole number of at least 1, got '0' - at limit"),
        ("limit=x", "expected a whole number of at least 1, got 'x' - at limit"),
        ("after_id=none", "expected the id of a model that is listed, got 'none' - at after_id"),
        ("before_id=none", "expected the id of a model that is listed, got 'none' - at before_id"),
    ],
)
async def test_invalid_page_parameter_is_rejected(query: str, told: str) -> None:
    body = await get(f"/v1/models?{query}", **ANTHROPIC)
    assert body == {"type": "error", "error": {"type": "invalid_request_error", "message": told}}


@pytest.mark.parametrize("name", [*IDS, *CLAUDES, "mine", "claude-mine"])
async def test_every_listed_name_is_routed_to_its_model(name: str) -> None:
    one = await get(f"/v1/models/{quote(name, safe='')}", **ANTHROPIC)
    assert one["id"] == name
    assert one["type"] == "model"
    body = {"model": name, "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    async with client(**ANTHROPIC) as http:
        answer = (await http.post(MESSAGES, json=body)).json()
    assert answer["model"] == name
    meant = IDS[0] if name.endswith("mine") else one["display_name"]
    assert answer["content"][0]["text"] == meant


async def test_model_name_takes_precedence_over_display_name() -> None:
    class Two(Scripted):
        def models(self) -> Sequence[ServedModel]:
            return (ServedModel("x"), ServedModel("claude-x"))

    gateway = Gateway([Two(echoes_model_name)])
    request = Request("claude-x", (), dialect="anthropic_messages")
    assert gateway.routes(request)[0][1].model == "claude-x"


@given(st.text(min_size=1).map(lambda s: s.encode("utf-8", "replace").decode()))
def test_display_names_round_trip(name: str) -> None:
    api = dialects.get("anthropic_messages")
    listed = api.display_name(name)
    assert listed.lower().startswith(("claude", "anthropic"))
    assert api.resolve_display_name(listed) == name or listed == name
    assert not set("[]?#% ") & set(listed) or listed == name


async def test_model_entry_comes_from_backend_that_serves_it() -> None:
    """Two servers have a model `m`; the other models have metadata of unexpected types."""
    rows = [
        {"id": "m", "created": 1700000000, "name": "Em"},
        {"id": "n", "created_at": "2024-02-29T12:00:00Z", "display_name": "En"},
        {"id": "o", "created": "soon", "created_at": 7, "display_name": None, "name": ["x"]},
        {"id": "p", "created": 1700000000000, "name": ""},
        {"id": "q", "created": -1, "created_at": "yesterday"},
    ]
    listed = whole(200, json.dumps({"data": rows}))
    other = whole(200, json.dumps({"data": [{"id": "m", "created": 5, "name": "other"}]}))
    async with server(listed) as first, server(other) as second:
        backends = [
            HttpBackend(name, HttpConfig(url=f"{far.url}/v1", context_window=n), {})
            for name, far, n in (("first", first, 11), ("second", second, 22))
        ]
        async with serving(Gateway(backends, {"mine": "m"})) as (_, url), http_client(url) as http:
            data = (await http.get("/v1/models")).json()["data"]
            one = (await http.get("/v1/models/second/m")).json()
            named = (await http.get("/v1/models/mine")).json()
    told = {
        m["id"]: (m["owned_by"], m["context_length"], m["created"], m["created_at"], m["display_name"]) for m in data
    }
    assert told["m"] == ("first", 11, 1700000000, "2023-11-14T22:13:20Z", "Em")
    assert told["n"] == ("first", 11, 1709208000, "2024-02-29T12:00:00Z", "En")
    assert {id: told[id][2:] for id in "opq"} == {id: (0, "1970-01-01T00:00:00Z", id) for id in "opq"}
    assert (one["owned_by"], one["context_length"], one["created"], one["display_name"]) == (
        "second",
        22,
        5,
        "second/m",
    )
    assert (named["owned_by"], named["display_name"]) == ("first", "mine")
