"""Upstream streams that deviate from their API's documentation, and what clients of each API get."""

import json
from collections.abc import Callable, Iterator
from contextlib import aclosing
from functools import cache
from typing import Any, NamedTuple

import anthropic
import pydantic

from dragoman import dialects
from dragoman.core.backend import Backend, EventStream, ExchangeContext, ServedModel
from dragoman.core.collect import Collector
from dragoman.core.errors import DragomanError
from dragoman.core.messages import Message, Request, Text, Tool
from dragoman.gateway.gateway import Gateway
from support.events import all_events

WORDS = "Reading it."


ARGUMENTS = '{"path": "/tmp/x"}'


TOOL = Tool("read", parameters='{"type":"object","properties":{"path":{"type":"string"}}}')


def wide(value: Any) -> str:
    """JSON as written by Python, with `NaN` and lone surrogates."""
    return json.dumps(value)


def chat(*frames: Any, done: str = "data: [DONE]\n\n") -> str:
    return "".join(f"data: {f if isinstance(f, str) else wide({'id': 'x', **f})}\n\n" for f in frames) + done


def delta(said: Any, finish: Any = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": said, "finish_reason": finish, **more}]}


def call(id: Any = "call_1", arguments: Any = ARGUMENTS, index: Any = 0, name: Any = "read") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [given(index=index, id=id, type="function", function=given(**function))]}


def given(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not ...}


def said(**message: Any) -> str:
    """A complete response body."""
    finish = message.pop("finish_reason", "tool_calls")
    message = {"role": "assistant", "content": WORDS, **call(), **message}
    return wide({"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": finish}]})


def messages(*frames: Any, names: bool = True) -> str:
    told = ((f["type"], f) for f in frames)
    return "".join(f"{f'event: {name}' if names else ': x'}\ndata: {wide(frame)}\n\n" for name, frame in told)


def over(reason: Any = "tool_use", usage: Any = None) -> list[dict[str, Any]]:
    told = {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
    return [told, {"type": "message_stop"}]


def message(*content: Any, reason: Any = "tool_use", **more: Any) -> str:
    return wide({"type": "message", "content": list(content), "stop_reason": reason, **more})


def done(state: str = "completed", **more: Any) -> dict[str, Any]:
    return {"type": f"response.{state}", "response": {"id": "resp_x", "status": state, **more}}


def response(*output: Any, **more: Any) -> str:
    return wide({"id": "resp_x", "object": "response", "status": "completed", "output": list(output), **more})


class Far(Backend):
    """A server of an API with the same response to every request."""

    def __init__(self, api: str, said: bytes) -> None:
        self._api, self._said = api, said

    def models(self) -> list[ServedModel]:
        return [ServedModel("m")]

    async def generate(self, request: Request, context: ExchangeContext) -> EventStream:
        reader = dialects.get(self._api).reader(request, context)
        yield [*reader.feed(self._said), *reader.close()]

    def health(self) -> dict[str, object]:
        return {"backend": "far", "ready": True}


class Got(NamedTuple):
    collector: Collector
    stream: bytes
    error: DragomanError | None
    body: bytes = b""
    """The response without streaming."""


async def answered(api: str, front: str, said: bytes, *, stream: bool) -> Got:
    request = Request(
        "m", (Message("user", (Text("Read it."),)),), (TOOL,), stream=stream, stream_usage=True, dialect=front
    )
    writer, collector = dialects.get(front).writer(request), Collector(front)
    sent = b""
    gateway = Gateway([Far(api, said)])  # type: ignore[list-item]
    try:
        async with aclosing(gateway.generate(request, ExchangeContext("1", 7, lambda: "id1"))) as events:
            for event in await all_events(events):
                collector.feed(event)
                sent += writer.feed(event)
    except DragomanError as error:
        return Got(collector, sent, error)
    body = b"" if stream or collector.error else dialects.get(front).write_reply(collector.reply(), request)
    return Got(collector, sent, collector.error, body)


@cache
def validates(api: str) -> Callable[[Any], Any]:
    """Returns what reads a frame of a stream into the vendor's type, or raises."""
    match api:
        case "openai_chat":
            from openai.types.chat import ChatCompletionChunk

            return ChatCompletionChunk.model_validate
        case "anthropic_messages":
            return pydantic.TypeAdapter[Any](anthropic.types.RawMessageStreamEvent).validate_python
        case _:
            from openai.types.responses import ResponseStreamEvent

            return pydantic.TypeAdapter[Any](ResponseStreamEvent).validate_python


def frames(stream: bytes) -> Iterator[Any]:
    for line in stream.decode().splitlines():
        data = line.removeprefix("data: ")
        if line.startswith("data: {") and not data.startswith(('{"error"', '{"type":"error"')):
            yield json.loads(data)
