"""Steps of a request: what the model is offered, in all APIs, through native and text upstreams."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman import dialects
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.config.routes import take_routes
from dragoman.core.client import ClientFacts
from dragoman.core.errors import ConfigError
from dragoman.core.messages import Message, Request, Steps, Text, Tool, ToolCall, ToolChoice, ToolResult
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.routing.explain import explain
from dragoman.gateway.routing.route import Routes
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.guard.policy import GuardPolicy
from dragoman.vendor_tools.executor import ToolExecutor
from dragoman.vendor_tools.tool import SearchHit, ToolRunResult, VendorToolCall, search_result
from support.fake_upstream import END, HEAD, Play, Server, piece, server
from support.http_client import http_client
from support.scenarios import call
from support.scripted_backend import serving
from support.text_upstream import FRONTS, Answer, ask, gateway
from support.vendor_tools import asking, messages, scripted

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
            "'terminal', 'max_calls', 'max_calls_per_tool', 'max_failures', 'at_limit', 'after' - at $.dragoman.steps",
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
        ({"terminal": "*"}, "expected names of tools, got '*' - at $.dragoman.steps.terminal"),
        (
            {"prerequisites": {"submit": ["fetch"]}, "after": "text"},
            "expected required steps for after 'text', got none - at $.dragoman.steps.after",
        ),
        ([], 'expected object, "derive" or "off", got array - at $.dragoman.steps'),
        ("of", "unknown steps 'of'; did you mean 'off'? expected 'derive', 'off' - at $.dragoman.steps"),
    ],
)
async def test_invalid_steps_are_rejected(front: str, steps: object, message: str) -> None:
    assert await refused(front, turn(), dragoman={"steps": steps}) == message


async def posted(
    front: str, request: Request, headers: dict[str, str], rules: Routes | None = None, **more: Any
) -> tuple[Any, Any]:
    """The response and the upstream of a request with these headers and fields, through these routes."""
    async with server(calls("fetch")) as upstream:
        backend = HttpBackend("far", HttpConfig(url=f"{upstream.url}/v1", models=("m",), max_retries=0), {})
        async with serving(Gateway([backend], rules=rules)) as (_, url), http_client(url) as client:
            dialect = dialects.get(front)
            body = json.loads(dialect.write_request(request, "m").body) | more
            return await client.post(dialect.path, json=body, headers=headers), upstream


@pytest.mark.parametrize("front", FRONTS)
async def test_header_contains_steps(front: str) -> None:
    answer, upstream = await posted(front, turn("fetch"), {"x-dragoman-steps": json.dumps(STEPS)})
    assert offered(upstream) == ["analyze"]
    assert answer.headers["x-dragoman-warnings"].startswith("steps_applied: analyze")
    assert "x-dragoman-steps" not in upstream.asked[-1][1]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("{", 'expected JSON of steps, "derive" or "off", got something else: '),
        ("of", 'expected JSON of steps, "derive" or "off", got something else: '),
        ('{"required": 1}', "expected string or array of strings, got number - at x-dragoman-steps.required"),
    ],
)
async def test_invalid_header_is_rejected(header: str, message: str) -> None:
    answer, upstream = await posted("openai_chat", turn(), {"x-dragoman-steps": header})
    assert answer.status_code == 400
    assert not upstream.asked
    assert answer.json()["error"]["message"].startswith(message)


def route(**more: Any) -> Routes:
    return Routes(take_routes({"routes": [more]}, "file"))


@pytest.mark.parametrize("front", FRONTS)
async def test_route_has_steps(front: str) -> None:
    _, upstream = await posted(front, turn("fetch"), {}, route(steps=STEPS))
    assert offered(upstream) == ["analyze"]
    own = {"x-dragoman-steps": '{"required": "analyze"}'}
    _, upstream = await posted(front, turn("fetch"), own, route(steps=STEPS))
    assert offered(upstream) == ["fetch", "analyze", "submit"], "steps of the client come first"


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({}, {"steps": "off"}),
        ({"x-dragoman-steps": "off"}, None),
        ({"x-dragoman-steps": '"off"'}, None),
        ({"x-dragoman-steps": json.dumps(STEPS)}, {"steps": "off"}),
    ],
)
async def test_a_client_switches_the_steps_of_a_route_off(
    front: str, headers: dict[str, str], field: dict[str, str] | None
) -> None:
    more = {} if field is None else {"dragoman": field}
    answer, upstream = await posted(front, turn("fetch"), headers, route(steps=STEPS), **more)
    assert offered(upstream) == ["fetch", "analyze", "submit"]
    assert sent(upstream).get("tool_choice", "auto") == "auto"
    assert "steps" not in answer.headers.get("x-dragoman-warnings", "")


async def test_header_derives_steps() -> None:
    tools = (Tool("fetch", "Fetches rows."), Tool("submit_report", "Submits the report."))
    _, upstream = await posted("openai_chat", replace(turn(), tools=tools), {"x-dragoman-steps": "derive"})
    assert offered(upstream) == ["fetch"]


@pytest.mark.parametrize("field", [{"steps": "off"}, {"steps": None}, {}, None])
async def test_the_field_is_not_passed_through(field: dict[str, str] | None) -> None:
    body = json.loads(dialects.get("openai_chat").write_request(turn(), "m").body) | {"dragoman": field}
    async with (
        server(calls("fetch")) as upstream,
        gateway(upstream.url, passthrough=True) as (url, _),
        http_client(url) as client,
    ):
        await client.post("/v1/chat/completions", json=body)
    assert "dragoman" not in sent(upstream)


def test_a_route_cannot_switch_steps_off() -> None:
    with pytest.raises(ConfigError, match=r"unknown steps 'off'; expected 'derive' - at routes\[1\]\.steps"):
        route(steps="off")


async def test_steps_of_a_route_do_not_apply_without_their_tools() -> None:
    answer, upstream = await posted("openai_chat", turn(), {}, route(steps={"required": "other"}))
    assert offered(upstream) == ["fetch", "analyze", "submit"]
    assert "steps_not_applied: routes[1].steps" in answer.headers["x-dragoman-warnings"]
    without = replace(turn(), tools=())
    answer, _ = await posted("openai_chat", without, {}, route(steps={"required": "other"}))
    assert "steps" not in answer.headers.get("x-dragoman-warnings", "")


def test_invalid_steps_of_a_route_are_a_wrong_setting() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown field 'require'; did you mean .* - at routes\[1\]\.steps, from file"
    ):
        route(steps={"require": ["fetch"]})


def test_route_explains_its_steps() -> None:
    explained = explain(route(name="reports", steps=STEPS), turn("fetch"), ClientFacts())[0]
    assert explained.steps == STEPS
    assert explained.allowed_now == "the next call must be one of analyze; steps left: analyze"
    off = explain(route(steps=STEPS), replace(turn(), steps=Steps(is_off=True)), ClientFacts())[0]
    assert off.allowed_now == "the request switches steps off"


async def test_steps_count_the_calls_of_a_stored_conversation() -> None:
    tools = [{"type": "function", "name": tool.name, "parameters": {"type": "object"}} for tool in TOOLS]
    body: dict[str, Any] = {"model": "m", "tools": tools, "dragoman": {"steps": STEPS}}
    async with server(calls("fetch")) as upstream, gateway(upstream.url) as (url, _), http_client(url) as client:
        first = (await client.post("/v1/responses", json=body | {"input": "Report on sales."})).json()
        (call,) = first["output"]
        result = [{"type": "function_call_output", "call_id": call["call_id"], "output": "ok"}]
        await client.post("/v1/responses", json=body | {"input": result, "previous_response_id": first["id"]})
        named = [json.loads(asked)["tools"][0]["function"]["name"] for _, _, asked in upstream.asked]
        assert named[:2] == ["fetch", "analyze"]


async def test_steps_go_on_after_the_gateway_has_compacted_the_conversation() -> None:
    tools = [{"type": "function", "name": tool.name, "parameters": {"type": "object"}} for tool in TOOLS]
    steps = {"required": ["fetch", "fetch", "analyze"], "ordered": True, "terminal": "submit"}
    question = {"role": "user", "content": "Report on sales."}

    def done(name: str, arguments: str = "{}") -> list[dict[str, str]]:
        called = {"type": "function_call", "call_id": "c1", "name": name, "arguments": arguments}
        return [called, {"type": "function_call_output", "call_id": "c1", "output": "ok"}]

    async with server(calls("")) as upstream, gateway(upstream.url) as (url, _), http_client(url) as client:

        async def ask_with(*items: dict[str, str], **more: Any) -> Any:
            body = {"model": "m", "tools": tools, "input": items, "store": False} | more
            return (await client.post("/v1/responses", json=body)).json()["output"]

        async def following(*items: dict[str, str]) -> list[str]:
            await ask_with(*items, dragoman={"steps": steps})
            return [tool["function"]["name"] for tool in json.loads(upstream.asked[-1][2]).get("tools", [])]

        trigger = {"type": "compaction_trigger"}
        (first,) = await ask_with(question, *done("fetch"), trigger)
        assert await following(first) == ["fetch"]
        assert await following(first, *done("fetch")) == ["fetch"], "it is the same call"
        assert await following(first, *done("fetch", '{"n": 2}')) == ["analyze"]
        (second,) = await ask_with(first, *done("fetch", '{"n": 2}'), *done("analyze"), trigger)
        assert await following(second) == ["submit"]
        assert await following(second, question) == ["fetch"], "a new question begins new steps"


@pytest.mark.parametrize("front", FRONTS)
async def test_a_named_choice_offers_that_tool_only(front: str) -> None:
    answer, upstream = await asked(front, turn(choice=ToolChoice("named", "fetch")), calls("submit"))
    assert offered(upstream) == ["fetch"]
    assert answer.calls == []


@pytest.mark.parametrize("front", FRONTS)
async def test_a_call_after_the_terminal_tool_does_not_arrive_without_a_guard(front: str) -> None:
    async with server(calls("fetch")) as upstream:
        backend = HttpBackend("far", HttpConfig(url=f"{upstream.url}/v1", models=("m",), max_retries=0), {})
        settings = Gateway([backend], policy=GuardPolicy(enabled=False))
        async with serving(settings) as (_, url):
            answer = await ask(url, front, turn("fetch", "analyze", "submit"), dragoman={"steps": STEPS})
    assert answer.calls == []
    assert "step_call_dropped" in answer.warnings


@pytest.mark.parametrize("stream", [False, True])
async def test_limits_count_the_calls_of_one_response(stream: bool) -> None:
    async def play(upstream: Server, writer: Any) -> None:
        many = [
            {"index": n, "id": f"c{n}", "function": {"name": "submit", "arguments": f'{{"n": {n}}}'}} for n in range(5)
        ]
        writer.write(HEAD + piece({"tool_calls": many}) + piece({}, "tool_calls") + END)

    answer, _ = await asked("openai_chat", turn(stream=stream), play, {"max_calls_per_tool": {"submit": 1}})
    assert len(answer.calls) == 1
    answer, _ = await asked("openai_chat", turn(stream=stream), play, {"max_calls_per_tool": 9, "max_calls": 2})
    assert len(answer.calls) == 2


def searching(**more: Any) -> dict[str, Any]:
    functions = ("fetch", "submit_report")
    schema = {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}
    own = [{"name": name, "description": "", "input_schema": schema} for name in functions]
    steps = {"required": ["web_search", "fetch"], "terminal": "submit_report"}
    return {"tools": [{"type": "web_search_20250305", "name": "web_search"}, *own], "dragoman": {"steps": steps}} | more


class Found(ToolExecutor):
    """Always finds the same."""

    description = "Searches."
    parameters = '{"type":"object","properties":{"query":{"type":"string"}}}'

    async def run(self, call: VendorToolCall) -> ToolRunResult:
        return search_result((SearchHit("https://example.com", "News", "May 5."),), 1000)


RUNNER = VendorToolRunner({"web_search": Found()})
SEARCHED = call(0, "web_search", query="x")


@pytest.mark.parametrize("name", ["submit_report", "functions.submit_report", "SubmitReport"])
async def test_a_premature_terminal_call_next_to_a_vendor_tool_does_not_arrive(name: str) -> None:
    early = call(0, name, n="1")
    async with asking(scripted(SEARCHED, early, early, asked=[]), RUNNER) as http:
        content, reason = await messages(http, False, **searching())
    assert reason == "end_turn"
    assert "tool_use" not in [block["type"] for block in content]


async def test_a_reask_next_to_a_vendor_tool_offers_what_the_steps_allow() -> None:
    seen: list[Request] = []
    async with asking(
        scripted(SEARCHED, call(0, "fetch", wrong=3), call(0, "fetch", n="1"), asked=seen), RUNNER
    ) as http:
        content, _ = await messages(http, False, **searching())
    assert [[tool.name for tool in each.tools] for each in seen][1:] == [["fetch", "web_search"], ["fetch"]]
    assert seen[-1].tool_choice.mode == "required"
    assert (content[-1]["name"], content[-1]["input"]) == ("fetch", {"n": "1"})


async def test_a_named_vendor_tool_is_followed_by_what_the_steps_allow() -> None:
    seen: list[Request] = []
    named = {"type": "tool", "name": "web_search"}
    async with asking(scripted(SEARCHED, call(0, "fetch", n="1"), asked=seen), RUNNER) as http:
        await messages(http, False, **searching(tool_choice=named))
    assert [[tool.name for tool in each.tools] for each in seen] == [["web_search"], ["fetch", "web_search"]]
