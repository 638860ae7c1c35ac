"""Resolves tools whose schemas are loaded later (Anthropic's API), for models behind other APIs.

    a placeholder tool        not offered: its description tells the model not to call it
    `tool_reference`          in a result, which promises the schema there: name, description and schema as text

Source: requests of Claude Code 2.1.329 with its tool search; 2026-11.
"""

import json
from typing import Final

import msgspec
from msgspec.structs import replace

from dragoman.core.messages import Message, Part, Request, ResultPart, Text, Tool, ToolResult, UnknownPart, has_part

REFERENCE: Final = "tool_reference"
_DEFERRED: Final = "defer_loading"


def resolve_deferred_tools(request: Request) -> Request:
    """Returns the request without placeholder tools, and with the schemas of the tools that results refer to."""
    if request.dialect != "anthropic_messages":
        return request
    tools = tuple(tool for tool in request.tools if not _is_placeholder(tool)) if request.tools else ()
    if not has_part(request.messages, ToolResult):
        return request if len(tools) == len(request.tools) else replace(request, tools=tools)
    known = {tool.name: tool for tool in request.tools}
    messages = tuple(_resolve_message(message, known) for message in request.messages)
    return replace(request, tools=tools, messages=messages)


def _is_placeholder(tool: Tool) -> bool:
    return bytes(tool.extra.get(_DEFERRED, b"")) == b"true" and "placeholder" in tool.name.lower()


def _resolve_message(message: Message, known: dict[str, Tool]) -> Message:
    if not any(isinstance(part, ToolResult) for part in message.parts):
        return message
    return replace(message, parts=tuple(_resolve_part(part, known) for part in message.parts))


def _resolve_part(part: Part, known: dict[str, Tool]) -> Part:
    if not isinstance(part, ToolResult):
        return part
    return replace(part, parts=tuple(_resolve_reference(each, known) for each in part.parts))


def _resolve_reference(part: ResultPart, known: dict[str, Tool]) -> ResultPart:
    if not isinstance(part, UnknownPart) or part.type != REFERENCE:
        return part
    tool = known.get(str(msgspec.json.decode(part.raw).get("tool_name")))
    if tool is None:
        return part
    definition = {"name": tool.name, "description": tool.description, "parameters": json.loads(tool.parameters)}
    return Text(json.dumps(definition, ensure_ascii=False))
