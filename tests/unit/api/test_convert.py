"""Conversion of tools, calls and results between APIs, and assembly of streamed calls."""

import itertools
import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dragoman
from dragoman import dialects
from dragoman.core.errors import ConfigError, RequestError, UnsupportedError, UpstreamError, UsageError
from support import cpu_cost

SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string", "description": "File path"}},
    "required": ["path"],
}
TOOLS: dict[str, Any] = {
    "anthropic_messages": {"name": "Read", "description": "Read a file", "input_schema": SCHEMA},
    "openai_chat": {
        "type": "function",
        "function": {"name": "Read", "description": "Read a file", "parameters": SCHEMA},
    },
    "openai_responses": {
        "type": "function",
        "name": "Read",
        "description": "Read a file",
        "parameters": SCHEMA,
        "strict": False,
    },
}
ARGUMENTS = '{"path": "/t", "n": 1}'
CALLS: dict[str, Any] = {
    "anthropic_messages": {"type": "tool_use", "id": "call_1", "name": "Read", "input": {"path": "/t", "n": 1}},
    "openai_chat": {"id": "call_1", "type": "function", "function": {"name": "Read", "arguments": ARGUMENTS}},
    "openai_responses": {"type": "function_call", "call_id": "call_1", "name": "Read", "arguments": ARGUMENTS},
}
RESULTS: dict[str, Any] = {
    "anthropic_messages": {"type": "tool_result", "tool_use_id": "call_1", "content": "18 °C"},
    "openai_chat": {"role": "tool", "tool_call_id": "call_1", "content": "18 °C"},
    "openai_responses": {"type": "function_call_output", "call_id": "call_1", "output": "18 °C"},
}
pairs = pytest.mark.parametrize(("source", "to"), list(itertools.product(dialects.names(), repeat=2)))


@pairs
def test_tool_is_converted_between_apis(source: str, to: str) -> None:
    converted = dragoman.convert_tools([TOOLS[source]], api=to, source_api=source)
    assert converted == [TOOLS[to]]
    assert converted.warnings == ()
    assert dragoman.convert_tools(TOOLS[source], api=to) == converted, "one by itself"


@pairs
def test_call_is_converted_between_apis(source: str, to: str) -> None:
    (converted,) = dragoman.convert_calls([CALLS[source]], api=to)
    for call in (converted, expected := json.loads(json.dumps(CALLS[to]))):
        holder = call.get("function", call)
        if "arguments" in holder:
            holder["arguments"] = json.loads(holder["arguments"])
    assert converted == expected


@pairs
def test_result_is_converted_between_apis(source: str, to: str) -> None:
    assert dragoman.convert_results([RESULTS[source]], api=to) == [RESULTS[to]]


def test_convert_calls_keeps_arguments_text() -> None:
    written = '{"n": 1.50,  "big": 9223372036854775808123, "n": "\\u00e9"}'
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": written}}
    (item,) = dragoman.convert_calls(call, api="openai_responses")
    assert item["arguments"] == written
    (block,) = dragoman.convert_calls(call, api="anthropic_messages")
    assert block["input"] == {"n": "é", "big": 9223372036854775808123}


@pytest.mark.parametrize("arguments", ["", None, {}, "{}"])
def test_empty_arguments_become_empty_object(arguments: Any) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    assert dragoman.convert_calls(call, api="anthropic_messages") == [
        {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    ]


def test_mixed_input_shapes_are_converted() -> None:
    mixed = [dragoman.Tool("f"), TOOLS["openai_chat"], TOOLS["anthropic_messages"], TOOLS["openai_responses"]]
    names = [tool["name"] for tool in dragoman.convert_tools(mixed, api="anthropic_messages")]
    assert names == ["f", "Read", "Read", "Read"]
    call = dragoman.ToolCall("a", "f", "{}")
    assert dragoman.convert_calls(call, api="openai_chat")[0]["function"] == {"name": "f", "arguments": "{}"}
    failed = dragoman.types.ToolResult("a", (dragoman.types.Text("no"),), is_error=True)
    assert dragoman.convert_results([failed], api="openai_chat")[0]["content"] == "Error: no"


def test_unsupported_schema_is_adapted_with_warning() -> None:
    either = {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    converted = dragoman.convert_tools([{"name": "f", "input_schema": either}], api="openai_chat")
    assert converted[0]["function"]["parameters"] == {"type": "object", "properties": {}}
    assert [w.code for w in converted.warnings] == ["schema_adapted"]


def test_schema_is_adapted_for_named_server() -> None:
    tool = {"name": "f", "input_schema": {"type": "object", "properties": {"a": {"type": "string", "pattern": "a"}}}}
    converted = dragoman.convert_tools(tool, api="openai_chat", schemas="llama_cpp")
    assert converted[0]["function"]["parameters"]["properties"] == {"a": {"type": "string"}}
    assert [w.message for w in converted.warnings] == ["for llama_cpp: f ($.properties.a: pattern left out)"]
    with pytest.raises(ConfigError, match="unknown server 'llamacpp'; did you mean 'llama_cpp'"):
        dragoman.convert_tools(tool, api="openai_chat", schemas="llamacpp")


def test_shortened_names_and_ids_are_restored() -> None:
    long = "mcp__" + "server_" * 12
    tool = {"name": long, "input_schema": SCHEMA}
    (sent,) = dragoman.convert_tools(tool, api="openai_chat")
    name = sent["function"]["name"]
    assert len(name) <= 64
    call = {"id": "functions.Bash:0", "type": "function", "function": {"name": name, "arguments": ""}}
    (block,) = dragoman.convert_calls(call, api="anthropic_messages", tools=[tool])
    assert (block["name"], block["id"][:2]) == (long, "dm")
    assert dragoman.convert_calls(call, api="anthropic_messages")[0]["name"] == name
    result = {"type": "tool_result", "tool_use_id": block["id"], "content": "x"}
    assert dragoman.convert_results(result, api="openai_chat")[0]["tool_call_id"] == "functions.Bash:0"


def test_images_in_results_become_user_message() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [picture]}
    converted = dragoman.convert_results([result], api="openai_chat")
    assert [message["role"] for message in converted] == ["tool", "user"]
    assert [w.code for w in converted.warnings] == ["request_adapted"]


CHAT = TOOLS["openai_chat"]
INSIDE = CHAT["function"]
TRUNCATED = {"id": "c", "type": "function", "function": {"name": "Read", "arguments": '{"path": "/t'}}
LISTED = {"id": "c", "type": "function", "function": {"name": "Read", "arguments": "[]"}}
INVALID = [
    (
        "tools",
        [CHAT, INSIDE],
        RequestError,
        "'parameters' given, 'input_schema' expected in anthropic_messages - at tools[1]",
    ),
    (
        "tools",
        {"type": "function", "function": {"name": "f", "input_schema": {}}},
        RequestError,
        "'function.input_schema' given, 'function.parameters' expected; openai_chat has",
    ),
    (
        "tools",
        {"type": "function", "name": "f", "input_schema": {}},
        RequestError,
        "'input_schema' given, 'parameters' expected; openai_responses has",
    ),
    (
        "tools",
        [CHAT, CHAT, {"type": "function", "function": {"name": 1}}],
        RequestError,
        "expected string, got number - at tools[2].function.name",
    ),
    ("tools", {"name": "", "input_schema": {}}, RequestError, "an empty one - at tools[0].name"),
    ("tools", {"name": "f", "input_schema": []}, RequestError, "expected object, got array - at tools[0].input_schema"),
    ("tools", {}, RequestError, "got an object of nothing - at tools[0]"),
    (
        "tools",
        {"type": "web_search_20250305", "name": "web_search"},
        UnsupportedError,
        "'web_search_20250305' is run by its vendor; leave it out - at tools[0]",
    ),
    ("tools", "Read", UsageError, "expected a list of tools, got str - at tools"),
    ("tools", [1], UsageError, "got int - at tools[0]"),
    ("tools", [{"name": len}], UsageError, "- at tools[0]"),
    (
        "calls",
        [CALLS["openai_chat"], TRUNCATED],
        RequestError,
        "/t': Input data was truncated - at calls[1].function.arguments",
    ),
    ("calls", LISTED, RequestError, "Expected `object`, got `array` - at calls[0].function.arguments"),
    (
        "calls",
        {"type": "function", "function": {"name": "f"}},
        RequestError,
        "missing required field 'id' - at calls[0]",
    ),
    (
        "calls",
        {"type": "tool_use", "id": "a", "name": "f", "arguments": {}},
        RequestError,
        "'arguments' given, 'input' expected; anthropic_messages has",
    ),
    (
        "calls",
        {"name": "f", "arguments": {}},
        RequestError,
        "'arguments' given, 'input' expected in anthropic_messages - at calls[0]",
    ),
    (
        "results",
        {"type": "tool_result", "tool_call_id": "a"},
        RequestError,
        "'tool_call_id' given, 'tool_use_id' expected",
    ),
    ("results", {"role": "user", "content": "hi"}, RequestError, "got an object of 'role', 'content'"),
]


@pytest.mark.parametrize(("what", "given_", "error", "says"), INVALID)
def test_invalid_input_is_reported_with_position(what: str, given_: Any, error: type[Exception], says: str) -> None:
    convert = {"tools": dragoman.convert_tools, "calls": dragoman.convert_calls, "results": dragoman.convert_results}
    with pytest.raises(error) as raised:
        convert[what](given_, api="openai_chat")
    assert says in str(raised.value)


def test_wrong_source_or_target_api_is_reported() -> None:
    with pytest.raises(RequestError, match=r"this is the shape of anthropic_messages; leave `source_api` out"):
        dragoman.convert_tools(TOOLS["anthropic_messages"], api="openai_chat", source_api="openai_chat")
    with pytest.raises(RequestError, match=r"'parameters' given, 'input_schema' expected - at tools\[0\]"):
        dragoman.convert_tools(INSIDE, api="openai_chat", source_api="anthropic_messages")
    with pytest.raises(ConfigError, match="did you mean 'openai_chat'"):
        dragoman.convert_tools([], api="openai")


# Pieces.


def start(id: str = "call_123", name: str = "Read") -> dict[str, Any]:
    return {"type": "tool_call_start", "id": id, "name": name}


def delta(text: str, id: str = "call_123") -> dict[str, Any]:
    return {"type": "tool_call_delta", "id": id, "delta": text}


def end(id: str = "call_123") -> dict[str, Any]:
    return {"type": "tool_call_end", "id": id}


def complete(arguments: Any, id: str = "call_123") -> dict[str, Any]:
    return {"type": "tool_call_complete", "id": id, "arguments": arguments}


def shown(calls: Iterable[dragoman.ToolCall]) -> list[tuple[str, str, str]]:
    return [(call.id, call.name, call.arguments) for call in calls]


READ = ("call_123", "Read", '{"path":"/t"}')
NEUTRAL = {
    "start, deltas, end": ([start(), delta('{"path":'), delta('"/t"}'), end()], [READ]),
    "start, end, complete": ([start(), end(), complete('{"path":"/t"}')], [READ]),
    "complete with an object": ([start(), complete({"path": "/t"}), end()], [READ]),
    "complete repeats the deltas": ([start(), delta('{"path":"/t"}'), end(), complete('{"path":"/t"}')], [READ]),
    "complete says them in other words": ([start(), delta('{"path":"/t"}'), complete('{ "path": "/t" }')], [READ]),
    "complete ends the deltas": ([start(), delta('{"path"'), complete('{"path":"/t"}')], [READ]),
    "a delta before the start": ([delta('{"path":"/t"}'), start(), end()], [READ]),
    "no end": ([start(), delta('{"path":"/t"}')], [READ]),
    "no arguments": ([start(), end()], [("call_123", "Read", "{}")]),
    "empty arguments": ([start(), delta(""), end(), complete("")], [("call_123", "Read", "{}")]),
    "two in turns": (
        [
            start(),
            start("b", "Write"),
            delta("{", "b"),
            delta('{"path":'),
            delta("}", "b"),
            delta('"/t"}'),
            end("b"),
            end(),
        ],
        [READ, ("b", "Write", "{}")],
    ),
    "nothing": ([], []),
}


@pytest.mark.parametrize(("pieces", "expected"), NEUTRAL.values(), ids=list(NEUTRAL))
def test_neutral_call_events_are_assembled(pieces: list[Any], expected: list[Any]) -> None:
    calls = dragoman.assemble_calls(pieces)
    assert shown(calls) == expected
    assert calls.warnings == ()


def chat(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"tool_calls": list(calls)}, "finish_reason": None} | more]}


CHUNKS = [
    chat({"index": 0, "id": "call_123", "type": "function", "function": {"name": "Read", "arguments": ""}}),
    chat({"index": 0, "function": {"arguments": '{"path":'}}),
    chat({"index": 0, "function": {"arguments": '"/t"}'}}),
]
BLOCK = {"type": "tool_use", "id": "call_123", "name": "Read", "input": {}}
ANTHROPIC = [
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "tool_use", "id": "call_123", "name": "Read", "input": {}},
    },
    {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"path":'}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '"/t"}'}},
    {"type": "content_block_stop", "index": 0},
]
ITEM = {"type": "function_call", "id": "fc_1", "call_id": "call_123", "name": "Read", "arguments": ""}
RESPONSES = [
    {"type": "response.output_item.added", "output_index": 0, "item": ITEM},
    {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "output_index": 0, "delta": '{"path":'},
    {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "output_index": 0, "delta": '"/t"}'},
    {"type": "response.output_item.done", "output_index": 0, "item": {**ITEM, "arguments": '{"path":"/t"}'}},
]
STREAMS: dict[str, list[Any]] = {
    "chunks": CHUNKS,
    "their deltas": [chunk["choices"][0]["delta"] for chunk in CHUNKS],
    "their calls": [chunk["choices"][0]["delta"]["tool_calls"][0] for chunk in CHUNKS],
    "words before": [{"content": "Let me look.", "role": "assistant"}, *(c["choices"][0]["delta"] for c in CHUNKS)],
    "to the end": [*CHUNKS, {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}],
    "Messages": ANTHROPIC,
    "Responses": RESPONSES,
}


@pytest.mark.parametrize("pieces", STREAMS.values(), ids=list(STREAMS))
def test_api_stream_events_are_assembled(pieces: list[Any]) -> None:
    assert shown(dragoman.assemble_calls(pieces)) == [READ]


@given(st.lists(st.integers(1, 12), max_size=6))
def test_call_assembler_emits_deltas_as_they_arrive(cuts: list[int]) -> None:
    arguments, pieces = '{"path": "/tmp/é", "n": [1, 2]}', [start()]
    left = arguments
    for cut in cuts:
        pieces.append(delta(left[:cut]))
        left = left[cut:]
    parts = dragoman.CallAssembler()
    said = ""
    for piece in [*pieces, delta(left), end()]:
        events = parts.feed(piece)
        said += "".join(event.text for event in events if isinstance(event, dragoman.ToolCallDelta))
    assert said == arguments
    assert isinstance(parts.close()[-1], dragoman.Finish)


BROKEN = [
    (
        [start(), delta("{}", "call_124")],
        RequestError,
        "'call_124'; did you mean 'call_123'?; no tool_call_start has it - at pieces[1].id",
    ),
    ([start(), delta('{"path":')], RequestError, """the arguments of 'Read' (call_123), got '{"path":'"""),
    ([start(), delta("[1]"), end()], RequestError, "got '[1]': that is another value"),
    ([start(), delta('{"a":1}'), complete('{"a":2}')], RequestError, "got others - at pieces[2].arguments"),
    (
        [start(), {"type": "tool_call_delta", "id": "call_123"}],
        RequestError,
        "missing required field 'delta' - at pieces[1]",
    ),
    ([start(), {"type": "tool_call_delta", "delta": ""}], RequestError, "missing required field 'id' - at pieces[1]"),
    ([start(name="")], RequestError, "an empty one - at pieces[0].name"),
    (
        [start(), {"type": "tool_call_dleta"}],
        RequestError,
        "'tool_call_dleta'; did you mean 'tool_call_delta'? - at pieces[1].type",
    ),
    ([start(), CHUNKS[0]], RequestError, "a piece of openai_chat among those of no API - at pieces[1]"),
    ([{"text": "hi"}], RequestError, "expected a piece of a stream, got an object of 'text' - at pieces[0]"),
    ([CHUNKS[0], {"choices": 1}], UpstreamError, "expected array, got number"),
    ([1], UsageError, "got int - at pieces[0]"),
    ("x", UsageError, "expected a list of pieces, got str - at pieces"),
]


@pytest.mark.parametrize(("pieces", "error", "says"), BROKEN)
def test_invalid_pieces_are_reported_with_position(pieces: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as raised:
        dragoman.assemble_calls(pieces)
    assert says in str(raised.value)


@pytest.mark.parametrize("shape", ["only calls", "chunks"])
def test_assembly_time_is_linear_in_arguments_length(shape: str) -> None:
    def made(chars: int) -> Callable[[], object]:
        arguments = json.dumps({"content": 'line of "code"\n' * (chars // 16)})
        texts = [arguments[at : at + 4096] for at in range(0, len(arguments), 4096)]
        if shape == "chunks":
            pieces = [CHUNKS[0], *(chat({"index": 0, "function": {"arguments": text}}) for text in texts)]
        else:
            pieces = [start(), *map(delta, texts), end(), complete(arguments)]
        (call,) = dragoman.assemble_calls(pieces)
        assert call.arguments == arguments
        return lambda: dragoman.assemble_calls(pieces)

    assert cpu_cost.growth(made, 500_000, 2_000_000, most=2.5) < 2.5
