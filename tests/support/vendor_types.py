"""Validates events and responses against the types of the vendors' own packages, without unknown members."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import anthropic
import pydantic

from support.scripted_backend import PINGS


def frames(body: str) -> Iterator[tuple[str, str]]:
    """Name and data of each event; the name is empty if the API has no event names."""
    assert body.endswith("\n\n")
    for frame in body.removesuffix("\n\n").split("\n\n"):
        if f"{frame}\n\n".encode() in PINGS or frame.startswith(":"):  # comments are no events
            continue
        fields = [line.split(": ", 1) for line in frame.split("\n")]
        assert [name for name, _ in fields] in (["data"], ["event", "data"])
        yield (fields[0][1] if len(fields) == 2 else "", fields[-1][1])


def unknown(value: object) -> Iterator[str]:
    """The members that no type declares."""
    if isinstance(value, pydantic.BaseModel):
        yield from value.model_extra or ()
        for name in type(value).model_fields:
            yield from unknown(getattr(value, name))
    elif isinstance(value, list):
        for each in value:
            yield from unknown(each)


@cache
def types_of(api: str) -> tuple[Any, Any]:
    """Of an event of a stream, and of a whole reply."""
    event: Any
    whole: Any
    match api:
        case "openai_chat":
            from openai.types.chat import ChatCompletion, ChatCompletionChunk

            event, whole = ChatCompletionChunk, ChatCompletion
        case "openai_responses":
            from openai.types.responses import Response, ResponseStreamEvent

            event, whole = ResponseStreamEvent, Response
        case _:
            event, whole = anthropic.types.RawMessageStreamEvent, anthropic.types.Message
    return pydantic.TypeAdapter(event), pydantic.TypeAdapter(whole)


def checked(kind: Any, data: str, beyond: set[str]) -> Any:
    """The data validated as that type."""
    value = kind.validate_json(data, strict=True)
    assert set(unknown(value)) <= beyond
    return value
