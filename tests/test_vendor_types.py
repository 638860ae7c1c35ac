"""Every event and every reply against the types in the vendors' own packages: nothing missing, nothing made up."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import anthropic
import httpx2
import openai
import pydantic
import pytest
import pytest_asyncio

from dragoman import dialects
from gateway import DEADLINE_S
from scenarios import DIED, QUESTION, SCENARIOS, SCHEMAS, play
from scripted import IMPATIENT, PINGS, served

pytestmark = pytest.mark.asyncio(loop_scope="module")

USER: Final = [{"role": "user", "content": QUESTION}]
TYPES: Final[dict[str, tuple[Any, Any]]] = {
    name: (pydantic.TypeAdapter(event), pydantic.TypeAdapter(whole))
    for name, event, whole in (
        ("openai_chat", openai.types.chat.ChatCompletionChunk, openai.types.chat.ChatCompletion),
        ("openai_responses", openai.types.responses.ResponseStreamEvent, openai.types.responses.Response),
        ("anthropic_messages", anthropic.types.RawMessageStreamEvent, anthropic.types.Message),
    )
}
BEYOND: Final = {"openai_chat": {"reasoning_content"}, "openai_responses": {"store"}, "anthropic_messages": set[str]()}
"""What goes beyond the types: thoughts, which open servers send so, and a field that OpenAI's own API has."""
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
ALL = pytest.mark.parametrize("dialect", sorted(TYPES))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with served(play, names=list(SCENARIOS), **IMPATIENT) as s, s.client() as client:
        yield client


async def answer(http: httpx2.AsyncClient, dialect: str, scenario: str, stream: bool) -> httpx2.Response:
    asked = {"model": scenario, "stream": stream, **ASKED[dialect]}
    if not stream:
        asked.pop("stream_options", None)
    return await http.post(dialects.get(dialect).path, json=asked, timeout=DEADLINE_S)


def frames(body: str) -> Iterator[tuple[str, str]]:
    """Name and data of each event; a name is given where the API has names."""
    assert body.endswith("\n\n")
    for frame in body.removesuffix("\n\n").split("\n\n"):
        if f"{frame}\n\n".encode() in PINGS:
            continue
        fields = [line.split(": ", 1) for line in frame.split("\n")]
        assert [name for name, _ in fields] in (["data"], ["event", "data"])
        yield (fields[0][1] if len(fields) == 2 else "", fields[-1][1])


def unknown(value: object) -> Iterator[str]:
    """Fields that no type has a name for."""
    if isinstance(value, pydantic.BaseModel):
        yield from value.model_extra or ()
        for name in type(value).model_fields:
            yield from unknown(getattr(value, name))
    elif isinstance(value, list):
        for each in value:
            yield from unknown(each)


def checked(kind: Any, data: str, beyond: set[str]) -> Any:
    """The data as that type."""
    value = kind.validate_json(data, strict=True)
    assert set(unknown(value)) <= beyond
    return value


@ALL
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_every_event_of_a_stream(dialect: str, scenario: str, http: httpx2.AsyncClient) -> None:
    answered = await answer(http, dialect, scenario, stream=True)
    assert answered.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = list(frames(answered.text))
    failed = scenario == "broken"
    if dialect == "openai_chat":
        assert events.pop() == ("", "[DONE]")
    if failed and dialect != "openai_responses":
        name, told = events.pop()
        assert told_by(dialect, name, told) == DIED
    values = [checked(TYPES[dialect][0], data, BEYOND[dialect]) for _, data in events]
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


def told_by(dialect: str, name: str, data: str) -> str:
    """What the error in the place of a stream's end says."""
    if dialect == "openai_chat":
        assert set(json.loads(data)) == {"error"}
        error = openai.types.ErrorObject.model_validate_json(json.dumps(json.loads(data)["error"]))
        assert not name
        return error.message
    assert name == "error"
    return anthropic.types.ErrorResponse.model_validate({"request_id": None, **json.loads(data)}).error.message


@ALL
@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name != "broken"])
async def test_every_whole_reply(dialect: str, scenario: str, http: httpx2.AsyncClient) -> None:
    answered = await answer(http, dialect, scenario, stream=False)
    assert answered.status_code == 200
    assert checked(TYPES[dialect][1], answered.text, BEYOND[dialect]).model == scenario


async def test_an_unknown_event_or_a_missing_field_would_be_seen() -> None:
    event = (
        '{"type":"response.output_text.done","item_id":"a","output_index":0,"content_index":0,"logprobs":[],"text":""'
    )
    checked(TYPES["openai_responses"][0], event + ',"sequence_number":3}', set())
    for wrong in (event + "}", event.replace("text.done", "text.over") + ',"sequence_number":3}'):
        with pytest.raises(pydantic.ValidationError):
            checked(TYPES["openai_responses"][0], wrong, set())
    with pytest.raises(AssertionError):
        checked(TYPES["openai_responses"][0], event + ',"sequence_number":3,"made_up":1}', set())
