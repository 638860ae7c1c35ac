"""Stored responses over HTTP: retrieved by id, with their input items, and deleted."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest

from dragoman.config.server import ServerConfig
from dragoman.gateway.gateway import Gateway
from dragoman.server.app import App
from support.scripted_backend import Scripted, plain

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": None}
CALL = {
    "type": "function_call",
    "call_id": "c1",
    "name": "f",
    "arguments": "{}",
    "id": "fc_mine",
    "status": "completed",
}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "ok"}


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    app = App(Gateway([Scripted(plain)]), ServerConfig())
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as made:
        yield made


async def asked(http: httpx2.AsyncClient, **body: Any) -> Any:
    answer = await http.post("/v1/responses", json={"model": "m", "input": "hi", **body})
    if not body.get("stream"):
        return answer.json()
    return json.loads(answer.content.rpartition(b"data: ")[2])["response"]


async def items(http: httpx2.AsyncClient, id: str, query: str = "order=asc") -> Any:
    answer = await http.get(f"/v1/responses/{id}/input_items?{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("stream", [False, True])
async def test_retrieved_response_equals_original(stream: bool, http: httpx2.AsyncClient) -> None:
    made = await asked(http, stream=stream, metadata={"a": "b"}, tools=[TOOL], instructions="Be brief.")
    got = (await http.get(f"/v1/responses/{made['id']}")).json()
    assert got == made
    assert (got["metadata"], got["output"][0]["content"][0]["text"]) == ({"a": "b"}, "Hello")
    (one,) = (await items(http, made["id"]))["data"]
    assert (one["role"], one["content"]) == ("user", [{"type": "input_text", "text": "hi"}])


async def test_openai_sdk_retrieves_lists_and_deletes_responses(http: httpx2.AsyncClient) -> None:
    async with openai.AsyncOpenAI(api_key="k", base_url="http://127.0.0.1/v1", http_client=http, max_retries=0) as sdk:
        first = await sdk.responses.create(model="m", input="one")
        second = await sdk.responses.create(model="m", input="two", previous_response_id=first.id)
        assert (await sdk.responses.retrieve(second.id)).previous_response_id == first.id
        listed = [item async for item in sdk.responses.input_items.list(second.id, limit=1, order="asc")]
        assert [item.content[0].text for item in listed if item.type == "message"] == ["one", "Hello", "two"]
        await sdk.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            await sdk.responses.retrieve(first.id)
        with pytest.raises(openai.BadRequestError, match="not found"):
            await sdk.responses.create(model="m", input="three", previous_response_id=second.id)
        with pytest.raises(openai.BadRequestError, match="Cannot cancel"):
            await sdk.responses.cancel(second.id)


async def test_input_items_are_listed_in_pages(http: httpx2.AsyncClient) -> None:
    said = [
        {"role": "user", "content": "go"},
        CALL,
        RESULT,
        {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
    ]
    made = await asked(http, input=said, instructions="not an item")
    whole = await items(http, made["id"])
    ids = [item["id"] for item in whole["data"]]
    assert [item["type"] for item in whole["data"]] == ["message", "function_call", "function_call_output", "message"]
    assert (len(set(ids)), ids[1], whole["has_more"], whole["first_id"], whole["last_id"]) == (
        4,
        "fc_mine",
        False,
        ids[0],
        ids[3],
    )
    page = await items(http, made["id"], f"order=asc&limit=2&after={ids[0]}")
    assert ([item["id"] for item in page["data"]], page["has_more"]) == (ids[1:3], True)
    assert [item["id"] for item in (await items(http, made["id"], ""))["data"]] == ids[::-1]
    for query in ("limit=0", "limit=101", "limit=x", "order=up", "after=nothing"):
        answer = await http.get(f"/v1/responses/{made['id']}/input_items?{query}")
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, query.partition("=")[0])


async def test_unknown_response_and_unsupported_method_are_rejected(http: httpx2.AsyncClient) -> None:
    unkept = (await asked(http, store=False))["id"]
    kept = (await asked(http))["id"]
    for id in (unkept, "resp_none", "x"):
        for method, end in (("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")):
            answer = await http.request(method, f"/v1/responses/{id}{end}")
            assert answer.status_code == 404
            assert answer.json()["error"]["type"] == "invalid_request_error"
    assert (await http.get(f"/v1/responses/{kept}?stream=true")).status_code == 400
    assert (await http.post(f"/v1/responses/{kept}")).status_code == 405
    assert (await http.delete(f"/v1/responses/{kept}/input_items")).headers["allow"] == "GET, HEAD, OPTIONS"
    assert (await http.delete(f"/v1/responses/{kept}")).json() == {"id": kept, "object": "response", "deleted": True}
    assert (await http.delete(f"/v1/responses/{kept}")).status_code == 404
