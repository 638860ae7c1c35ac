"""The vendors' own SDKs: calls as their objects are converted, and their strict schemas need no further change."""

import json
from typing import Any

import dragoman
from dragoman.schema import targets
from dragoman.schema.adapt import adapt

ARGUMENTS = {"path": "/t", "n": 1}
CHAT_CALL = {"id": "call_1", "type": "function", "function": {"name": "Read", "arguments": json.dumps(ARGUMENTS)}}
MESSAGES_CALL = {"type": "tool_use", "id": "call_1", "name": "Read", "input": ARGUMENTS}
NODE = {"type": "object", "properties": {"left": {"$ref": "#/$defs/node"}, "name": {"type": "string"}}}
EMAIL = {"type": "string", "pattern": r"^(?!\.)[a-z.]+$", "format": "email"}
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "to": {"type": "array", "items": EMAIL, "minItems": 2},
            "when": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}], "default": None},
            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
            "tree": {"$ref": "#/$defs/node"},
            "level": {"oneOf": [{"type": "integer", "minimum": 1}, {"const": "all"}]},
        },
        "required": ["to"],
        "$defs": {"node": NODE},
        "$schema": "http://json-schema.org/draft-07/schema#",
    }
)


def test_objects_of_the_sdks_are_converted() -> None:
    from anthropic.types import Message
    from openai.types.chat import ChatCompletionMessageFunctionToolCall

    call = ChatCompletionMessageFunctionToolCall.model_validate(CHAT_CALL)
    assert dragoman.convert_calls([call], api="anthropic_messages") == [MESSAGES_CALL]
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = Message.model_validate(
        {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [MESSAGES_CALL]}
        | {"stop_reason": "tool_use", "stop_sequence": None, "usage": usage}
    )
    (item,) = dragoman.convert_calls(message.content, api="openai_responses")
    assert (item["call_id"], json.loads(item["arguments"])) == ("call_1", ARGUMENTS)


def test_pieces_of_the_sdks_become_one_call() -> None:
    from anthropic.types import RawContentBlockDeltaEvent
    from openai.types.chat import ChatCompletionChunk

    head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    functions: list[dict[str, object]] = [
        {"name": "Read", "arguments": ""},
        {"arguments": '{"path": '},
        {"arguments": '"/t"}'},
    ]
    pieces = [{"index": 0, "function": each} for each in functions]
    calls = [{**pieces[0], "id": "call_1", "type": "function"}, *pieces[1:]]
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]} for call in calls]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    expected = [("call_1", "Read", '{"path": "/t"}')]
    assert assembled([ChatCompletionChunk.model_validate(head | chunk) for chunk in chunks]) == expected
    block = {"type": "tool_use", "id": "call_1", "name": "Read", "input": {}}
    deltas = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": text}}
        for text in ('{"path": ', '"/t"}')
    ]
    events = [
        {"type": "content_block_start", "index": 0, "content_block": block},
        *map(RawContentBlockDeltaEvent.model_validate, deltas),
        {"type": "content_block_stop", "index": 0},
    ]
    assert assembled(events) == expected


def assembled(pieces: list[Any]) -> list[tuple[str, str, str]]:
    return [(call.id, call.name, call.arguments) for call in dragoman.assemble_calls(pieces)]


def test_the_sdks_change_nothing_in_a_strict_schema() -> None:
    from anthropic.lib._parse._transform import transform_schema
    from openai.lib._pydantic import _ensure_strict_json_schema

    strict = json.loads(adapt(SCHEMA, targets.OPENAI_STRICT).json)
    before = json.dumps(strict)
    assert json.dumps(_ensure_strict_json_schema(strict, path=(), root=strict)) == before
    strict = json.loads(adapt(SCHEMA, targets.ANTHROPIC_STRICT).json)
    assert transform_schema(strict) == strict
