"""LM Studio, Ollama and MLX-Textgen behind the gateway, as fakes of what is documented of them (`servers/fakes.py`)."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.backends.http.tool_choice import downgrade_tool_choice
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


def plays(fake: Fake) -> Play:
    async def play(behind: Any, writer: Any) -> None:
        writer.write(fake(json.loads(behind.asked[-1][2])))

    return play


async def answered(fake: Fake, front: str, request: Request, **settings: Any) -> Answer:
    async with server(plays(fake)) as behind, gateway(behind.url, **{"tool_mode": "native", **settings}) as (url, _):
        return await ask(url, front, request)


def told(calls: Sequence[ToolCall]) -> Request:
    results = tuple(ToolResult(call.id, (Text("sun"),)) for call in calls)
    return replace(ASKED, messages=(*ASKED.messages, Message("assistant", tuple(calls)), Message("tool", results)))


def made(answer: Answer) -> list[ToolCall]:
    return [part for part in answer.reply.parts if isinstance(part, ToolCall)]


@each_way
@each_front
@pytest.mark.parametrize("fake", fakes.FAKES, ids=lambda fake: fake.__name__)
async def test_calls_their_results_and_the_answer(fake: Fake, front: str, stream: bool) -> None:
    answer = await answered(fake, front, replace(ASKED, stream=stream))
    assert answer.calls == (BOTH if fake is not fakes.mlx_textgen else BOTH[:1])
    assert answer.reply.finish_reason == "tool_calls"
    assert answer.text.strip() in ("", "Let me see.")
    calls = made(answer)
    assert len({call.id for call in calls} - {""}) == len(calls)
    last = await answered(fake, front, replace(told(calls), stream=stream))
    assert (last.calls, last.text, last.reply.finish_reason) == ([], ANSWER, "stop")


@each_way
@each_front
@pytest.mark.parametrize("fake", [fakes.ollama_toolless, fakes.mlx_textgen_old], ids=lambda fake: fake.__name__)
async def test_a_server_without_tools_is_given_them_as_text(fake: Fake, front: str, stream: bool) -> None:
    settings = {"tool_mode": "prompt", "call_format": "hermes"}
    answer = await answered(fake, front, replace(ASKED, stream=stream), **settings)
    assert answer.calls == (BOTH if fake is fakes.ollama_toolless else BOTH[:1])
    assert (answer.text, answer.reply.finish_reason) == ("", "tool_calls")
    last = await answered(fake, front, replace(told(made(answer)), stream=stream), **settings)
    assert (last.calls, last.text) == ([], ANSWER)


CHOSEN = replace(ASKED, tools=(PING, WEATHER), tool_choice=ToolChoice("named", "get_weather"))


async def sent(fake: Fake, front: str, request: Request, kind: str) -> tuple[Any, Answer]:
    async with server(plays(fake)) as behind, gateway(behind.url, tool_mode="native", provider=kind) as (url, _):
        answer = await ask(url, front, request)
        return json.loads(behind.asked[-1][2]), answer


@pytest.mark.parametrize(("kind", "choice"), [("lm_studio", "auto"), ("ollama", "auto"), ("llama_cpp", "required")])
@each_front
async def test_where_no_tool_can_be_named_the_model_is_shown_that_one_alone(front: str, kind: str, choice: str) -> None:
    fake = fakes.lm_studio if kind == "lm_studio" else fakes.ollama
    body, answer = await sent(fake, front, CHOSEN, kind)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["get_weather"]
    assert body.get("tool_choice", "auto") == choice
    held = "response_format" in body  # by a schema, beside the tool
    assert held == (kind == "ollama")
    assert answer.calls == BOTH[:1]  # one, as nothing says that the client takes several
    assert ("constraint_not_applied" in answer.warnings) == (choice == "auto" and not held)


async def test_of_a_kind_that_is_not_known_the_refusal_is_told() -> None:
    async with server(plays(fakes.lm_studio)) as behind, gateway(behind.url, tool_mode="native") as (url, _):
        with pytest.raises(AssertionError, match="Supported string values: none, auto, required"):
            await ask(url, "openai_chat", CHOSEN)


@each_front
@each_way
@pytest.mark.parametrize("several", [True, False], ids=["several", "one"])
async def test_where_a_call_is_required_ollama_is_held_by_a_schema(front: str, stream: bool, several: bool) -> None:
    choice = ToolChoice("required")
    request = replace(ASKED, tool_choice=choice, accepts_parallel_calls=several, stream=stream, dialect=front)
    body, answer = await sent(fakes.ollama, front, request, "ollama")
    assert body["tools"]
    listed = body["response_format"]["json_schema"]["schema"]["properties"]["tool_calls"]
    assert (listed["minItems"], listed.get("maxItems")) == (1, None if several else 1)
    assert answer.calls == (BOTH if several else BOTH[:1])
    assert len({call.id for call in made(answer)}) == len(answer.calls)
    assert (answer.text, answer.reply.finish_reason) == ("", "tool_calls")
    assert "leaked_call_recovered" not in answer.warnings


@each_front
async def test_where_no_call_may_be_made_ollama_is_told_of_no_tools(front: str) -> None:
    body, answer = await sent(fakes.ollama, front, replace(ASKED, tool_choice=ToolChoice("none")), "ollama")
    assert not body.keys() & {"tools", "tool_choice"}
    assert (answer.calls, answer.text) == ([], ANSWER)


@each_front
async def test_lm_studio_takes_that_no_call_may_be_made(front: str) -> None:
    body, _ = await sent(fakes.lm_studio, front, replace(ASKED, tool_choice=ToolChoice("none")), "lm_studio")
    assert (len(body["tools"]), body["tool_choice"]) == (1, "none")


@each_way
@each_front
async def test_lm_studio_answers_nothing_where_a_call_is_required(front: str, stream: bool) -> None:
    request = replace(ASKED, stream=stream, tool_choice=ToolChoice("required"))
    answer = await answered(fakes.lm_studio, front, request)
    assert (answer.calls, answer.text, answer.reply.finish_reason) == ([], "", "stop")


@each_front
async def test_lm_studio_whose_engine_fails_in_mid_stream(front: str) -> None:
    with pytest.raises(UpstreamError, match="Compute error"):
        await answered(fakes.lm_studio_fails, front, replace(ASKED, stream=True))


async def test_a_call_that_nobody_can_read_stays_words() -> None:
    """LM Studio's docs have this one for what it hands out as words."""
    words = '<tool_call>\n["name": "get_weather", function: "date"]\n</tool_call>'

    def fake(body: Any) -> bytes:
        return fakes.said(body, words)

    answer = await answered(fake, "openai_chat", ASKED)
    assert (answer.calls, answer.text, answer.reply.finish_reason) == ([], words, "stop")


@each_front
async def test_what_mlx_textgen_says_in_few_words_is_told(front: str) -> None:
    """Its errors are a string, under a status of their own."""
    with pytest.raises(AssertionError, match=r'Model \\+"m\\+" does not exist'):
        await answered(fakes.mlx_textgen_lacks, front, ASKED)


def test_a_choice_that_cannot_be_said_otherwise_stays() -> None:
    """Of a tool that is not there, and where nothing is known of what is heeded."""
    unknown = replace(ASKED, tool_choice=ToolChoice("named", "other"))
    for request, forms in ((unknown, ("auto",)), (CHOSEN, ()), (CHOSEN, ("auto", "named")), (ASKED, ("named",))):
        assert downgrade_tool_choice(request, forms) == (request, ())
