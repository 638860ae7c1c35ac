"""Upstream servers that reject a parameter, and complete response bodies."""

import asyncio
import json

from support.fake_upstream import (
    Play,
    Server,
    whole,
)

SAID_NO = {
    "temperature": "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value "
    "is supported.",
    "max_tokens": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
    "instead.",
    "top_k": '[{"type":"extra_forbidden","loc":["body","top_k"],"msg":"Extra inputs are not permitted","input":5}]',
    "reasoning_effort": "Unrecognized request argument supplied: reasoning_effort",
    "include": "Encrypted content is not supported with this model.",
    "reasoning": "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
}


def picky(said: str) -> Play:
    """A server that rejects these parameters, one at a time, and then responds."""

    async def play(server: Server, writer: asyncio.StreamWriter) -> None:
        asked = json.loads(server.asked[-1][2])
        refused = next((words for name, words in SAID_NO.items() if name in asked), None)
        message = json.dumps({"error": {"message": refused}}) if refused else said
        await whole(400 if refused else 200, message)(server, writer)

    return play


COMPLETION = json.dumps({"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]})


ITEM = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}


RESPONSE = json.dumps({"object": "response", "status": "completed", "output": [ITEM]})
