"""A real llama.cpp server whose chat template does not support tools, in prompt mode: tool round trips.

SmolLM2's chat template has no tools, so the server would drop them silently.
"""

import json
import logging
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from dragoman.backends.http.model_modes import ModelMode
from dragoman.core.messages import Message, Request, Sampling, Text, Tool, ToolCall, ToolChoice, ToolResult
from support.servers.real import llama_server
from support.text_upstream import FRONTS, ask, gateway

pytestmark = pytest.mark.model

SCHEMA = '{"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]}'
WEATHER = Tool("get_weather", "Get the weather in a city.", SCHEMA)
QUESTION = Message("user", (Text("What is the weather in Paris?"),))
ASKED = Request(
    "m",
    (QUESTION,),
    (WEATHER,),
    tool_choice=ToolChoice("named", "get_weather"),
    sampling=Sampling(temperature=0),
    max_tokens=60,
    stream_usage=True,
)
WAYS = {
    "prompt over chat": {"tool_mode": "prompt"},
    "prompt over completions": {"tool_mode": "prompt", "endpoint": "completions"},
}


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    with llama_server() as url:
        yield url


def cases() -> Iterator[object]:
    """Of each way, the suite runs one streamed and one complete round trip, each over another API."""
    for number, way in enumerate(WAYS):
        for at, front in enumerate(FRONTS):
            for stream in (True, False):
                marks = () if at == (number + stream) % len(FRONTS) else pytest.mark.every
                yield pytest.param(
                    way, front, stream, id=f"{way}-{front}-{'streamed' if stream else 'whole'}", marks=marks
                )


@pytest.mark.parametrize(("way", "front", "stream"), list(cases()))
async def test_prompt_mode_tool_round_trip_on_llama_server(way: str, front: str, stream: bool, llama: str) -> None:
    async with gateway(llama, provider="llama_cpp", **WAYS[way]) as (url, _):
        asked = replace(ASKED, stream=stream)
        first = await ask(url, front, asked)
        (call,) = (part for part in first.reply.parts if isinstance(part, ToolCall))
        assert (call.name, first.calls[0][1].keys(), first.reply.finish_reason) == (
            "get_weather",
            {"city"},
            "tool_calls",
        )
        assert first.reply.usage.input_tokens > 100
        assert "constraint_not_applied" not in first.warnings
        result = Message("tool", (ToolResult(call.id, (Text("18 degrees, sunny"),)),))
        said = replace(
            asked, messages=(QUESTION, Message("assistant", (call,)), result), tool_choice=ToolChoice("none")
        )
        second = await ask(url, front, said)
    assert second.text.strip()
    assert second.calls == []
    assert second.reply.finish_reason in ("stop", "length")


async def test_structured_output_over_completions_endpoint(llama: str) -> None:
    schema = '{"type":"object","properties":{"color":{"type":"string","enum":["red","blue"]}},"required":["color"]}'
    asked = replace(ASKED, tools=(), tool_choice=ToolChoice(), response_schema=schema)
    async with gateway(llama, provider="llama_cpp", endpoint="completions") as (url, _):
        answer = await ask(url, "openai_chat", asked)
    assert json.loads(answer.text)["color"] in ("red", "blue")


async def test_completions_endpoint_reports_usage_and_stops(llama: str) -> None:
    asked = replace(ASKED, tools=(), tool_choice=ToolChoice(), max_tokens=8)
    async with gateway(llama, endpoint="completions") as (url, _):
        cut_off = await ask(url, "anthropic_messages", asked)
        stopped = await ask(url, "anthropic_messages", replace(asked, max_tokens=60, stop=("Paris",)))
    assert (cut_off.reply.finish_reason, cut_off.reply.usage.output_tokens) == ("length", 8)
    assert cut_off.reply.usage.input_tokens > 10
    assert stopped.reply.finish_reason == "stop_sequence" or "Paris" not in stopped.text


async def test_rejected_grammar_is_dropped_and_request_retried(llama: str, caplog: pytest.LogCaptureFixture) -> None:
    tags = ModelMode("prompt", constrain=("structural_tag",), why="somebody took it for vLLM")
    with caplog.at_level(logging.WARNING):
        async with gateway(llama) as (url, backend):
            backend.modes.set_measured("m", tags)
            answer = await ask(url, "openai_chat", ASKED)
    assert "constraint_not_applied" in answer.warnings
    assert "far refused the grammar; the request is retried without it" in caplog.text
