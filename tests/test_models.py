"""The list of models: both vendors' shapes, pages, and names that Claude Code's discovery keeps."""

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
from dragoman.core.contracts import Model
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta
from dragoman.core.values import Request
from dragoman.gateway import Gateway
from dragoman.server.app import App
from dragoman.server.config import ServerConfig
from gateway import MESSAGES
from scripted import Scripted

IDS = ("qwen/qwen3:8b", "long[1m]", "Claude-3", "anthropic/claude-5", "a~b c?d%2F", "größe")
CLAUDES = ("claude-qwen/qwen3:8b", "claude-long~5b1m~5d", "claude-a~7eb~20c~3fd~252F", "claude-gr~c3~b6~c3~9fe")
ANTHROPIC = {"anthropic-version": "2023-06-01"}


class Several(Scripted):
    def models(self) -> Sequence[Model]:
        return tuple(map(Model, IDS))


async def naming(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield TextDelta(request.model)
    yield Finish("stop")


def client(**headers: str) -> httpx2.AsyncClient:
    app = App(Gateway([Several(naming)], {"mine": IDS[0]}), ServerConfig())
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1", headers=headers)


async def get(path: str, **headers: str) -> Any:
    async with client(**headers) as http:
        return (await http.get(path)).json()


async def test_all_names_for_openais_clients() -> None:
    async with (
        client() as http,
        openai.AsyncOpenAI(api_key="k", base_url="http://127.0.0.1/v1", http_client=http) as sdk,
    ):
        assert [model.id async for model in sdk.models.list()] == [*IDS, "mine"]


@pytest.mark.parametrize("limit", [1, 3, 1000])
async def test_anthropics_package_goes_through_the_pages(limit: int) -> None:
    async with (
        client() as http,
        anthropic.AsyncAnthropic(api_key="k", base_url="http://127.0.0.1", http_client=http) as sdk,
    ):
        models = [model async for model in sdk.models.list(limit=limit)]
    assert [model.id for model in models] == [*IDS, "mine", *CLAUDES, "claude-mine"]
    real = {id: id for id in IDS} | dict(zip(CLAUDES, (IDS[0], IDS[1], IDS[4], IDS[5]), strict=True))
    assert {model.id: model.display_name for model in models} == real | {"mine": "mine", "claude-mine": "mine"}


async def test_a_page_before_and_one_behind() -> None:
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
async def test_a_page_that_there_is_not(query: str, told: str) -> None:
    body = await get(f"/v1/models?{query}", **ANTHROPIC)
    assert body == {"type": "error", "error": {"type": "invalid_request_error", "message": told}}


@pytest.mark.parametrize("name", [*IDS, *CLAUDES, "mine", "claude-mine"])
async def test_every_name_reaches_its_model(name: str) -> None:
    one = await get(f"/v1/models/{quote(name, safe='')}", **ANTHROPIC)
    assert one["id"] == name
    assert one["type"] == "model"
    body = {"model": name, "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    async with client(**ANTHROPIC) as http:
        answer = (await http.post(MESSAGES, json=body)).json()
    assert answer["model"] == name
    meant = IDS[0] if name.endswith("mine") else one["display_name"]
    assert answer["content"][0]["text"] == meant


async def test_a_model_that_is_called_as_another_would_be_keeps_its_name() -> None:
    class Two(Scripted):
        def models(self) -> Sequence[Model]:
            return (Model("x"), Model("claude-x"))

    gateway = Gateway([Two(naming)])
    request = Request("claude-x", (), dialect="anthropic_messages")
    assert gateway.plan(request)[0][1].model == "claude-x"


@given(st.text(min_size=1).map(lambda s: s.encode("utf-8", "replace").decode()))
def test_names_are_spelled_and_read_back(name: str) -> None:
    api = dialects.get("anthropic_messages")
    listed = api.listed_as(name)
    assert listed.lower().startswith(("claude", "anthropic"))
    assert api.meant_by(listed) == name or listed == name
    assert not set("[]?#% ") & set(listed) or listed == name
