"""Resolves tools whose schemas are loaded later (Anthropic's API), for models behind other APIs.

    a placeholder tool        not offered: its description tells the model not to call it
    `tool_reference`          in a result, which promises the schema there: name, description and schema as text; the
                              tool is not listed before the conversation, so that a prompt cache stays valid

Source: requests of Claude Code 2.1.329 with its tool search; 2026-11.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from dragoman.core.messages import Message, Part, Request, ResultPart, Text, Tool, ToolResult, UnknownPart, has_part
from dragoman.vendor_tools.tool import definition_text

REFERENCE: Final = "tool_reference"
DEFER_LOADING: Final = "defer_loading"


def resolve_deferred_tools(request: Request) -> Request:
    """Returns the request without placeholder tools, and with the schemas of the tools that results refer to."""
    if request.dialect != "anthropic_messages":
        return request
    tools = tuple(tool for tool in request.tools if not _is_placeholder(tool)) if request.tools else ()
    if not has_part(request.messages, ToolResult):
        return request if len(tools) == len(request.tools) else replace(request, tools=tools)
    known = {tool.name: tool for tool in request.tools}
    messages = tuple(_resolve_message(message, known) for message in request.messages)
    return replace(request, tools=_found_last(tools, request.messages), messages=messages)


def _found_last(tools: tuple[Tool, ...], messages: Iterable[Message]) -> tuple[Tool, ...]:
    """Returns the tools with those marked as found that results refer to, in the order of the results."""
    results = (part for message in messages for part in message.parts if isinstance(part, ToolResult))
    names = dict.fromkeys(filter(None, (_referenced(each) for result in results for each in result.parts)))
    deferred = {tool.name: tool for tool in tools if tool.loading == "listed" and is_deferred(tool)}
    found = {name: replace(deferred[name], loading="found") for name in names if name in deferred}
    return (*(tool for tool in tools if tool.name not in found), *found.values()) if found else tools


def is_deferred(tool: Tool) -> bool:
    """Returns whether the client wants the tool to be loaded by a search."""
    return bytes(tool.extra.get(DEFER_LOADING, b"")) == b"true"


def _is_placeholder(tool: Tool) -> bool:
    return is_deferred(tool) and "placeholder" in tool.name.lower()


def _resolve_message(message: Message, known: dict[str, Tool]) -> Message:
    if not any(isinstance(part, ToolResult) for part in message.parts):
        return message
    return replace(message, parts=tuple(_resolve_part(part, known) for part in message.parts))


def _resolve_part(part: Part, known: dict[str, Tool]) -> Part:
    if not isinstance(part, ToolResult):
        return part
    return replace(part, parts=tuple(_resolve_reference(each, known) for each in part.parts))


def _resolve_reference(part: ResultPart, known: dict[str, Tool]) -> ResultPart:
    tool = known.get(_referenced(part))
    return part if tool is None else Text(definition_text(tool))


def _referenced(part: ResultPart) -> str:
    """Returns the name of the tool that a part of a result refers to, or ""."""
    if not isinstance(part, UnknownPart) or part.type != REFERENCE:
        return ""
    return str(msgspec.json.decode(part.raw).get("tool_name") or "")
