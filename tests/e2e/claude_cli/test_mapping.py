"""How client requests map to the Claude CLI: with the real program and a scripted model."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, cast

import httpx2
import msgspec
import pytest
from msgspec.structs import replace

from dragoman import dialects
from dragoman.backends.claude_cli import command, models
from dragoman.backends.claude_cli.attempt import Attempt
from dragoman.backends.claude_cli.command import ModelSpec
from dragoman.backends.claude_cli.conversation import to_conversation
from dragoman.backends.claude_cli.process import OutputLine, Process
from dragoman.backends.claude_cli.session import ClaudeSession
from dragoman.backends.claude_cli.tool_choice_prompt import ReplyRequirement, tool_choice_instruction
from dragoman.core import messages as v
from dragoman.core.events import (
    AnyEvent,
    Finish,
    Notice,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from support.claude_requests import RESPONSES, WORDS, Events, chain, warned
from support.gateway import CHAT, MESSAGES

PREFIX: Final = "mcp__t__"
SCHEMA: Final = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def call(name: str, arguments: str = '{"a":1}') -> Events:
    return (ToolCallStart(0, f"toolu_{name}", name), ToolCallDelta(0, arguments), ToolCallEnd(0))


def second(call: Events) -> Events:
    """The call, with index 1."""
    return [replace(event, index=1) for event in call if hasattr(event, "index")]


CALL, OTHER, REPLY = call(PREFIX + "w"), call(PREFIX + "other"), call("StructuredOutput")
TOOLS: Final[dict[str, Any]] = {
    path: [
        {"type": "function", "function": {"name": name, "parameters": SCHEMA}}
        if path == CHAT
        else {"name": name, "input_schema": SCHEMA}
        for name in ("w", "other")
    ]
    for path in (CHAT, MESSAGES)
}


async def test_reasoning_and_token_limits_are_mapped(tmp_path: Path) -> None:
    """Two processes serve six requests: a waiting process accepts any settings of its model."""
    thoughts = {"type": "adaptive", "display": "summarized"}
    sonnet, older = "claude-sonnet-5-5", "claude-sonnet-4-5"
    cases: list[tuple[str, dict[str, Any], tuple[str, int, Any, str | None]]] = [
        (CHAT, {"model": "sonnet"}, (sonnet, 128000, thoughts, "medium")),
        (
            CHAT,
            {"model": "claude-code-cli/sonnet", "reasoning_effort": "minimal", "max_completion_tokens": 3000},
            (sonnet, 3000, thoughts, "low"),
        ),
        (RESPONSES, {"model": "sonnet", "reasoning": {"effort": "max"}}, (sonnet, 128000, thoughts, "max")),
        (MESSAGES, {"model": "sonnet", "max_tokens": 999999}, (sonnet, 128000, None, "medium")),
        (
            MESSAGES,
            {"model": "anthropic/claude-sonnet-4.5", "thinking": {"type": "enabled", "budget_tokens": 2000}},
            (older, 5000, {"type": "enabled", "budget_tokens": 2000, "display": "summarized"}, None),
        ),
        (CHAT, {"model": "claude-sonnet-4-5", "max_tokens": 50}, (older, 50, None, None)),
    ]
    async with chain(tmp_path) as c:
        for path, more, _ in cases:
            answer = await c.ask(path, **more)
            assert answer.status_code == 200, answer.text
        heard = [
            (body["model"], body["max_tokens"], body.get("thinking"), body.get("output_config", {}).get("effort"))
            for body in c.heard()
        ]
        assert heard == [expected for _, _, expected in cases]
        assert c.backend.health()["cold_starts"] == 2


async def test_reasoning_is_returned_and_kept_in_history(tmp_path: Path) -> None:
    thinks = (ReasoningDelta("Hm."), ReasoningDelta("", "c2ln"), *WORDS)
    async with chain(tmp_path, thinks) as c:
        asked: dict[str, Any] = {"model": "haiku", "thinking": {"type": "adaptive"}, "max_tokens": 500}
        first = (await c.ask(MESSAGES, **asked)).json()
        assert first["content"][0] == {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
        history = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": first["content"]},
            {"role": "user", "content": "more"},
        ]
        again = (await c.ask(MESSAGES, **asked, messages=history)).json()
        chat = (await c.ask(CHAT, model="haiku")).json()
    assert [m["content"] for m in c.heard()[1]["messages"] if m["role"] == "assistant"] == [first["content"]]
    assert again["usage"] == first["usage"]
    assert (first["usage"]["input_tokens"], first["usage"]["output_tokens"]) == (40, 5)
    assert (first["usage"]["cache_read_input_tokens"], first["usage"]["cache_creation_input_tokens"]) == (40, 20)
    assert chat["choices"][0]["message"]["reasoning_content"] == "Hm."
    assert chat["usage"]["prompt_tokens_details"]["cached_tokens"] == 40


@pytest.mark.parametrize(
    ("name", "own"),
    {
        "opus": "opus",
        "sonnet[1m]": "sonnet[1m]",
        "claude-code-cli/fable": "fable",
        "claude-code-cli/claude-opus-4": "opus",
        "claude-haiku-4": "haiku",
        "claude-haiku-4-5-20251001": "claude-haiku-4-5-20251001",
        "anthropic/claude-opus-4.5": "claude-opus-4-5",
        "maxproxy/claude-opus-4-8[1m]": "claude-opus-4-8[1m]",
        "gpt-5": None,
        "claude-code-cli/gpt-5": None,
        "claude": None,
        "claude-$(id)": None,
        "--model": None,
        "claude-code-cli/--bare": None,
        "opus sonnet": None,
    }.items(),
)
def test_model_names_are_resolved(name: str, own: str | None) -> None:
    taken = models.resolve_model(name)
    assert (None if taken is None else models.model_spec(v.Request(taken, ())).model) == own


async def test_unknown_model_is_rejected_in_each_api(tmp_path: Path) -> None:
    async with chain(tmp_path) as c:
        for path in (CHAT, MESSAGES, RESPONSES):
            answer = await c.ask(path, model="opus-magnum")
            assert answer.status_code == 404
            told = answer.json()["error"]
            assert told["type"] == "not_found_error" if path == MESSAGES else told["code"] == "model_not_found"
            assert "'opus'" in told["message"]
    assert c.heard() == []


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({}, ModelSpec("m")),
        ({"reasoning_effort": "xhigh"}, ModelSpec("m", "xhigh")),
        ({"reasoning_effort": "none"}, ModelSpec("m", "", 0)),
        ({"reasoning_effort": "immense"}, ModelSpec("m")),
        ({"max_tokens": 1024}, ModelSpec("m", "", 0, 1024)),
        ({"max_tokens": 1025}, ModelSpec("m", "", None, 1025)),
        ({"dialect": "anthropic_messages"}, ModelSpec("m", "", 0)),
        ({"dialect": "anthropic_messages", "extra": {"thinking": b'{"type":"adaptive"}'}}, ModelSpec("m")),
        ({"dialect": "anthropic_messages", "extra": {"thinking": b'{"type":"disabled"}'}}, ModelSpec("m", "", 0)),
        ({"dialect": "anthropic_messages", "extra": {"thinking": b"[]"}}, ModelSpec("m", "", 0)),
        (
            {"dialect": "anthropic_messages", "extra": {"thinking": b'{"type":"enabled","budget_tokens":5000}'}},
            ModelSpec("m", "", 5000),
        ),
    ],
)
def test_request_parameters_become_model_spec(asked: dict[str, Any], told: ModelSpec) -> None:
    assert models.model_spec(v.Request("m", (), **asked)) == told


def test_model_spec_becomes_environment_or_control_requests() -> None:
    spec = ModelSpec("m", "low", 2000, 3000)
    variables = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "3000", "MAX_THINKING_TOKENS": "2000"}
    assert variables.items() <= command.environment({}, (), spec, 0).items()
    assert command.control_requests(spec)[0]["settings"] == {"env": variables, "effortLevel": "low"}
    assert command.control_requests(ModelSpec("m", "", 0)) == [
        {"subtype": "apply_flag_settings", "settings": {"env": {"CLAUDE_CODE_DISABLE_THINKING": "1"}}}
    ]


def chat(answer: httpx2.Response) -> tuple[str | None, list[str], str]:
    """Returns the text, the names of the calls, and the finish reason."""
    choice = answer.json()["choices"][0]
    calls = [each["function"]["name"] for each in choice["message"].get("tool_calls") or ()]
    return choice["message"]["content"], calls, choice["finish_reason"]


@pytest.mark.parametrize(
    ("choice", "first", "answers", "given", "codes"),
    [
        ("required", "text", (WORDS, CALL), (None, ["w"], "tool_calls"), ["reasked"]),
        ("required", "text", (WORDS, WORDS), ("Hello", [], "stop"), ["reasked", "reask_failed"]),
        ("w", "tool_result", (OTHER, CALL), (None, ["w"], "tool_calls"), ["reasked"]),
        ("w", "tool_result", (OTHER, OTHER), (None, ["other"], "tool_calls"), ["reasked", "reask_failed"]),
        ("w", "", ((*WORDS, *CALL),), ("Hello", ["w"], "tool_calls"), []),
        ("w", "", ((*WORDS, *OTHER, *second(CALL)),), ("Hello", ["w"], "tool_calls"), ["extra_call_dropped"]),
        ("w", "", ((*CALL, *second(OTHER)),), (None, ["w"], "tool_calls"), ["extra_call_dropped"]),
    ],
    ids=["words", "twice words", "another call", "twice another call", "at once", "another before", "another behind"],
)
async def test_missing_required_call_is_reasked(
    tmp_path: Path,
    choice: str,
    first: str,
    answers: Sequence[Events],
    given: object,
    codes: list[str],
) -> None:
    named = choice if choice == "required" else {"type": "function", "function": {"name": choice}}
    async with chain(tmp_path, *answers) as c:
        answer = await c.ask(CHAT, model="sonnet", tools=TOOLS[CHAT], tool_choice=named)
    assert (chat(answer), warned(answer)) == (given, codes)
    heard = c.heard()
    assert len(heard) == len(answers)
    assert answer.json()["usage"]["completion_tokens"] == 5 * len(heard)
    told = [
        "by calling at least one tool" in str(body["system"]) or "mcp__t__w" in str(body["system"]) for body in heard
    ]
    assert all(told)
    if first:
        *_, last = [m for m in heard[1]["messages"] if m["role"] == "user"]
        assert last["content"][0]["type"] == first
        assert "now" in str(last["content"])


async def test_model_is_reasked_only_once(tmp_path: Path) -> None:
    async with chain(tmp_path, call(PREFIX + "w", "{}"), WORDS) as c:
        answer = await c.ask(CHAT, model="sonnet", tools=TOOLS[CHAT], tool_choice="required")
    assert len(c.heard()) == 2
    assert {"reasked", "reask_failed"} <= set(warned(answer))


async def test_call_of_other_tool_is_dropped_from_text(tmp_path: Path) -> None:
    one, other = (
        f'<tool_call>\n{{"name": "{name}", "arguments": {{"a": 1}}}}\n</tool_call>' for name in ("w", "other")
    )
    named = {"type": "function", "function": {"name": "w"}}
    async with chain(tmp_path, (TextDelta(f"Hello\n{other}\n{one}"),), tool_mode="text") as c:
        answer = await c.ask(CHAT, model="sonnet", tools=TOOLS[CHAT], tool_choice=named, parallel_tool_calls=False)
    assert (chat(answer), warned(answer)) == (("Hello", ["w"], "tool_calls"), ["extra_call_dropped"])


async def test_response_cost_is_reported_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The cost of all requests for one response; a stream does not wait for it."""
    caplog.set_level("INFO", "dragoman.access")
    asked: dict[str, Any] = {"model": "sonnet", "tools": TOOLS[CHAT]}
    async with chain(tmp_path, WORDS, CALL, WORDS, CALL, WORDS) as c:
        words = await c.ask(CHAT, **asked)
        called = await c.ask(CHAT, **asked)
        twice = await c.ask(CHAT, **asked, tool_choice="required")
        stream = await c.ask(CHAT, **asked, stream=True)
        assert len(c.heard()) == 5
    one, of_call, two = (float(answer.headers["x-dragoman-cost-usd"]) for answer in (words, called, twice))
    assert one == of_call > 0
    assert two == pytest.approx(2 * one)
    assert "x-dragoman-cost-usd" not in stream.headers
    logged = [json.loads(record.message) for record in caplog.records if record.name == "dragoman.access"]
    costs = [
        line.get("cost_usd") for line in logged if line.get("dialect") == "openai_chat" and line["model"] == "sonnet"
    ]
    assert [cost is not None for cost in costs] == [True, True, True, False]


async def test_tool_choice_none_drops_calls(tmp_path: Path) -> None:
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "w", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "18"}]},
    ]
    asked: dict[str, Any] = {"model": "sonnet", "tools": TOOLS[MESSAGES], "tool_choice": {"type": "none"}}
    thought = ReasoningDelta("Hm.", "c2ln")
    form = {"format": {"type": "json_schema", "schema": SCHEMA}}
    async with chain(tmp_path, WORDS, (thought, *CALL), WORDS, (*WORDS, *CALL), CALL, REPLY) as c:
        await c.ask(MESSAGES, **asked)
        told = await c.ask(MESSAGES, **asked, messages=history)
        beside = await c.ask(MESSAGES, **asked, messages=history)
        reply = await c.ask(MESSAGES, **asked, messages=history, output_config=form)
    assert (reply.json()["content"][0]["text"], warned(reply)[0]) == ('{"a":1}', "reasked")
    for answer, codes in (told, ["reasked"]), (beside, ["extra_call_dropped"]):
        assert answer.json()["content"] == [{"type": "text", "text": "Hello"}]
        assert answer.json()["stop_reason"] == "end_turn"
        assert warned(answer) == codes
    heard = c.heard()
    assert [len(body.get("tools", ())) for body in heard] == [0, 2, 2, 2, 3, 3]
    (past,) = (m["content"] for m in heard[1]["messages"] if m["role"] == "assistant")
    assert past[0]["name"] == PREFIX + "w"


@pytest.mark.parametrize("stream", [False, True])
async def test_structured_output_is_returned(tmp_path: Path, stream: bool) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA}}
    asked: dict[str, Any] = {"model": "sonnet", "response_format": form, "tools": TOOLS[CHAT], "stream": stream}
    both = (*REPLY, *second(CALL))
    twice = (ToolCallStart(1, "toolu_2", "StructuredOutput"), ToolCallDelta(1, '{"a":2}'), ToolCallEnd(1))
    async with chain(tmp_path, (*WORDS, *REPLY, *twice), WORDS, REPLY, WORDS, WORDS, (*WORDS, *CALL), both) as c:
        answers = [await c.ask(CHAT, **asked) for _ in range(5)]
    if stream:
        assert [streamed(answer) for answer in answers] == ['{"a":1}', '{"a":1}', "Hello", "Hello", '{"a":1}']
        return
    assert [(chat(answer), warned(answer)) for answer in answers] == [
        (('{"a":1}', [], "stop"), ["extra_call_dropped", "content_dropped"]),
        (('{"a":1}', [], "stop"), ["reasked"]),
        (("Hello", [], "stop"), ["reasked", "reask_failed"]),
        (("Hello", ["w"], "tool_calls"), []),
        (('{"a":1}', ["w"], "tool_calls"), []),
    ]
    (schema,) = (tool["input_schema"] for tool in c.heard()[0]["tools"] if tool["name"] == "StructuredOutput")
    assert schema == SCHEMA


async def test_structured_output_that_violates_schema_is_reported(tmp_path: Path) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA}}
    async with chain(tmp_path, call("StructuredOutput", '{"b":2}'), WORDS) as c:
        answer = await c.ask(CHAT, model="sonnet", response_format=form)
        assert (chat(answer), warned(answer)) == (('{"b":2}', [], "stop"), ["constraint_not_applied"])
        any_object = await c.ask(CHAT, model="sonnet", response_format={"type": "json_object"})
        assert (chat(any_object), warned(any_object)) == (("Hello", [], "stop"), ["reasked", "reask_failed"])


@pytest.mark.parametrize("stream", [False, True])
async def test_schema_rejected_by_cli_keeps_text(tmp_path: Path, stream: bool) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "r", "schema": {"type": "bogus"}}}
    async with chain(tmp_path, WORDS) as c:
        answer = await c.ask(CHAT, model="sonnet", response_format=form, stream=stream)
        assert len(c.heard()) == 1
    if stream:
        assert streamed(answer) == "Hello"
        return
    assert (chat(answer), warned(answer)) == (("Hello", [], "stop"), ["reasked", "reask_failed"])


def streamed(answer: httpx2.Response) -> str:
    chunks = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])


async def test_stop_strings_end_response(tmp_path: Path) -> None:
    """Buffered text is emitted at the end; a stop string in a call's arguments has no effect."""
    async with chain(
        tmp_path,
        (TextDelta("one EN"), TextDelta("D two")),
        (TextDelta("an EN"),),
        call(PREFIX + "w", '{"a":1,"b":"END"}'),
    ) as c:
        asked: dict[str, Any] = {"model": "sonnet", "stop": ["END"], "tools": TOOLS[CHAT]}
        found, held, in_call = [await c.ask(CHAT, **asked) for _ in range(3)]
        assert (chat(found), chat(held)) == (("one ", [], "stop"), ("an EN", [], "stop"))
        assert chat(in_call) == (None, ["w"], "tool_calls")
        assert (await c.ask(MESSAGES, model="sonnet", stop_sequences=["EN"])).json()["stop_sequence"] is None
        assert not c.backend.health()["active"]
    assert warned(found) == ["estimated_usage"]  # it was stopped before the API reported usage
    assert warned(held) == warned(in_call) == []


async def test_images_and_documents_are_sent_unchanged(tmp_path: Path) -> None:
    """URLs are not fetched here; only the model's API may fetch them."""
    blocks: list[dict[str, Any]] = [
        {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}},
        {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
        {
            "type": "document",
            "title": "t",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
        },
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
        {"type": "text", "text": "See?"},
    ]
    picture = {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}
    async with chain(tmp_path) as c:
        first = await c.ask(MESSAGES, model="sonnet", messages=[{"role": "user", "content": blocks}])
        await c.ask(
            CHAT, model="sonnet", messages=[{"role": "user", "content": [picture, {"type": "text", "text": "?"}]}]
        )
        usage = (await c.ask(RESPONSES, model="sonnet")).json()["usage"]
        heard = [body["messages"][0]["content"] for body in c.heard()]
    assert warned(first) == []
    assert [{k: v for k, v in block.items() if k != "cache_control"} for block in heard[0]] == blocks
    assert heard[1][0] == blocks[0]
    assert (usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]) == (100, 40)


def attempted(wanted: ReplyRequirement, *events: AnyEvent) -> tuple[list[list[AnyEvent]], Attempt]:
    attempt = Attempt(wanted, {PREFIX + "w": "w"})
    return [list(attempt.feed([event])) for event in events], attempt


def test_text_is_buffered_until_required_call() -> None:
    given, attempt = attempted(ReplyRequirement(call=True), TextDelta("a"), ReasoningDelta("b"), *CALL, TextDelta("c"))
    assert given[:2] == [[], []]
    assert given[2] == [TextDelta("a"), ReasoningDelta("b"), ToolCallStart(0, f"toolu_{PREFIX}w", "w")]
    assert given[3:] == [[CALL[1]], [CALL[2]], [TextDelta("c")]]
    assert (attempt.feed([Finish("tool_calls")]), attempt.needs_reask, attempt.close()) == ([], False, [])


def test_calls_of_other_tools_than_named_one_are_dropped() -> None:
    events = (*OTHER, TextDelta("a"), *second(CALL), *(replace(event, index=2) for event in second(OTHER)))
    given, attempt = attempted(ReplyRequirement(call=True, name=PREFIX + "w"), *events)
    told = [*itertools.chain(*given), *attempt.feed([Finish("tool_calls")]), *attempt.close()]
    assert told[:-1] == [TextDelta("a"), ToolCallStart(0, f"toolu_{PREFIX}w", "w"), *CALL[1:]]
    dropped = PREFIX + 'other {"a":1}'
    assert told[-1] == Notice(
        "extra_call_dropped", "claude made a call that the request does not allow; the call was dropped", dropped * 2
    )


def test_reasoning_is_buffered_until_required_text() -> None:
    given, _ = attempted(ReplyRequirement(text=True), ReasoningDelta("b"), TextDelta("a"), ReasoningDelta("c"))
    assert given == [[], [ReasoningDelta("b"), TextDelta("a")], [ReasoningDelta("c")]]


@pytest.mark.parametrize("reason", ["length", "content_filter"])
@pytest.mark.parametrize("wanted", [ReplyRequirement(call=True), ReplyRequirement(reply=True)])
def test_truncated_or_refused_response_is_not_reasked(wanted: ReplyRequirement, reason: v.FinishReason) -> None:
    _, attempt = attempted(wanted, TextDelta("a"), Finish(reason))
    assert not attempt.needs_reask
    assert not attempt.is_final
    assert attempt.close() == [TextDelta("a")]


@pytest.mark.parametrize(
    ("mode", "told"),
    {"auto": "Call one tool at most", "required": "Call one tool at most", "none": "Call no tool"}.items(),
)
def test_single_call_limit_is_in_instruction(mode: Literal["auto", "none", "required"], told: str) -> None:
    assert told in tool_choice_instruction(v.ToolChoice(mode, parallel_tool_calls=False))
    assert ("at most" in tool_choice_instruction(v.ToolChoice(mode, parallel_tool_calls=False))) == (mode != "none")


async def test_unsupported_fields_are_reported_over_http(tmp_path: Path) -> None:
    async with chain(tmp_path) as c:
        hosted = {"type": "web_search_20250305", "name": "web_search"}
        says: dict[str, Any] = {"temperature": 0.2, "top_k": 5, "container": "c"}
        says["context_management"] = {"edits": [{"type": "compact_20260112"}]}
        answer = await c.ask(MESSAGES, model="sonnet", tools=[hosted, *TOOLS[MESSAGES]], **says)
        assert warned(answer) == ["content_dropped"] * 5
    assert {tool["name"] for tool in c.heard()[0]["tools"]} == {PREFIX + "w", PREFIX + "other"}


def named(path: str, **body: Any) -> list[tuple[str, str]]:
    """The codes and details of this request's warnings."""
    dialect = next(each for each in map(dialects.get, dialects.names()) if each.path == path)
    said = {"input": "hi"} if path == RESPONSES else {"messages": [{"role": "user", "content": "hi"}]}
    limit = {} if path == RESPONSES else {"max_tokens": 9}
    request = dialect.read_request(json.dumps({"model": "opus", **said, **limit, **body}))
    return [(warning.code, warning.detail) for warning in to_conversation(request, models.model_spec(request)).warnings]


FUNCTION: Final = {"type": "function", "name": "f"}
SEARCH: Final = {"type": "web_search_20250305", "name": "web_search"}


@pytest.mark.parametrize(
    ("path", "body", "lost"),
    [
        (CHAT, {"temperature": 0.5, "top_p": 0.5, "seed": 1}, "temperature, top_p, seed"),
        (CHAT, {"presence_penalty": 1, "frequency_penalty": 1}, "presence_penalty, frequency_penalty"),
        (CHAT, {"temperature": 1, "top_p": 1.0, "presence_penalty": 0, "n": 1, "logprobs": False}, ""),
        (CHAT, {"user": "u", "store": True, "metadata": {"a": "b"}, "service_tier": "auto"}, ""),
        (CHAT, {"logprobs": True, "top_logprobs": 2, "logit_bias": {"1": 1}}, "logprobs, top_logprobs, logit_bias"),
        (CHAT, {"verbosity": "low", "modalities": ["text"], "min_p": 0.1}, "verbosity, min_p"),
        (CHAT, {"reasoning_effort": "immense"}, "effort"),
        (CHAT, {"reasoning_effort": "low", "response_format": {"type": "json_object"}}, ""),
        (RESPONSES, {"reasoning": {"effort": "low", "summary": "auto"}, "text": {"verbosity": "medium"}}, ""),
        (RESPONSES, {"text": {"verbosity": "high"}, "store": False, "include": ["x"]}, "text.verbosity"),
        (RESPONSES, {"tools": [{"type": "web_search"}, FUNCTION], "prompt_cache_key": "k"}, "web_search"),
        (MESSAGES, {"metadata": {"user_id": "u"}, "service_tier": "auto", "thinking": {"type": "adaptive"}}, ""),
        (MESSAGES, {"output_config": {"effort": "high"}, "top_k": 3, "container": "c"}, "top_k, container"),
        (
            MESSAGES,
            {"mcp_servers": [{"name": "s"}], "tools": [SEARCH, {"name": "f"}]},
            "mcp_servers, web_search_20250305",
        ),
        (
            MESSAGES,
            {"tools": [{"name": "w", "input_schema": SCHEMA, "strict": True, "cache_control": {}}]},
            "tools.strict",
        ),
    ],
)
def test_unsupported_fields_are_reported(path: str, body: dict[str, Any], lost: str) -> None:
    assert named(path, **body) == [("content_dropped", name) for name in lost.split(", ") if name]


def test_adapted_effort_and_schema_are_reported() -> None:
    assert named(CHAT, reasoning_effort="minimal") == [("request_adapted", "effort")]
    tool = {"name": "w", "input_schema": {"anyOf": [SCHEMA, SCHEMA]}}
    assert named(MESSAGES, tools=[tool]) == [("schema_adapted", "")]


def test_tool_ignored_by_cli_is_reported() -> None:
    """The CLI ignores a tool that it finds invalid; known problems are adapted before."""
    tools = (v.Tool("look.up"), v.Tool("read"))
    told = to_conversation(v.Request("m", (v.Message("user", (v.Text("hi"),)),), tools), ModelSpec("m"))
    session = ClaudeSession(cast(Process, None), told, 1.0)
    mounted = msgspec.Raw(b'["mcp__t__read"]')
    for _ in "ab":  # the CLI repeats the init message in each turn
        session.check(OutputLine("system", "init", tools=mounted, mcp_servers=msgspec.Raw(b"[]")))
    (warning,) = session.warnings
    assert (warning.code, warning.message.endswith(": look.up")) == ("content_dropped", True)
