"""The Responses API with the openai package over HTTP: requests, responses and rejected parameters."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import openai
import pydantic
import pytest

from dragoman.core import messages as v
from dragoman.core.errors import BackendUnavailableError, QueueFullError
from dragoman.core.events import (
    AnyEvent,
    Failure,
    Finish,
    ReasoningDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
    UsageUpdate,
)
from support.gateway import DEADLINE_S
from support.scripted_backend import Script, Scripted, plain, served, silent_then_plain

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
SHELL: Any = {"type": "custom", "name": "shell", "description": "Runs a line."}
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@contextlib.asynccontextmanager
async def client(script: Script, **settings: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    async with (
        served(script, **settings) as s,
        openai.AsyncOpenAI(api_key="k", base_url=f"{s.url}/v1", max_retries=0, timeout=DEADLINE_S) as sdk,
    ):
        yield sdk


async def ask(sdk: openai.AsyncOpenAI, stream: bool, **settings: Any) -> Any:
    """Returns the response; a streamed one is assembled by the SDK."""
    settings = {"model": "m", "input": "Weather in Bern?", **settings}
    if not stream:
        return await sdk.responses.create(**settings)
    async with sdk.responses.stream(**settings) as events:
        return await events.get_final_response()


async def one_of_each(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
    """Returns reasoning, text and two calls; once there are results, their text."""
    yield Start("", "", 0)
    results = [p for m in request.messages for p in m.parts if isinstance(p, v.ToolResult)]
    if results:
        yield TextDelta(" ".join(part.text for r in results for part in r.parts if isinstance(part, v.Text)))
    else:
        yield ReasoningDelta("hm", "sig")
        yield TextDelta("Let me ")
        yield TextDelta("look.")
        for index, (name, arguments) in enumerate((("weather", '{"city":"Bern"}'), ("shell", '{"input":"ls -l"}'))):
            yield ToolCallStart(index, f"call_{index}", name)
            yield ToolCallDelta(index, arguments[:5])
            yield ToolCallDelta(index, arguments[5:])
            yield ToolCallEnd(index)
    yield UsageUpdate(v.Usage(9, 4, 3, 2))
    yield Finish("stop")


@STREAMED
async def test_responses_tool_call_round_trip(stream: bool) -> None:
    async with client(one_of_each) as sdk:
        asked = await ask(sdk, stream, tools=[WEATHER, SHELL])
        assert [item.type for item in asked.output] == ["reasoning", "message", "function_call", "custom_tool_call"]
        thoughts, _, call, custom = asked.output
        assert (thoughts.summary[0].text, thoughts.encrypted_content) == ("hm", "sig")
        assert asked.output_text == "Let me look."
        assert (call.name, call.call_id, call.arguments, call.status) == (
            "weather",
            "call_0",
            '{"city":"Bern"}',
            "completed",
        )
        assert (custom.name, custom.call_id, custom.input) == ("shell", "call_1", "ls -l")
        assert (asked.status, asked.usage.total_tokens, asked.usage.input_tokens_details.cached_tokens) == (
            "completed",
            13,
            3,
        )
        said = [{"role": "user", "content": "Weather in Bern?"}, *(item.to_dict() for item in asked.output)]
        results = [
            {"type": "function_call_output", "call_id": "call_0", "output": "18 degrees"},
            {"type": "custom_tool_call_output", "call_id": "call_1", "output": "a.txt"},
        ]
        told = await ask(sdk, stream, tools=[WEATHER, SHELL], input=[*said, *results])
        assert told.output_text == "18 degrees a.txt"


async def test_events_arrive_while_model_generates() -> None:
    async def waiting(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        yield Start("", "", 0)
        yield TextDelta("Hello")
        await backend.go.wait()
        yield Finish("stop")

    async with served(waiting) as s, openai.AsyncOpenAI(api_key="k", base_url=f"{s.url}/v1", max_retries=0) as sdk:
        kinds = []
        async with sdk.responses.stream(model="m", input="hi") as events:
            async for event in events:
                kinds.append(event.type)
                if event.type == "response.output_text.delta":
                    assert event.snapshot == "Hello"
                    s.backend.go.set()
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]


@STREAMED
async def test_sdk_parses_structured_output_and_arguments(stream: bool) -> None:
    class Weather(pydantic.BaseModel):
        city: str

    async def script(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        yield Start("", "", 0)
        if request.tools:
            yield ToolCallStart(0, "call_0", request.tools[0].name)
            yield ToolCallDelta(0, '{"city":"Bern"}')
            yield ToolCallEnd(0)
        else:
            assert '"city"' in request.response_schema
            yield TextDelta('{"city":"Bern"}')
        yield Finish("stop")

    async with client(script) as sdk:
        if stream:
            form = await ask(sdk, True, text_format=Weather)
            called = await ask(sdk, True, tools=[openai.pydantic_function_tool(Weather)])
        else:
            form = await sdk.responses.parse(model="m", input="hi", text_format=Weather)
            called = await sdk.responses.parse(model="m", input="hi", tools=[openai.pydantic_function_tool(Weather)])
        assert form.output_parsed == Weather(city="Bern")
        assert called.output[0].parsed_arguments == Weather(city="Bern")


async def test_truncated_call_is_returned_as_text() -> None:
    async def script(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        assert request.max_tokens == 5
        yield Start("", "", 0)
        yield ToolCallStart(0, "call_0", "weather")
        yield ToolCallDelta(0, '{"city":"B')
        yield ToolCallIncomplete(0, "")
        yield Finish("length")

    settings: Any = {"model": "m", "input": "hi", "tools": [WEATHER], "max_output_tokens": 5}
    async with client(script) as sdk:
        whole = await sdk.responses.create(**settings)
        sent = [event async for event in await sdk.responses.create(**settings, stream=True)]
    assert "response.function_call_arguments.delta" not in [event.type for event in sent]
    for response in (whole, sent[-1].response):
        assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert [item.type for item in response.output] == ["message"]
        assert response.output_text == 'weather {"city":"B'


@pytest.mark.parametrize(
    "asked",
    [
        {"conversation": "conv_1"},
        {"background": True},
        {"prompt": {"id": "pmpt_1"}},
    ],
    ids=lambda asked: next(iter(asked)),
)
async def test_unsupported_stateful_parameter_is_rejected(asked: Any) -> None:
    async with client(plain) as sdk:
        with pytest.raises(openai.BadRequestError) as refused:
            await ask(sdk, False, **asked)
    assert refused.value.param == next(iter(asked))
    assert refused.value.code == "unsupported_parameter"


@STREAMED
async def test_errors_raise_sdk_exceptions(stream: bool) -> None:
    async def busy(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        raise QueueFullError("all places are taken", retry_after_s=7)
        yield Start("", "", 0)

    async with client(busy) as sdk:
        with pytest.raises(openai.RateLimitError, match="all places are taken"):
            await ask(sdk, stream)
        with pytest.raises(openai.NotFoundError, match="unknown model"):
            await ask(sdk, stream, model="none")


async def test_failure_mid_stream_ends_with_failed_response() -> None:
    async def script(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        yield Start("", "", 0)
        yield TextDelta("Hel")
        yield Failure(BackendUnavailableError("the engine died"))

    async with client(script) as sdk:
        sent = [event async for event in await sdk.responses.create(model="m", input="hi", stream=True)]
    last = sent[-1]
    assert last.type == "response.failed"
    assert last.response.error
    assert (last.response.error.code, last.response.error.message) == ("server_error", "the engine died")
    assert last.response.output_text == "Hel"


async def test_failure_after_pings_raises_sdk_error() -> None:
    async def script(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        await backend.go.wait()
        raise BackendUnavailableError("the engine died")
        yield Start("", "", 0)

    async with (
        served(script, max_status_delay_s=0.01, keepalive_interval_s=0.01) as s,
        openai.AsyncOpenAI(api_key="k", base_url=f"{s.url}/v1", max_retries=0) as sdk,
    ):
        events = await sdk.responses.create(model="m", input="hi", stream=True)
        s.backend.go.set()  # the status line was already sent with a ping
        with pytest.raises(openai.APIError, match="the engine died"):
            async for _ in events:
                pass


async def test_pings_are_ignored_by_sdk() -> None:
    async with (
        served(silent_then_plain, max_status_delay_s=0.01, keepalive_interval_s=0.01) as s,
        openai.AsyncOpenAI(api_key="k", base_url=f"{s.url}/v1", max_retries=0) as sdk,
    ):
        events = await sdk.responses.create(model="m", input="hi", stream=True)
        s.backend.go.set()
        kinds = [event.type async for event in events]
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"


async def test_websocket_upgrade_is_rejected_with_hint() -> None:
    asked = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "eA==",
    }
    async with served(plain) as s, s.client() as http:
        answer = await http.get("/v1/responses", headers=asked)
    assert (answer.status_code, answer.headers["upgrade"]) == (426, "HTTP/1.1")
    assert answer.json()["error"]["message"] == "no WebSocket is served at '/v1/responses'; send POST"
