"""Steps of a request: what the model is offered, in all APIs, through native and text upstreams."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from dragoman import dialects
from dragoman.core.messages import Message, Request, Text, Tool, ToolCall, ToolChoice, ToolResult
from support.fake_upstream import END, HEAD, Play, Server, piece, server
from support.http_client import http_client
from support.text_upstream import FRONTS, Answer, ask, gateway

TOOLS = tuple(Tool(name, f"The tool {name}.") for name in ("fetch", "analyze", "submit"))
STEPS = {"required": ["fetch", "analyze"], "ordered": True, "terminal": "submit"}
FREE = ToolChoice()
ASK = Message("user", (Text("Report on sales."),))


def turn(*done: str, failed: bool = False, choice: ToolChoice = FREE, stream: bool = False) -> Request:
    """A request after these calls, the last of which may have failed."""
    messages = [ASK]
    for number, name in enumerate(done):
        error = failed and number == len(done) - 1
        messages.append(Message("assistant", (ToolCall(f"call_{number}", name, "{}"),)))
        messages.append(Message("tool", (ToolResult(f"call_{number}", (Text("Error: x" if error else "ok"),)),)))
    return Request("m", tuple(messages), TOOLS, choice, max_tokens=50, stream=stream)


def calls(name: str) -> Play:
    """A server whose model calls this tool, or answers in words."""

    async def play(upstream: Server, writer: Any) -> None:
        call = {"index": 0, "id": "call_9", "function": {"name": name, "arguments": "{}"}}
        delta = {"tool_calls": [call]} if name else {"content": "Done."}
        writer.write(HEAD + piece(delta) + piece({}, "tool_calls" if name else "stop") + END)

    return play


def sent(upstream: Server) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(upstream.asked[-1][2])
    return body


def offered(upstream: Server) -> list[str]:
    return [tool["function"]["name"] for tool in sent(upstream).get("tools", [])]


async def asked(front: str, request: Request, play: Play, steps: object = STEPS, **settings: Any) -> tuple[Answer, Any]:
    async with server(play) as upstream, gateway(upstream.url, **settings) as (url, _):
        answer = await ask(url, front, request, dragoman={"steps": steps})
        return answer, upstream


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize(
    ("done", "following"), [((), "fetch"), (("fetch",), "analyze"), (("fetch", "analyze"), "submit")]
)
async def test_upstream_is_offered_the_next_step_only(
    front: str, stream: bool, done: Sequence[str], following: str
) -> None:
    answer, upstream = await asked(front, turn(*done, stream=stream), calls(following))
    assert offered(upstream) == [following]
    assert sent(upstream)["tool_choice"] == {"type": "function", "function": {"name": following}}
    assert "dragoman" not in sent(upstream)
    assert [name for name, _ in answer.calls] == [following]
    assert answer.warnings[0] == "steps_applied"


@pytest.mark.parametrize("front", FRONTS)
async def test_a_failed_step_is_offered_until_it_succeeds(front: str) -> None:
    _, upstream = await asked(front, turn("fetch", "analyze", failed=True), calls("analyze"))
    assert offered(upstream) == ["analyze"]


@pytest.mark.parametrize("front", FRONTS)
async def test_after_the_terminal_tool_the_model_answers_in_words(front: str) -> None:
    answer, upstream = await asked(front, turn("fetch", "analyze", "submit"), calls(""))
    assert sent(upstream)["tool_choice"] == "none"
    assert answer.text == "Done."


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("front", FRONTS)
async def test_a_premature_terminal_call_of_a_server_does_not_arrive(front: str, stream: bool) -> None:
    answer, upstream = await asked(front, turn(stream=stream), calls("submit"))
    assert (answer.calls, answer.reply.finish_reason) == ([], "stop")
    assert answer.text == "[The call of submit was dropped: the steps of this conversation ask to call fetch first.]"
    assert "step_call_dropped" in answer.warnings
    assert len(upstream.asked) > 1, "the model is re-asked"
    assert all(b"submit" not in json.dumps(json.loads(body)["tools"]).encode() for _, _, body in upstream.asked)


@pytest.mark.parametrize("front", FRONTS)
async def test_tool_choice_none_is_respected(front: str) -> None:
    answer, upstream = await asked(front, turn(choice=ToolChoice("none")), calls(""))
    assert sent(upstream)["tool_choice"] == "none"
    assert "steps_not_applied" in answer.warnings


@pytest.mark.parametrize("front", FRONTS)
async def test_grammar_of_a_text_upstream_contains_the_next_step_only(front: str) -> None:
    async def play(upstream: Server, writer: Any) -> None:
        call = '<tool_call>\n{"name": "fetch", "arguments": {}}\n</tool_call>'
        writer.write(HEAD + piece({"content": call}) + piece({}, "stop") + END)

    settings = {"tool_mode": "prompt", "call_format": "hermes", "provider": "vllm"}
    answer, upstream = await asked(front, turn(), play, **settings)
    grammar = sent(upstream)["structured_outputs"]["grammar"]
    assert "fetch" in grammar
    assert "submit" not in grammar
    assert [name for name, _ in answer.calls] == ["fetch"]


async def refused(front: str, request: Request, **more: Any) -> str:
    async with server(calls("fetch")) as upstream, gateway(upstream.url) as (url, _), http_client(url) as client:
        dialect = dialects.get(front)
        body = json.loads(dialect.write_request(request, "m").body) | more
        answer = await client.post(dialect.path, json=body)
        assert answer.status_code == 400
        assert not upstream.asked
        message: str = answer.json()["error"]["message"]
        return message


@pytest.mark.parametrize("front", FRONTS)
async def test_a_named_tool_that_is_not_allowed_yet_is_an_error(front: str) -> None:
    message = await refused(front, turn(choice=ToolChoice("named", "submit")), dragoman={"steps": STEPS})
    assert message == (
        "expected a tool choice that the steps allow now ('fetch'), got 'submit'; send tool_choice 'auto', "
        "or leave the steps out - at $.tool_choice"
    )


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (
            {"required": ["fetsch"], "terminal": "submit"},
            "steps name the tool 'fetsch', which is not offered; did you mean 'fetch'? the request offers 'analyze', "
            "'fetch', 'submit' - at $.dragoman.steps.required[0]",
        ),
        (
            {"prerequisites": {"submit": ["analyze"], "analyze": ["fetch"], "fetch": "analyze"}},
            "expected prerequisites without a cycle, got 'analyze' > 'fetch' > 'analyze' - at "
            "$.dragoman.steps.prerequisites",
        ),
        (
            {"required": ["fetch", "submit"], "terminal": ["submit"]},
            "expected tools that can be called before the end, got the terminal tool 'submit' - at "
            "$.dragoman.steps.required",
        ),
        (
            {"require": ["fetch"]},
            "unknown field 'require'; did you mean 'required'? known: 'required', 'ordered', 'prerequisites', "
            "'terminal', 'max_calls', 'max_calls_per_tool', 'at_limit' - at $.dragoman.steps",
        ),
        (
            {},
            "expected required, prerequisites, terminal or max_calls_per_tool, got none of them - at $.dragoman.steps",
        ),
        ({"required": ["a"] * 65}, "expected at most 64 items, got 65 - at $.dragoman.steps.required"),
        (
            {"required": ["fetch"] * 3, "max_calls_per_tool": 2},
            "expected at least 3, which the steps need of 'fetch', got 2 - at $.dragoman.steps.max_calls_per_tool",
        ),
        ([], 'expected object or "derive", got array - at $.dragoman.steps'),
    ],
)
async def test_invalid_steps_are_rejected(front: str, steps: object, message: str) -> None:
    assert await refused(front, turn(), dragoman={"steps": steps}) == message
