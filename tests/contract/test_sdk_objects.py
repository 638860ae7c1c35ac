"""The vendors' own SDKs: calls as their objects are converted, and their strict schemas need no further change."""

import json

from anthropic.lib._parse._transform import transform_schema
from anthropic.types import Message
from openai.lib._pydantic import _ensure_strict_json_schema
from openai.types.chat import ChatCompletionMessageFunctionToolCall

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
    call = ChatCompletionMessageFunctionToolCall.model_validate(CHAT_CALL)
    assert dragoman.convert_calls([call], api="anthropic_messages") == [MESSAGES_CALL]
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = Message.model_validate(
        {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [MESSAGES_CALL]}
        | {"stop_reason": "tool_use", "stop_sequence": None, "usage": usage}
    )
    (item,) = dragoman.convert_calls(message.content, api="openai_responses")
    assert (item["call_id"], json.loads(item["arguments"])) == ("call_1", ARGUMENTS)


def test_the_sdks_change_nothing_in_a_strict_schema() -> None:
    strict = json.loads(adapt(SCHEMA, targets.OPENAI_STRICT).json)
    before = json.dumps(strict)
    assert json.dumps(_ensure_strict_json_schema(strict, path=(), root=strict)) == before
    strict = json.loads(adapt(SCHEMA, targets.ANTHROPIC_STRICT).json)
    assert transform_schema(strict) == strict
