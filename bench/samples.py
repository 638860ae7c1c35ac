"""Texts and request bodies of the sizes that agents send and models write."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any, Final

from dragoman.core.messages import Tool

_LINES = (
    "def total(orders: list[Order]) -> Decimal:",
    '    """Sum of what is still to be paid, in the customer\'s currency."""',
    "    return sum((o.price * o.count for o in orders if not o.paid), Decimal(0))",
    "",
    "",
    'if __name__ == "__main__":',
    '\tprint(f"{total(load(sys.argv[1])):.2f} <eur>", sep="\\n")',
)
_PROSE = "The function adds up what is still open; paid orders do not count, and `None` is not a price. "

TOOLS: Final = (
    Tool(
        "write_file", parameters='{"type":"object","properties":{"path":{"type":"string"},"content":{"type":"string"}}}'
    ),
    Tool("read_file"),
)


def code(size: int) -> str:
    """Returns `size` characters of Python code."""
    return _fill((line + "\n" for line in cycle(_LINES)), size)


def prose(size: int) -> str:
    """Returns `size` characters of prose."""
    return _fill(cycle([_PROSE, _PROSE.strip() + "\n\n"]), size)


def _fill(pieces: Iterator[str], size: int) -> str:
    return "".join(islice(pieces, size // 20 + 20))[:size]


def arguments(size: int) -> str:
    """Returns the JSON arguments of a `write_file` call with `size` characters of code."""
    return json.dumps({"path": "src/orders.py", "content": code(size)})


def deltas(text: str, step: int) -> list[str]:
    """Cuts the text into pieces of `step` characters."""
    return [text[i : i + step] for i in range(0, len(text), step)]


def small_body(dialect: str, model: str = "m", stream: bool = False, max_tokens: int = 100) -> bytes:
    """Returns a request with a one-line question and one tool.

    Args:
        dialect: name of the API.
        model: name of the model.
        stream: whether the response is streamed.
        max_tokens: limit of the completion.
    """
    parts = _SHAPES[dialect]
    question = [{"role": "user", "content": "What is the weather in Bern?"}]
    tools = [parts.tool("write_file", "Write a file.", {"type": "object", "properties": {"path": {"type": "string"}}})]
    body = {"model": model, parts.limit: max_tokens, "stream": stream, parts.messages_field: question, "tools": tools}
    return json.dumps(body).encode()


def agent_body(dialect: str, size: int = 100_000, tools: int = 20, messages: int = 30) -> bytes:
    """Returns a request as a coding agent sends it late in a session, with calls and results.

    Args:
        dialect: name of the API.
        size: bytes of the body, approximately.
        tools: number of tools.
        messages: number of messages, at least 2; an odd one is rounded down.
    """
    parts = _SHAPES[dialect]
    share = size // (tools + messages)
    tool_list = [parts.tool(f"Tool{i}", prose(share), _schema()) for i in range(tools)]
    history: list[dict[str, Any]] = [parts.user(prose(share))]
    for i in range((messages - 2) // 2):
        call = {"path": f"src/module_{i}.py", "content": code(share * 3 // 4)}
        history += [parts.call(f"call_{i}", f"Tool{i % tools}", call), parts.result(f"call_{i}", code(share * 3 // 4))]
    history.append(parts.user("Go on."))
    body = {"model": "m", parts.limit: 8192, "stream": True, parts.messages_field: history, "tools": tool_list}
    return json.dumps(body).encode()


def _schema() -> dict[str, Any]:
    fields = {f"field_{i}": {"type": "string", "description": f"Field {i} of the tool."} for i in range(6)}
    return {"type": "object", "properties": fields, "required": ["field_0"], "additionalProperties": False}


Json = dict[str, Any]


@dataclass(frozen=True)
class _Shape:
    """How one API writes tools and messages."""

    tool: Callable[[str, str, Json], Json]
    """Name, description, schema."""
    call: Callable[[str, str, Json], Json]
    """Id, name, arguments."""
    result: Callable[[str, str], Json]
    """Call id, text."""
    messages_field: str = "messages"
    limit: str = "max_tokens"
    text: str = "text"
    """The type of a text part."""

    def user(self, text: str) -> Json:
        """Returns a user message."""
        return {"role": "user", "content": [{"type": self.text, "text": text}]}


def _openai_tool(name: str, description: str, schema: Json) -> Json:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def _openai_call(id: str, name: str, arguments: Json) -> Json:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": "Next step.",
        "tool_calls": [{"id": id, "type": "function", "function": function}],
    }


def _openai_result(id: str, text: str) -> Json:
    return {"role": "tool", "tool_call_id": id, "content": text}


def _anthropic_tool(name: str, description: str, schema: Json) -> Json:
    return {"name": name, "description": description, "input_schema": schema}


def _anthropic_call(id: str, name: str, arguments: Json) -> Json:
    call = {"type": "tool_use", "id": id, "name": name, "input": arguments}
    return {"role": "assistant", "content": [{"type": "text", "text": "Next step."}, call]}


def _anthropic_result(id: str, text: str) -> Json:
    result = {"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": text}]}
    return {"role": "user", "content": [result]}


def _response_tool(name: str, description: str, schema: Json) -> Json:
    return {"type": "function", "name": name, "description": description, "parameters": schema}


def _response_call(id: str, name: str, arguments: Json) -> Json:
    return {"type": "function_call", "call_id": id, "name": name, "arguments": json.dumps(arguments)}


def _response_result(id: str, text: str) -> Json:
    return {"type": "function_call_output", "call_id": id, "output": text}


_SHAPES: Final = {
    "openai_chat": _Shape(_openai_tool, _openai_call, _openai_result),
    "openai_responses": _Shape(
        _response_tool, _response_call, _response_result, "input", "max_output_tokens", "input_text"
    ),
    "anthropic_messages": _Shape(_anthropic_tool, _anthropic_call, _anthropic_result),
}
DIALECTS: Final = tuple(_SHAPES)
