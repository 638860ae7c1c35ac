"""LM Studio, Ollama and MLX-Textgen as upstream servers: fakes of their documented behaviour (`servers/fakes.py`)."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.backends.http.planning.tool_choice import downgrade_tool_choice
from dragoman.core.errors import UpstreamError
from dragoman.core.messages import Message, Request, Text, ToolCall, ToolChoice, ToolResult
from support.fake_upstream import Play, server
from support.servers import fakes
from support.servers.fakes import ANSWER, CITIES, Fake
from support.text_upstream import FRONTS, PING, WEATHER, Answer, ask, gateway

ASKED = Request("m", (Message("user", (Text("Weather in Paris and in Rome?"),)),), (WEATHER,), max_tokens=200)
BOTH = [("get_weather", {"city": city}) for city in CITIES]
each_front = pytest.mark.parametrize("front", FRONTS)
each_way = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


def as_play(fake: Fake) -> Play:
    async def play(behind: Any, writer: Any) -> None:
        writer.write(fake(json.loads(behind.asked[-1][2])))

    return play


async def ask_fake(fake: Fake, front: str, request: Request, **settings: Any) -> Answer:
    async with server(as_play(fake)) as behind, gateway(behind.url, **{"tool_mode": "native", **settings}) as (url, _):
        return await ask(url, front, request)


def with_results(calls: Sequence[ToolCall]) -> Request:
    results = tuple(ToolResult(call.id, (Text("sun"),)) for call in calls)
    return replace(ASKED, messages=(*ASKED.messages, Message("assistant", tuple(calls)), Message("tool", results)))


def calls_of(answer: Answer) -> list[ToolCall]:
    return [part for part in answer.reply.parts if isinstance(part, ToolCall)]


@each_way
@each_front
@pytest.mark.parametrize("fake", fakes.FAKES, ids=lambda fake: fake.__name__)
async def test_calls_results_and_final_response_round_trip(fake: Fake, front: str, stream: bool) -> None:
    answer = await ask_fake(fake, front, replace(ASKED, stream=stream))
    assert answer.calls == (BOTH if fake is not fakes.mlx_textgen else BOTH[:1])
    assert answer.reply.finish_reason == "tool_calls"
    assert answer.text.strip() in ("", "Let me see.")
    calls = calls_of(answer)
    assert len({call.id for call in calls} - {""}) == len(calls)
    last = await ask_fake(fake, front, replace(with_results(calls), stream=stream))
    assert (last.calls, last.text, last.reply.finish_reason) == ([], ANSWER, "stop")


@each_way
@each_front
@pytest.mark.parametrize("fake", [fakes.ollama_toolless, fakes.mlx_textgen_old], ids=lambda fake: fake.__name__)
async def test_prompt_mode_calls_tools_on_server_without_tools(fake: Fake, front: str, stream: bool) -> None:
    settings = {"tool_mode": "prompt", "call_format": "hermes"}
    answer = await ask_fake(fake, front, replace(ASKED, stream=stream), **settings)
    assert answer.calls == (BOTH if fake is fakes.ollama_toolless else BOTH[:1])
    assert (answer.text, answer.reply.finish_reason) == ("", "tool_calls")
    last = await ask_fake(fake, front, replace(with_results(calls_of(answer)), stream=stream), **settings)
    assert (last.calls, last.text) == ([], ANSWER)


CHOSEN = replace(ASKED, tools=(PING, WEATHER), tool_choice=ToolChoice("named", "get_weather"))


async def sent(fake: Fake, front: str, request: Request, kind: str) -> tuple[Any, Answer]:
    async with server(as_play(fake)) as behind, gateway(behind.url, tool_mode="native", provider=kind) as (url, _):
        answer = await ask(url, front, request)
        return json.loads(behind.asked[-1][2]), answer


@pytest.mark.parametrize(("kind", "choice"), [("lm_studio", "auto"), ("ollama", "auto"), ("llama_cpp", "required")])
@each_front
async def test_named_choice_sends_only_that_tool_if_unsupported(front: str, kind: str, choice: str) -> None:
    fake = fakes.lm_studio if kind == "lm_studio" else fakes.ollama
    body, answer = await sent(fake, front, CHOSEN, kind)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["get_weather"]
    assert body.get("tool_choice", "auto") == choice
    held = "response_format" in body  # by a schema, next to the tool
    assert held == (kind == "ollama")
    assert answer.calls == BOTH[:1]  # one, as the client has not declared that it accepts parallel calls
    assert ("constraint_not_applied" in answer.warnings) == (choice == "auto" and not held)


async def test_named_choice_rejected_by_unknown_provider_is_reported() -> None:
    async with server(as_play(fakes.lm_studio)) as behind, gateway(behind.url, tool_mode="native") as (url, _):
        with pytest.raises(AssertionError, match="Supported string values: none, auto, required"):
            await ask(url, "openai_chat", CHOSEN)


@each_front
@each_way
@pytest.mark.parametrize("several", [True, False], ids=["several", "one"])
async def test_ollama_required_choice_is_constrained_by_schema(front: str, stream: bool, several: bool) -> None:
    choice = ToolChoice("required")
    request = replace(ASKED, tool_choice=choice, accepts_parallel_calls=several, stream=stream, dialect=front)
    body, answer = await sent(fakes.ollama, front, request, "ollama")
    assert body["tools"]
    listed = body["response_format"]["json_schema"]["schema"]["properties"]["tool_calls"]
    assert (listed["minItems"], listed.get("maxItems")) == (1, None if several else 1)
    assert answer.calls == (BOTH if several else BOTH[:1])
    assert len({call.id for call in calls_of(answer)}) == len(answer.calls)
    assert (answer.text, answer.reply.finish_reason) == ("", "tool_calls")
    assert "leaked_call_recovered" not in answer.warnings


@each_front
async def test_ollama_choice_none_sends_no_tools(front: str) -> None:
    body, answer = await sent(fakes.ollama, front, replace(ASKED, tool_choice=ToolChoice("none")), "ollama")
    assert not body.keys() & {"tools", "tool_choice"}
    assert (answer.calls, answer.text) == ([], ANSWER)


@each_front
async def test_lm_studio_choice_none_is_sent_with_tools(front: str) -> None:
    body, _ = await sent(fakes.lm_studio, front, replace(ASKED, tool_choice=ToolChoice("none")), "lm_studio")
    assert (len(body["tools"]), body["tool_choice"]) == (1, "none")


@each_way
@each_front
async def test_lm_studio_empty_response_to_required_choice_is_a_stop(front: str, stream: bool) -> None:
    request = replace(ASKED, stream=stream, tool_choice=ToolChoice("required"))
    answer = await ask_fake(fakes.lm_studio, front, request)
    assert (answer.calls, answer.text, answer.reply.finish_reason) == ([], "", "stop")


@each_front
async def test_lm_studio_engine_error_in_mid_stream_is_raised(front: str) -> None:
    with pytest.raises(UpstreamError, match="Compute error"):
        await ask_fake(fakes.lm_studio_fails, front, replace(ASKED, stream=True))


async def test_unparseable_call_stays_text() -> None:
    """The example in LM Studio's docs of an unparseable call that it returns as text."""
    words = '<tool_call>\n["name": "get_weather", function: "date"]\n</tool_call>'

    def fake(body: Any) -> bytes:
        return fakes.said(body, words)

    answer = await ask_fake(fake, "openai_chat", ASKED)
    assert (answer.calls, answer.text, answer.reply.finish_reason) == ([], words, "stop")


@each_front
async def test_mlx_textgen_string_error_is_forwarded(front: str) -> None:
    """Its errors are a plain string with an unusual status."""
    with pytest.raises(AssertionError, match=r'Model \\+"m\\+" does not exist'):
        await ask_fake(fakes.mlx_textgen_lacks, front, ASKED)


def test_tool_choice_without_downgrade_is_unchanged() -> None:
    """Covers an unknown tool, and a server whose supported forms of `tool_choice` are unknown."""
    unknown = replace(ASKED, tool_choice=ToolChoice("named", "other"))
    for request, forms in ((unknown, ("auto",)), (CHOSEN, ()), (CHOSEN, ("auto", "named")), (ASKED, ("named",))):
        assert downgrade_tool_choice(request, forms) == (request, ())
