"""The tool round trip for every real server: a call, its result, a response; with the vendors' SDKs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import anthropic
import openai
from msgspec.structs import replace

from dragoman import dialects
from dragoman.core.messages import Message, Request, Sampling, Text, Tool, ToolCall, ToolResult
from support.sdk_calls import (
    chat_chunks,
    chat_create,
    messages_create,
    messages_stream,
    responses_create,
    responses_events,
)

PATIENCE_S: Final = 600.0
"""Timeout of a response: MLX on a busy CPU generates two tokens per second."""
SCHEMA: Final = json.dumps({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
WEATHER: Final = Tool("get_weather", "Weather in a city.", SCHEMA)
CITY: Final = "Paris"


def _asked(city: str) -> Message:
    return Message("user", (Text(f"What is the weather in {city}?"),))


def _told(call: ToolCall, told: str) -> tuple[Message, Message]:
    return Message("assistant", (call,)), Message("tool", (ToolResult(call.id, (Text(told),)),))


def _example(id: str, city: str, told: str) -> tuple[Message, ...]:
    call = ToolCall(id, "get_weather", json.dumps({"city": city}))
    return _asked(city), *_told(call, told), Message("assistant", (Text(f"{city}: {told}."),))


QUESTION: Final = Request(
    "",
    # A 135M model calls a tool only after examples: without one it writes prose, with two it makes the call.
    (
        *_example("call_a1", "Rome", "rain, 12 degrees"),
        *_example("call_a2", "Oslo", "snow, 1 degree"),
        _asked(CITY),
    ),
    (WEATHER,),
    max_tokens=60,
    sampling=Sampling(temperature=0),
)


SAID: Final = ToolCall("call_b1", "get_weather", json.dumps({"city": CITY}))


def answered(question: Request, call: ToolCall) -> Request:
    """The question, followed by this call and its result."""
    return replace(question, messages=(*question.messages, *_told(call, "sun, 20 degrees")))


@dataclass(frozen=True)
class Client:
    """A vendor's SDK for one API."""

    make: Callable[[str], Any]
    whole: Callable[..., Any]
    streamed: Callable[..., Any]
    read: Callable[[Any], tuple[str, list[ToolCall], str]]
    """Returns text, calls and the finish reason."""
    ends: tuple[str, str]
    """Finish reasons with calls and with text."""

    def ask(self, url: str, request: Request, api: str, stream: bool) -> tuple[str, list[ToolCall], str]:
        body = json.loads(dialects.get(api).write_request(request, request.model).body)
        # The anthropic package has no such argument since version 2; the API has it.
        body["extra_body"] = {"temperature": body.pop("temperature")}
        with self.make(url) as sdk:
            return self.read((self.streamed if stream else self.whole)(sdk, **body))


def _chat(completion: Any) -> tuple[str, list[ToolCall], str]:
    (choice,) = completion.choices
    calls = choice.message.tool_calls or ()
    made = [ToolCall(c.id, c.function.name, c.function.arguments) for c in calls]
    return choice.message.content or "", made, choice.finish_reason


def _response(response: Any) -> tuple[str, list[ToolCall], str]:
    calls = [item for item in response.output if item.type == "function_call"]
    made = [ToolCall(c.call_id, c.name, c.arguments) for c in calls]
    return response.output_text, made, response.status


def _message(message: Any) -> tuple[str, list[ToolCall], str]:
    calls = [block for block in message.content if block.type == "tool_use"]
    text = "".join(block.text for block in message.content if block.type == "text")
    return text, [ToolCall(c.id, c.name, json.dumps(c.input)) for c in calls], message.stop_reason


def _openai(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S)


def _anthropic(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=PATIENCE_S)


CLIENTS: Final = {
    "openai_chat": Client(_openai, chat_create, chat_chunks, _chat, ("tool_calls", "stop")),
    "openai_responses": Client(_openai, responses_create, responses_events, _response, ("completed", "completed")),
    "anthropic_messages": Client(_anthropic, messages_create, messages_stream, _message, ("tool_use", "end_turn")),
}


def round_trip(url: str, model: str, api: str, *, stream: bool) -> str:
    """Requests a call from the gateway, then a response with its result, and returns that text."""
    client = CLIENTS[api]
    question = replace(QUESTION, model=model)
    text, calls, end = client.ask(url, question, api, stream)
    assert [call.name for call in calls] == ["get_weather"], (text, calls)
    (call,) = calls
    assert json.loads(call.arguments) == {"city": CITY}
    assert call.id not in ("", "call_a1", "call_a2")
    assert (text, end) == ("", client.ends[0])
    text, calls, end = client.ask(url, answered(question, call), api, stream)
    assert (calls, end) == ([], client.ends[1]), text
    assert text.strip()
    assert "<tool_" not in text
    return text
