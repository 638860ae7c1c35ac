"""Writes tools as clients of Responses send them, and reads those in the results of a tool search.

    {"type": "function", "name": "find", "parameters": {…}}
    {"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "find", …}]}      the tool crm__find
    {"type": "tool_search_output", "execution": "server", "tools": [a tool or namespace, …]}

Source: the types in the openai package 3.57 (2026-11).
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, TypeAlias

import msgspec

from dragoman.core.messages import Tool, UnknownPart
from dragoman.dialects.openai_responses.request_reader import (
    ABOUT_NAMESPACE,
    IN_ITEM,
    JOINT,
    NAMESPACE,
    namespace_of,
    tools_of,
)
from dragoman.text import json_cursor
from dragoman.text.json_cursor import Cursor
from dragoman.wire.openai_fields import is_custom

Json: TypeAlias = dict[str, object]

SEARCH: Final = "tool_search"
SEARCH_OUTPUT: Final = "tool_search_output"
_HIDDEN: Final = (NAMESPACE, ABOUT_NAMESPACE, IN_ITEM)


def write_tools(tools: Iterable[Tool]) -> list[Json]:
    """Returns the tools as they were sent."""
    listed: list[Json] = []
    for _, group in groupby(tools, key=lambda tool: id(tool.extra.get(ABOUT_NAMESPACE))):
        group_tools = list(group)
        about, written = group_tools[0].extra.get(ABOUT_NAMESPACE), [_write_tool(tool) for tool in group_tools]
        listed += [{**json_cursor.parse(bytes(about)).fields().remaining(), "tools": written}] if about else written
    return listed


def found_tools(part: UnknownPart) -> Iterator[Tool]:
    """Yields the tools in the result of a tool search."""
    for item in Cursor(part.raw, part.path).fields().items("tools", json_cursor.MAX_TOOLS):
        yield from (tool for tool in tools_of(item) if tool.kind == "function")


def is_of_client(part: UnknownPart) -> bool:
    """Returns whether the client itself runs the tool search that this item belongs to."""
    return Cursor(part.raw, part.path).fields().string("execution") == "client"


def is_client_search(tool: Tool) -> bool:
    """Returns whether this is a tool search that the client runs."""
    return tool.kind == SEARCH and bytes(tool.extra.get("execution", b"")) == b'"client"'


def _write_tool(tool: Tool) -> Json:
    extra = {name: raw for name, raw in tool.extra.items() if name not in _HIDDEN}
    if tool.kind != "function":
        return dict(extra)
    space = namespace_of(tool)
    name = tool.name.removeprefix(f"{space}{JOINT}") if space else tool.name
    if is_custom(tool):
        return {"name": name, "description": tool.description, **extra}
    function: Json = {"name": name, "description": tool.description, "parameters": msgspec.Raw(tool.parameters)}
    return {"type": "function", **function, "strict": None, **extra}
