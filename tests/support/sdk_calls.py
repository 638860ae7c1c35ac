"""The request functions of the vendors' Python SDKs, and their responses in an API-independent form."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import anthropic
import openai
import pydantic

from support.scenarios import QUESTION, SCHEMAS, Said

Ask: TypeAlias = Callable[..., Any]
USER: Final[Any] = {"role": "user", "content": QUESTION}
USAGE: Final[Any] = {"include_usage": True}
BROKEN: Final = 'get_weather {"city":"Be'
"""An incomplete call, as text."""


class GetWeather(pydantic.BaseModel):
    city: str


class WriteNote(pydantic.BaseModel):
    text: str


class Ping(pydantic.BaseModel):
    pass


MODELS = {"get_weather": GetWeather, "write_note": WriteNote, "ping": Ping}


def functions() -> Any:
    """The tools as the package makes them of the models."""
    return [openai.pydantic_function_tool(model, name=name) for name, model in MODELS.items()]


@dataclass(frozen=True)
class Sdk:
    """A package's two clients, shared, since creating one takes longer than a test."""

    blocking: Any
    waiting: Any

    async def run(self, ask: Ask, **asked: Any) -> Any:
        if inspect.iscoroutinefunction(ask):
            return await ask(self.waiting, **asked)
        return await asyncio.to_thread(ask, self.blocking, **asked)


def parsed(call: Any, arguments: str) -> dict[str, str]:
    """The parsed arguments; asserts that the SDK's own parsing gives the same."""
    read: dict[str, str] = json.loads(arguments)
    if (model := getattr(call, "parsed_arguments", None)) is not None:
        assert isinstance(model, MODELS[call.name])
        assert model.model_dump() == read
    return read


# Chat Completions


def chat_create(sdk: openai.OpenAI, **asked: Any) -> Any:
    return sdk.chat.completions.create(**asked)


def chat_chunks(sdk: openai.OpenAI, **asked: Any) -> Any:
    from openai.lib.streaming.chat import ChatCompletionStreamState

    state: Any = ChatCompletionStreamState()
    with sdk.chat.completions.create(**asked, stream=True, stream_options=USAGE) as chunks:
        for chunk in chunks:
            state.handle_chunk(chunk)
    return state.get_final_completion()


def chat_stream(sdk: openai.OpenAI, **asked: Any) -> Any:
    with sdk.chat.completions.stream(**asked, stream_options=USAGE) as events:
        return events.get_final_completion()


def chat_parse(sdk: openai.OpenAI, **asked: Any) -> Any:
    return sdk.chat.completions.parse(**asked)


async def chat_create_async(sdk: openai.AsyncOpenAI, **asked: Any) -> Any:
    return await sdk.chat.completions.create(**asked)


async def chat_stream_async(sdk: openai.AsyncOpenAI, **asked: Any) -> Any:
    async with sdk.chat.completions.stream(**asked, stream_options=USAGE) as events:
        return await events.get_final_completion()


def of_chat(completion: Any) -> tuple[Said, str]:
    (choice,) = completion.choices
    message, cut = choice.message, choice.finish_reason == "length"
    assert not (cut and message.tool_calls)
    assert completion.usage.total_tokens == 102 if completion.usage else cut  # the helper stops before usage arrives
    functions = [] if cut else [(c.id, c.function) for c in message.tool_calls or ()]
    calls = [(id, f.name, parsed(f, f.arguments)) for id, f in functions]
    thoughts = getattr(message, "reasoning_content", None) or ""
    return Said(message.content or "", thoughts, message.refusal or "", calls), choice.finish_reason


def chat_further(completion: Any, results: dict[str, str]) -> list[Any]:
    said = [{"role": "tool", "tool_call_id": id, "content": text} for id, text in results.items()]
    return [completion.choices[0].message, *said]


# Responses


def responses_create(sdk: openai.OpenAI, **asked: Any) -> Any:
    return sdk.responses.create(**asked)


def responses_events(sdk: openai.OpenAI, **asked: Any) -> Any:
    with sdk.responses.create(**asked, stream=True) as events:
        last: Any = list(events)[-1]
    return last.response


def responses_stream(sdk: openai.OpenAI, **asked: Any) -> Any:
    with sdk.responses.stream(**asked) as events:
        last = list(events)[-1]
        return events.get_final_response() if last.type == "response.completed" else last.response  # type: ignore[union-attr]


def responses_parse(sdk: openai.OpenAI, **asked: Any) -> Any:
    return sdk.responses.parse(**asked)


async def responses_create_async(sdk: openai.AsyncOpenAI, **asked: Any) -> Any:
    return await sdk.responses.create(**asked)


async def responses_stream_async(sdk: openai.AsyncOpenAI, **asked: Any) -> Any:
    async with sdk.responses.stream(**asked) as events:
        last: Any = [event async for event in events][-1]
    return last.response


def of_response(response: Any) -> tuple[Said, str]:
    if response.error:
        raise openai.APIError(response.error.message, None, body=None)  # type: ignore[arg-type]
    said = Said()
    for item in response.output:
        match item.type:
            case "message":
                said.text += "".join(part.text for part in item.content if part.type == "output_text")
                said.refusal += "".join(part.refusal for part in item.content if part.type == "refusal")
            case "reasoning":
                said.thoughts += "".join(part.text for part in item.summary)
            case "function_call" if item.status == "completed":
                said.calls.append((item.call_id, item.name, parsed(item, item.arguments)))
    assert response.usage.total_tokens == 102
    return said, response.incomplete_details.reason if response.incomplete_details else response.status


def response_further(response: Any, results: dict[str, str]) -> list[Any]:
    said = [{"type": "function_call_output", "call_id": id, "output": text} for id, text in results.items()]
    return [*response.output, *said]


# Messages


def messages_create(sdk: anthropic.Anthropic, **asked: Any) -> Any:
    return sdk.messages.create(**asked)


def messages_events(sdk: anthropic.Anthropic, **asked: Any) -> Any:
    """Assembles the message from the raw events."""
    message: Any = None
    given: dict[int, str] = {}
    with sdk.messages.create(**asked, stream=True) as events:
        for event in events:
            match event.type:
                case "message_start":
                    message = event.message
                case "content_block_start":
                    assert event.index == len(message.content)
                    message.content.append(event.content_block)
                case "content_block_delta":
                    block, delta = message.content[event.index], event.delta
                    match delta.type:
                        case "text_delta":
                            block.text += delta.text
                        case "thinking_delta":
                            block.thinking += delta.thinking
                        case "signature_delta":
                            block.signature += delta.signature
                        case "input_json_delta":
                            given[event.index] = given.get(event.index, "") + delta.partial_json
                case "message_delta":
                    message.stop_reason = event.delta.stop_reason
                    message.usage = event.usage
    for index, text in given.items():
        message.content[index].input = json.loads(text) if message.stop_reason != "max_tokens" else {"city": "Be"}
    return message


def messages_stream(sdk: anthropic.Anthropic, **asked: Any) -> Any:
    with sdk.messages.stream(**asked) as events:
        return events.get_final_message()


async def messages_create_async(sdk: anthropic.AsyncAnthropic, **asked: Any) -> Any:
    return await sdk.messages.create(**asked)


async def messages_stream_async(sdk: anthropic.AsyncAnthropic, **asked: Any) -> Any:
    async with sdk.messages.stream(**asked) as events:
        return await events.get_final_message()


def of_message(message: Any) -> tuple[Said, str]:
    said = Said()
    for block in message.content:
        match block.type:
            case "text" if message.stop_reason == "refusal":
                said.refusal += block.text
            case "text":
                said.text += block.text
            case "thinking":
                said.thoughts += block.thinking
            case "tool_use":
                said.calls.append((block.id, block.name, block.input))
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (60, 30, 12)
    return said, message.stop_reason


def message_further(message: Any, results: dict[str, str]) -> list[Any]:
    said = [{"type": "tool_result", "tool_use_id": id, "content": text} for id, text in results.items()]
    return [{"role": "assistant", "content": message.content}, {"role": "user", "content": said}]


# All of them


@dataclass(frozen=True)
class Api:
    package: str
    said: Callable[[Any], tuple[Said, str]]
    further: Callable[[Any, dict[str, str]], list[Any]]
    asks: Callable[[list[Any], Any], dict[str, Any]]
    tools: Any
    modes: Sequence[Ask]
    ends: tuple[str, str, str, str]
    """Finish reasons for text, calls, a refusal, and the token limit."""

    @property
    def error(self) -> type[Exception]:
        """What the package raises."""
        return openai.APIError if self.package == "openai" else anthropic.APIError


CHAT = Api(
    "openai",
    of_chat,
    chat_further,
    lambda said, tools: {"messages": said, "tools": tools},
    [{"type": "function", "function": {"name": n, "parameters": s}} for n, s in SCHEMAS.items()],
    (chat_create, chat_chunks, chat_stream, chat_parse, chat_create_async, chat_stream_async),
    ("stop", "tool_calls", "stop", "length"),
)
RESPONSES = Api(
    "openai",
    of_response,
    response_further,
    lambda said, tools: {"input": said, "tools": tools},
    [{"type": "function", "name": n, "parameters": s, "strict": False} for n, s in SCHEMAS.items()],
    (
        responses_create,
        responses_events,
        responses_stream,
        responses_parse,
        responses_create_async,
        responses_stream_async,
    ),
    ("completed", "completed", "completed", "max_output_tokens"),
)
MESSAGES = Api(
    "anthropic",
    of_message,
    message_further,
    lambda said, tools: {"messages": said, "tools": tools, "max_tokens": 99},
    [{"name": n, "input_schema": s} for n, s in SCHEMAS.items()],
    (messages_create, messages_events, messages_stream, messages_create_async, messages_stream_async),
    ("end_turn", "tool_use", "refusal", "max_tokens"),
)
PARSING = (chat_stream, chat_parse, chat_stream_async, responses_stream, responses_parse, responses_stream_async)
