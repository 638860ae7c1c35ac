"""Writes a constraint as a JSON Schema of the whole reply, for servers that support only structured output.

    {"type": "object", "properties": {"tool_calls": {"type": "array", "minItems": 1, "items": {…}}}, …}
    {"tool_calls": [{"name": "ping", "arguments": {}}]}

The calls are inside an object, which the format `xlam` parses, because not every server accepts an array or a union as
the root: OpenAI rejects both, and Ollama did not enforce them. A schema cannot express "or text", so only a required or
named call can be constrained.

Source: https://lmstudio.ai/docs/advanced/structured-output, which shows objects only, and "Structured outputs" of
Azure OpenAI (both read 2026-11); ollama/ollama issue 8000 (2024-12); JSON Schema 2020-12.
"""

import json
from collections.abc import Sequence
from typing import Any

from dragoman.constraints.grammar import JsonValue
from dragoman.core.messages import JsonText, Tool, ToolChoice
from dragoman.schema.argument_types import move_refs_to_defs


def json_schema(tools: Sequence[Tool], choice: ToolChoice) -> JsonText | None:
    """Returns the schema of a reply with calls of these tools.

    Returns None if the choice does not require a call, or none of the tools is a matching function.
    """
    offered = [t for t in tools if t.kind == "function" and (choice.mode != "named" or t.name == choice.name)]
    if not offered or choice.mode not in ("required", "named"):
        return None
    definitions: dict[str, Any] = {}
    calls = [_call(tool, definitions, f"t{i}_") for i, tool in enumerate(offered)]
    listed = {"type": "array", "items": calls[0] if len(calls) == 1 else {"anyOf": calls}, "minItems": 1}
    if not choice.parallel_tool_calls or choice.mode == "named":
        listed["maxItems"] = 1
    reply = _object(tool_calls=listed)
    return json.dumps({**reply, "$defs": definitions} if definitions else reply, ensure_ascii=False)


def _call(tool: Tool, definitions: dict[str, Any], prefix: str) -> dict[str, Any]:
    stated = JsonValue(tool.parameters, arguments=True).value()
    body = {word: stated[word] for word in stated if word not in ("$defs", "definitions")}
    definitions_used: dict[str, Any] = {}
    try:
        arguments = move_refs_to_defs(body, stated, definitions_used, prefix)
        definitions |= definitions_used
    except RecursionError:  # no real tool is nested so deep
        arguments = {"type": "object"}
    return _object(name={"type": "string", "enum": [tool.name]}, arguments=arguments)


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
