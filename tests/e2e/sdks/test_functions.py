"""The deprecated `functions` API with the openai package: calls, results, and at most one call."""

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import openai
import pytest

from dragoman.core import messages as v
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from support.gateway import DEADLINE_S
from support.scripted_backend import Scripted, served

FUNCTIONS: Any = [{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


async def calling_twice(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
    """Returns two calls; once there are results, the calls and results that the model gets."""
    yield Start("", "", 0)
    parts = [p for m in request.messages for p in m.parts]
    results = [
        (p.call_id, part.text)
        for p in parts
        if isinstance(p, v.ToolResult)
        for part in p.parts
        if isinstance(part, v.Text)
    ]
    if results:
        calls = [(p.id, p.name, p.arguments) for p in parts if isinstance(p, v.ToolCall)]
        yield TextDelta(json.dumps([calls, results]))
    for index, city in enumerate(() if results else ("Bern", "Rome")):
        yield ToolCallStart(index, f"call_{index}", "weather")
        yield ToolCallDelta(index, '{"city":')
        yield ToolCallDelta(index, f'"{city}"}}')
        yield ToolCallEnd(index)
    yield Finish("stop")


@contextlib.asynccontextmanager
async def client() -> AsyncIterator[openai.AsyncOpenAI]:
    async with (
        served(calling_twice) as s,
        openai.AsyncOpenAI(api_key="k", base_url=f"{s.url}/v1", max_retries=0, timeout=DEADLINE_S) as sdk,
    ):
        yield sdk


async def ask(sdk: openai.AsyncOpenAI, stream: bool, messages: list[Any]) -> Any:
    settings: Any = {"model": "m", "messages": messages, "functions": FUNCTIONS}
    if not stream:
        return (await sdk.chat.completions.create(**settings)).choices[0]
    async with sdk.chat.completions.stream(**settings) as events:
        return (await events.get_final_completion()).choices[0]


@STREAMED
async def test_legacy_function_call_round_trip(stream: bool) -> None:
    asked = [{"role": "user", "content": "Weather in Bern?"}]
    async with client() as sdk:
        called = await ask(sdk, stream, asked)
        assert called.finish_reason == "function_call"
        assert called.message.function_call.to_dict() == {"name": "weather", "arguments": '{"city":"Bern"}'}
        assert not called.message.tool_calls
        past = {"role": "assistant", "content": None, "function_call": called.message.function_call.to_dict()}
        result = {"role": "function", "name": "weather", "content": "18 degrees"}
        told = await ask(sdk, stream, [*asked, past, result])
    assert told.finish_reason == "stop"
    assert json.loads(told.message.content) == [
        [["function_1", "weather", '{"city":"Bern"}']],
        [["function_1", "18 degrees"]],
    ]
