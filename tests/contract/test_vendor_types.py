"""Every event and response is validated against the types of the vendors' own packages, without unknown members."""

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

import anthropic
import httpx2
import openai
import pydantic
import pytest
import pytest_asyncio

from dragoman import dialects
from support.check_each import check_each_async
from support.gateway import DEADLINE_S
from support.scenarios import DIED, QUESTION, SCENARIOS, SCHEMAS, play
from support.scripted_backend import IMPATIENT, served
from support.vendor_types import checked, frames, types_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

USER: Final = [{"role": "user", "content": QUESTION}]
EXTRA: Final = {"openai_chat": {"reasoning_content"}, "openai_responses": {"store"}, "anthropic_messages": set[str]()}
"""Members beyond the types: reasoning as open-source servers send it, and a field of OpenAI's own API."""
ASKED: Final[dict[str, dict[str, Any]]] = {
    "openai_chat": {
        "messages": USER,
        "tools": [{"type": "function", "function": {"name": n, "parameters": s}} for n, s in SCHEMAS.items()],
        "stream_options": {"include_usage": True},
    },
    "openai_responses": {
        "input": QUESTION,
        "tools": [{"type": "function", "name": n, "parameters": s} for n, s in SCHEMAS.items()],
    },
    "anthropic_messages": {
        "messages": USER,
        "max_tokens": 99,
        "tools": [{"name": n, "input_schema": s} for n, s in SCHEMAS.items()],
    },
}
WHOLE_STREAMS: Final = [name for name in SCENARIOS if name != "broken"]
ALL = pytest.mark.parametrize("dialect", sorted(dialects.names()))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with served(play, names=list(SCENARIOS), **IMPATIENT) as s, s.client() as client:
        yield client


async def answer(http: httpx2.AsyncClient, dialect: str, scenario: str, stream: bool) -> httpx2.Response:
    asked = {"model": scenario, "stream": stream, **ASKED[dialect]}
    if not stream:
        asked.pop("stream_options", None)
    return await http.post(dialects.get(dialect).path, json=asked, timeout=DEADLINE_S)


@ALL
async def test_stream_events_match_vendor_types(
    dialect: str, http: httpx2.AsyncClient, subtests: pytest.Subtests
) -> None:
    await check_each_async(subtests, SCENARIOS, partial(check_stream, http, dialect))


async def check_stream(http: httpx2.AsyncClient, dialect: str, scenario: str) -> None:
    answered = await answer(http, dialect, scenario, stream=True)
    assert answered.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = list(frames(answered.text))
    failed = scenario == "broken"
    if dialect == "openai_chat":
        assert events.pop() == ("", "[DONE]")
    if failed and dialect != "openai_responses":
        name, told = events.pop()
        assert error_message(dialect, name, told) == DIED
    values = [checked(types_of(dialect)[0], data, EXTRA[dialect]) for _, data in events]
    if dialect == "openai_chat":
        assert not any(name for name, _ in events)
        assert len({(value.id, value.created, value.model) for value in values}) == 1
        return
    assert [name for name, _ in events] == [value.type for value in values]
    if dialect == "openai_responses":
        assert [value.sequence_number for value in values] == list(range(len(values)))
        assert values[-1].type == {"cut": "response.incomplete", "broken": "response.failed"}.get(
            scenario, "response.completed"
        )
    elif not failed:
        assert values[-1].type == "message_stop"


def error_message(dialect: str, name: str, data: str) -> str:
    """The message of the error that ends a stream."""
    if dialect == "openai_chat":
        assert set(json.loads(data)) == {"error"}
        error = openai.types.ErrorObject.model_validate_json(json.dumps(json.loads(data)["error"]))
        assert not name
        return error.message
    assert name == "error"
    return anthropic.types.ErrorResponse.model_validate({"request_id": None, **json.loads(data)}).error.message


@ALL
async def test_complete_response_matches_vendor_types(
    dialect: str, http: httpx2.AsyncClient, subtests: pytest.Subtests
) -> None:
    await check_each_async(subtests, WHOLE_STREAMS, partial(check_complete_response, http, dialect))


async def check_complete_response(http: httpx2.AsyncClient, dialect: str, scenario: str) -> None:
    answered = await answer(http, dialect, scenario, stream=False)
    assert answered.status_code == 200
    assert checked(types_of(dialect)[1], answered.text, EXTRA[dialect]).model == scenario


async def test_validation_finds_unknown_events_and_missing_fields() -> None:
    event = (
        '{"type":"response.output_text.done","item_id":"a","output_index":0,"content_index":0,"logprobs":[],"text":""'
    )
    checked(types_of("openai_responses")[0], event + ',"sequence_number":3}', set())
    for wrong in (event + "}", event.replace("text.done", "text.over") + ',"sequence_number":3}'):
        with pytest.raises(pydantic.ValidationError):
            checked(types_of("openai_responses")[0], wrong, set())
    with pytest.raises(AssertionError):
        checked(types_of("openai_responses")[0], event + ',"sequence_number":3,"made_up":1}', set())


async def events_of(http: httpx2.AsyncClient, dialect: str, scenario: str) -> list[Any]:
    answered = await answer(http, dialect, scenario, stream=True)
    return [json.loads(data) for _, data in frames(answered.text) if data != "[DONE]"]


async def test_chat_chunks_have_role_call_head_finish_and_usage_in_order(
    http: httpx2.AsyncClient, subtests: pytest.Subtests
) -> None:
    """The role is first, a call's head is sent once before its arguments, the finish is separate, the usage is last."""
    await check_each_async(subtests, WHOLE_STREAMS, partial(check_chat_chunks, http))


async def check_chat_chunks(http: httpx2.AsyncClient, scenario: str) -> None:
    *chunks, usage = await events_of(http, "openai_chat", scenario)
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 102)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert choices[-1]["delta"] == {}
    assert [bool(choice["finish_reason"]) for choice in choices] == [False] * (len(choices) - 1) + [True]
    pieces = [call for choice in choices for call in choice["delta"].get("tool_calls", [])]
    heads = [call for call in pieces if "id" in call]
    assert [call["index"] for call in heads] == list(range(len(heads)))
    assert all(set(call) == {"index", "id", "type", "function"} for call in heads)
    assert all(set(call) == {"index", "function"} for call in pieces if call not in heads)
    assert all(set(call["function"]) == {"arguments"} for call in pieces if call not in heads)


async def test_message_blocks_are_numbered_empty_at_start_and_sequential(
    http: httpx2.AsyncClient, subtests: pytest.Subtests
) -> None:
    """Each has its own index, counted from 0, begins empty, and ends before the next begins."""
    await check_each_async(subtests, WHOLE_STREAMS, partial(check_message_blocks, http))


async def check_message_blocks(http: httpx2.AsyncClient, scenario: str) -> None:
    first, *middle, delta, last = await events_of(http, "anthropic_messages", scenario)
    message = first["message"]
    assert (first["type"], message["content"], message["usage"]["input_tokens"]) == ("message_start", [], 90)
    assert (delta["type"], delta["usage"]["output_tokens"], last) == ("message_delta", 12, {"type": "message_stop"})
    number = -1
    is_open = False
    for event in middle:
        match event["type"]:
            case "content_block_start":
                assert not is_open
                number, is_open = number + 1, True
                block = event["content_block"]
                assert {"text": "", "thinking": "", "tool_use": {}}[block["type"]] == block.get(
                    "input", block.get(block["type"])
                )
            case "content_block_stop":
                assert is_open
                is_open = False
            case kind:
                assert (kind, is_open) == ("content_block_delta", True)
        assert event["index"] == number
    assert not is_open


async def test_response_items_have_ids_and_equal_the_output(
    http: httpx2.AsyncClient, subtests: pytest.Subtests
) -> None:
    """Each has an id, which all its events contain; the finished items are the response's output."""
    await check_each_async(subtests, WHOLE_STREAMS, partial(check_response_items, http))


async def check_response_items(http: httpx2.AsyncClient, scenario: str) -> None:
    first, *middle, last = await events_of(http, "openai_responses", scenario)
    assert (first["type"], first["response"]["output"]) == ("response.created", [])
    ids: list[str] = []
    done = []
    for event in middle[1:]:
        match event["type"]:
            case "response.output_item.added":
                ids.append(event["item"]["id"])
            case "response.output_item.done":
                done.append(event["item"])
                assert event["item"]["id"] == ids[-1]
            case _:
                assert event["item_id"] == ids[-1]
        assert event["output_index"] == len(ids) - 1
    assert len(set(ids)) == len(ids)
    output = last["response"]["output"]
    assert [item["id"] for item in output] == ids
    assert output == done
    assert any(item["status"] == "incomplete" for item in done) == (scenario == "cut")
    assert last["response"]["usage"]["total_tokens"] == 102
