"""Tool modes `parse` and `prompt`: tool calls are parsed from the text; tools are sent natively or in a prompt."""

import itertools
import json
import logging
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman import config, dialects, formats
from dragoman.backends.http.config import HttpConfig, ModelOverride
from dragoman.backends.http.model_modes import ModelMode, ModelModes
from dragoman.backends.text_mode import request
from dragoman.backends.text_mode.response import TextModeReader
from dragoman.core.backend import ExchangeContext
from dragoman.core.call_limit import limit_to_one_call
from dragoman.core.collect import Collector
from dragoman.core.errors import ConfigError
from dragoman.core.events import (
    AnyEvent,
    Finish,
    ReasoningDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageUpdate,
)
from dragoman.core.messages import (
    Image,
    MediaSource,
    Message,
    Reasoning,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
)
from support.fake_upstream import END, HEAD, piece, server, soon, whole
from support.text_upstream import ARGUMENTS, ASKED, FRONTS, PING, QUESTION, WEATHER, ask, cut, gateway, writes

MODES = ["parse", "prompt"]
CALL = f'<tool_call>\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n</tool_call>'
PARIS = ("get_weather", {"city": "Paris", "days": 3})


def sent(behind: Any, n: int = -1) -> Any:
    return json.loads(behind.asked[n][2])


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("mode", MODES)
async def test_call_in_text_is_parsed(mode: str, front: str, stream: bool) -> None:
    text = f"<think>\nLook it up.\n</think>\n\nSure.\n{CALL}"
    async with server(writes(*cut(text))) as behind, gateway(behind.url, tool_mode=mode) as (url, _):
        answer = await ask(url, front, replace(ASKED, stream=stream))
    assert next(part for part in answer.reply.parts if isinstance(part, Reasoning)).text.strip() == "Look it up."
    assert (answer.text, answer.calls, answer.reply.finish_reason) == ("Sure.", [PARIS], "tool_calls")


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("mode", MODES)
async def test_hallucinated_tool_result_ends_response_and_upstream_request(mode: str, front: str) -> None:
    text = f"{CALL}\n<tool_result>\n18 degrees\n</tool_result>\nIt is 18 degrees."
    async with server(writes(text, stays=True)) as behind, gateway(behind.url, tool_mode=mode) as (url, _):
        answer = await ask(url, front)
        await soon(behind.left)
    assert (answer.text, answer.calls, answer.reply.finish_reason) == ("", [PARIS], "tool_calls")
    assert "hallucinated_tool_result" in answer.warnings


@pytest.mark.parametrize("mode", MODES)
async def test_parallel_calls_disabled_ends_upstream_request_after_one_call(mode: str) -> None:
    asked = replace(ASKED, tool_choice=ToolChoice(parallel_tool_calls=False))
    async with server(writes(f"{CALL}\n{CALL}", stays=True)) as behind, gateway(behind.url, tool_mode=mode) as (url, _):
        answer = await ask(url, "openai_chat", asked)
        await soon(behind.left)
    assert (answer.calls, answer.reply.finish_reason) == ([PARIS], "tool_calls")


async def test_repeated_call_ends_response_in_prompt_mode_only() -> None:
    rome = CALL.replace("Paris", "Rome")
    text = f"{CALL}\n{rome}\n{CALL}\n{CALL}"
    async with server(writes(*cut(text), stays=True)) as behind, gateway(behind.url, tool_mode="prompt") as (url, _):
        answer = await ask(url, "openai_chat")
        await soon(behind.left)
    assert answer.calls == [PARIS, ("get_weather", {"city": "Rome", "days": 3})]
    assert "duplicate_call_dropped" in answer.warnings
    async with server(writes(f"{CALL}\n{CALL}")) as behind, gateway(behind.url, tool_mode="parse") as (url, _):
        assert (await ask(url, "openai_chat")).calls == [PARIS, PARIS]


HISTORY = (
    QUESTION,
    Message("assistant", (Text("Let me see."), ToolCall("call_1", "get_weather", ARGUMENTS))),
    Message("tool", (ToolResult("call_1", (Text("18 degrees"),)),)),
)


@pytest.mark.parametrize("front", FRONTS)
async def test_parse_mode_sends_native_tools_and_history(front: str) -> None:
    asked = replace(ASKED, messages=HISTORY)
    async with server(writes("It is 18 degrees.")) as behind, gateway(behind.url, tool_mode="parse") as (url, _):
        answer = await ask(url, front, asked)
    assert (answer.text, answer.reply.finish_reason) == ("It is 18 degrees.", "stop")
    body = sent(behind)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["get_weather", "ping"]
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool"]
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})


@pytest.mark.parametrize("name", ["hermes", "qwen3_xml", "kimi_k2"])
@pytest.mark.parametrize("front", FRONTS)
async def test_prompt_mode_sends_tools_and_history_as_text(front: str, name: str) -> None:
    asked = replace(ASKED, messages=HISTORY, tool_choice=ToolChoice("required"), stop=("END",))
    settings = {"tool_mode": "prompt", "call_format": name}
    async with server(writes("It is 18 degrees.")) as behind, gateway(behind.url, **settings) as (url, _):
        answer = await ask(url, front, asked)
    assert answer.text == "It is 18 degrees."
    body, again = sent(behind, -2), sent(behind)  # a re-ask, as the model made no call
    assert again["messages"][: len(body["messages"])] == body["messages"]
    assert not body.keys() & {"tools", "tool_choice", "parallel_tool_calls", "stop"}
    assert (body["stream"], body["max_tokens"]) == (True, 200)
    system, user, assistant, result = body["messages"]
    format = formats.get(name)
    assert [m["role"] for m in body["messages"]] == ["system", "user", "assistant", "user"]
    assert system["content"] == format.write_tools(asked.tools, limit_to_one_call(asked).tool_choice)
    assert user["content"] == "Weather in Paris?"
    call = format.numbered(ToolCall("call_1", "get_weather", ARGUMENTS), 0)
    assert assistant["content"] == f"Let me see.\n{format.write_calls([call])}"
    assert "18 degrees" in result["content"]
    assert result["content"] != "18 degrees"


@pytest.mark.parametrize("api", FRONTS)
@pytest.mark.parametrize("front", FRONTS)
async def test_prompt_mode_works_with_every_upstream_api(api: str, front: str) -> None:
    writer = dialects.get(api).writer(replace(ASKED, stream=True))
    events = [Start("1", "m", 0), *map(TextDelta, cut(CALL)), UsageUpdate(Usage(9, 9)), Finish("stop")]
    play = whole(200, b"".join(map(writer.feed, events)).decode(), "text/event-stream")
    asked = replace(ASKED, messages=HISTORY, tool_choice=ToolChoice("required"), stop=("END",))
    async with server(play) as behind, gateway(behind.url, tool_mode="prompt", api=api) as (url, _):
        answer = await ask(url, front, asked)
    assert (answer.text, answer.calls, answer.reply.finish_reason) == ("", [PARIS], "tool_calls")
    got = dialects.get(api).read_request(behind.asked[-1][2])
    assert (got.tools, got.tool_choice.mode, got.stop, got.stream) == ((), "auto", (), True)
    assert [message.role for message in got.messages] == ["system", "user", "assistant", "user"]
    assert got.instruction_count == (0 if api == "openai_chat" else 1)
    assert all(isinstance(part, Text) for message in got.messages for part in message.parts)


async def test_image_dropped_in_prompt_mode_is_reported() -> None:
    seen = Message("user", (Image(MediaSource("image/png", "aGk=")), Text("What is this?")))
    async with server(writes("A cat.")) as behind, gateway(behind.url, tool_mode="prompt") as (url, _):
        answer = await ask(url, "openai_chat", replace(ASKED, messages=(seen,)))
    assert sent(behind)["messages"][-1]["content"] == "[image]\nWhat is this?"
    assert "content_dropped" in answer.warnings


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("mode", MODES)
async def test_tool_choice_none_leaves_call_as_text(mode: str, front: str) -> None:
    asked = replace(ASKED, tool_choice=ToolChoice("none"))
    async with server(writes(*cut(CALL))) as behind, gateway(behind.url, tool_mode=mode) as (url, _):
        answer = await ask(url, front, asked)
    assert (answer.text.strip(), answer.calls, answer.reply.finish_reason) == (CALL, [], "stop")
    if mode == "prompt":
        assert [message["role"] for message in sent(behind)["messages"]] == ["user"]


@pytest.mark.parametrize("mode", MODES)
async def test_stop_string_inside_call_does_not_cut_it(mode: str) -> None:
    asked = replace(ASKED, stop=("\n", "Paris", "END"))
    text = f"{CALL}\nand END then"
    async with server(writes(*cut(CALL), stays=True)) as behind, gateway(behind.url, tool_mode=mode) as (url, _):
        behind.play = writes(*cut(text), stays=True)
        answer = await ask(url, "anthropic_messages", asked)
        await soon(behind.left)
    assert "stop" not in sent(behind)
    assert answer.calls == [PARIS]
    assert answer.text.strip() in ("", "and")


@pytest.mark.parametrize("mode", MODES)
async def test_stop_string_ends_text_and_upstream_request(mode: str) -> None:
    async with server(writes("one E", "ND two", stays=True)) as behind, gateway(behind.url, tool_mode=mode) as (url, _):
        answer = await ask(url, "anthropic_messages", replace(ASKED, stop=("END",)))
        await soon(behind.left)
    assert (answer.text, answer.reply.finish_reason, answer.reply.stop_sequence) == ("one ", "stop_sequence", "END")


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("mode", MODES)
async def test_call_truncated_by_token_limit_finishes_with_length(mode: str, front: str) -> None:
    half = CALL[: CALL.index("Paris") + 2]
    async with server(writes(*cut(half), finish="length")) as behind, gateway(behind.url, tool_mode=mode) as (url, _):
        answer = await ask(url, front, replace(ASKED, stream=True))
    assert answer.reply.finish_reason == "length"


@pytest.mark.parametrize("front", FRONTS)
async def test_native_call_is_forwarded_in_parse_mode(front: str) -> None:
    async def play(server: Any, writer: Any) -> None:
        native = {"index": 0, "id": "call_7", "type": "function", "function": {"name": "ping", "arguments": "{}"}}
        writer.write(HEAD + piece({"content": CALL}) + piece({"tool_calls": [native]}) + piece({}, "tool_calls") + END)

    async with server(play) as behind, gateway(behind.url, tool_mode="parse") as (url, _):
        answer = await ask(url, front)
    assert answer.calls == [PARIS, ("ping", {})]


@pytest.mark.parametrize("first", ["text", "server"])
async def test_native_call_that_duplicates_text_call_is_dropped(first: str) -> None:
    async def play(server: Any, writer: Any) -> None:
        function = {"name": "get_weather", "arguments": '{"days":3,"city":"Paris"}'}
        native = piece({"tool_calls": [{"index": 0, "id": "call_7", "type": "function", "function": function}]})
        pieces = [piece({"content": CALL}), native]
        writer.write(HEAD + b"".join(pieces if first == "text" else reversed(pieces)) + piece({}, "tool_calls") + END)

    async with server(play) as behind, gateway(behind.url, tool_mode="parse") as (url, _):
        answer = await ask(url, "openai_chat")
    assert (answer.calls, answer.text) == ([PARIS], "")
    assert "duplicate_call_dropped" in answer.warnings


async def test_incomplete_call_is_not_recovered_as_another_call() -> None:
    broken = CALL.replace('"Paris"', "Paris")
    async with (
        server(writes(broken)) as behind,
        gateway(behind.url, tool_mode="parse", call_format="hermes") as (url, _),
    ):
        answer = await ask(url, "openai_chat")
    assert (answer.calls, answer.reply.finish_reason) == ([], "stop")
    assert broken.startswith(answer.text)
    assert "incomplete_call" in answer.warnings


async def test_text_call_replaces_only_one_of_two_native_calls() -> None:
    async def play(server: Any, writer: Any) -> None:
        function = {"name": "get_weather", "arguments": ARGUMENTS}
        calls = [{"index": n, "id": f"call_{n}", "type": "function", "function": function} for n in (0, 1)]
        writer.write(HEAD + piece({"content": CALL}) + piece({"tool_calls": calls}) + piece({}, "tool_calls") + END)

    async with server(play) as behind, gateway(behind.url, tool_mode="parse") as (url, _):
        answer = await ask(url, "openai_chat")
    assert answer.calls == [PARIS, PARIS]


async def test_call_ids_of_a_response_are_unique() -> None:
    call = f'{{"tool_call_id": "7", "tool_name": "get_weather", "parameters": {ARGUMENTS}}}'

    async def play(server: Any, writer: Any) -> None:
        function = {"name": "ping", "arguments": "{}"}
        native = piece({"tool_calls": [{"index": 0, "id": "7", "type": "function", "function": function}]})
        text = piece({"content": f"<|START_ACTION|>[{call}]<|END_ACTION|>"})
        writer.write(HEAD + text + native + piece({}, "tool_calls") + END)

    async with server(play) as behind, gateway(behind.url, tool_mode="parse", call_format="cohere") as (url, _):
        answer = await ask(url, "openai_chat")
    ids = [part.id for part in answer.reply.parts if isinstance(part, ToolCall)]
    assert answer.calls == [PARIS, ("ping", {})]
    assert len(set(ids)) == 2
    assert "7" in ids


async def test_sanitized_tool_name_in_text_is_mapped_back() -> None:
    tools = (Tool("fs.read"), PING)
    async with server(writes("…")) as behind, gateway(behind.url, tool_mode="parse", call_format="hermes") as (url, _):
        await ask(
            url, "anthropic_messages", replace(ASKED, tools=(WEATHER,)), tools=[{"name": "fs.read", "input_schema": {}}]
        )
        name = sent(behind)["tools"][0]["function"]["name"]
        behind.play = writes(f'<tool_call>\n{{"name": "{name}", "arguments": {{}}}}\n</tool_call>')
        asked = replace(ASKED, tools=tools)
        answer = await ask(url, "anthropic_messages", asked, tools=[{"name": "fs.read", "input_schema": {}}])
    assert name != "fs.read"
    assert [called for called, _ in answer.calls] == ["fs.read"]


# How the mode is chosen


def modes_for(**settings: Any) -> ModelModes:
    return ModelModes("far", HttpConfig(url="http://127.0.0.1:9", **settings))


def test_model_override_selects_tool_mode_and_format() -> None:
    rows = {"smollm*": ModelOverride(tool_mode="prompt"), "*-coder-*": ModelOverride(call_format="qwen3_xml")}
    chosen = modes_for(tool_mode="parse", call_format="hermes", model_overrides=rows)
    assert (chosen.get("SmolLM2-135M").tool_mode, chosen.get("SmolLM2-135M").call_format) == ("prompt", "hermes")
    assert (chosen.get("qwen-coder-7b").tool_mode, chosen.get("qwen-coder-7b").call_format) == ("parse", "qwen3_xml")
    assert (chosen.get("other").tool_mode, chosen.get("other").call_format) == ("parse", "hermes")


def test_measured_mode_applies_only_in_auto_mode(caplog: pytest.LogCaptureFixture) -> None:
    measured = ModelMode("prompt", "glm", why="the probe found no tools")
    with caplog.at_level(logging.INFO, "dragoman.backends.http"):
        open_, stated = modes_for(), modes_for(tool_mode="native")
        assert open_.get("m").tool_mode == "native"
        for each in (open_, stated):
            each.set_measured("m", measured)
            each.get("m")
            each.get("m")
        assert open_.get("m") == measured
        assert stated.get("m").tool_mode == "native"
    assert [record.getMessage() for record in caplog.records] == [
        "far: m is asked in tool mode native: nothing else is known of it",
        "far: m is asked in tool mode prompt, format glm: the probe found no tools",
        "far: m is asked in tool mode native, format glm: the settings say so",
    ]


def test_format_is_derived_from_model_name() -> None:
    assert ModelMode().format_of("Qwen/Qwen3-8B").name == "hermes"
    assert ModelMode().format_of("no-such-model").name == "auto"
    assert ModelMode(call_format="glm").format_of("Qwen/Qwen3-8B").name == "glm"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"tool_mode": "promt"}, "unknown tool_mode 'promt'; did you mean 'prompt'?"),
        ({"call_format": "hermez"}, "unknown format 'hermez'; did you mean 'hermes'?"),
        ({"model_overrides": {"a*": ModelOverride(tool_mode="x")}}, "at upstreams.far.model_overrides.a*.tool_mode"),
    ],
)
def test_invalid_mode_or_format_setting_is_rejected(settings: Any, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        modes_for(**settings)
    assert told in str(refused.value)


def test_config_file_sets_model_overrides(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    table = '[upstreams.far]\nurl = "http://127.0.0.1:9"\n[upstreams.far.model_overrides."smollm*"]\n'
    file.write_text(f'{table}tool_mode = "prompt"\nendpoint = "completions"\n')
    loaded, _ = config.load(file, {}, {})
    assert loaded.upstreams["far"].model_overrides == {
        "smollm*": ModelOverride(tool_mode="prompt", endpoint="completions")
    }
    for wrong, told in (("tool_mode = 3", "got `int`"), ('tool_mod = "prompt"', "unknown field `tool_mod`")):
        file.write_text(f"{table}{wrong}\n")
        with pytest.raises(ConfigError, match=rf"{told} - at `upstreams\.far\.model_overrides\[\.\.\.\]"):
            config.load(file, {}, {})


TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}'
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)


@pytest.mark.parametrize("mode", MODES)
async def test_reasoning_opened_by_template_is_parsed(mode: str, tmp_path: Path) -> None:
    file = tmp_path / "thinks.jinja"
    file.write_text(TEMPLATE)
    text = f"Look it up.\n</think>\n\nSure.\n{CALL}"
    settings = {"tool_mode": mode, "chat_template": str(file)}
    async with server(writes(*cut(text))) as behind, gateway(behind.url, **settings) as (url, _):
        answer = await ask(url, "anthropic_messages")
        thoughts = [part.text.strip() for part in answer.reply.parts if isinstance(part, Reasoning)]
        assert (thoughts, answer.text, answer.calls) == (["Look it up."], "Sure.", [PARIS])

        async def apart(far: Any, writer: Any) -> None:
            """The server has moved the reasoning to its own field."""
            said = piece({"reasoning_content": "Look it up."}) + piece({"content": f"Sure.\n{CALL}"})
            writer.write(HEAD + said + piece({}, "stop") + END)

        behind.play = apart
        answer = await ask(url, "anthropic_messages")
    thoughts = [part.text.strip() for part in answer.reply.parts if isinstance(part, Reasoning)]
    assert (thoughts, answer.text, answer.calls) == (["Look it up."], "Sure.", [PARIS])


async def test_missing_template_file_is_reported(tmp_path: Path) -> None:
    settings = {"tool_mode": "parse", "chat_template": str(tmp_path / "none.jinja")}
    async with server(writes("")) as behind, gateway(behind.url, **settings) as (url, _):
        with pytest.raises(AssertionError, match="cannot read the chat template"):
            await ask(url, "openai_chat")


PIECES = [
    *(CALL, CALL.replace('"Paris"', "Paris"), CALL[:50], "words", "\n", "```\n", "<think>", "</think>", "{", "}"),
    *("[TOOL_CALLS]ping[ARGS]{}", "<tool_call>", "</tool_call>", '{"name": "ping", "arguments": {}}', "<tool_result>"),
]
EVENTS = st.one_of(
    st.sampled_from(PIECES).map(TextDelta),
    st.sampled_from([*PIECES, "words"]).map(ReasoningDelta),
    st.sampled_from(["{}", ARGUMENTS]),  # arguments of a native call
)


@settings(max_examples=300)
@given(
    st.lists(EVENTS, max_size=8),
    st.sampled_from(["", "hermes", "auto"]),
    st.booleans(),
    st.sampled_from(["stop", "length"]),
)
def test_text_mode_reader_emits_events_in_order(said: list[Any], name: str, parallel: bool, reason: Any) -> None:
    ids = itertools.count()
    context = ExchangeContext("1", 0, lambda: f"{next(ids):024}")
    new = partial(request.text_reader, request=ASKED, tools=ASKED.tools, context=context)
    known = formats.get(name) if name else None
    reader = (lambda begins: new(known)) if known else None
    leaks = None if name == "auto" else request.leak_detector(ASKED, new)
    reread = TextModeReader(
        reader, leaks, context.new_id, {}, lambda: None, parallel=parallel, repeats=name != "hermes"
    )
    events: list[AnyEvent] = [Start("1", "m", 0)]
    calls = 0
    for each in said:
        if isinstance(each, str):
            events += [ToolCallStart(calls, f"call_{calls}", "ping"), ToolCallDelta(calls, each), ToolCallEnd(calls)]
            calls += 1
        else:
            events.append(each)
    collector = Collector()
    for event in reread.feed([*events, Finish(reason)]):
        collector.feed(event)
    assert collector.phase == "ended"
    made = [part for part in collector.reply().parts if isinstance(part, ToolCall)]
    assert len({part.id for part in made}) == len(made)
