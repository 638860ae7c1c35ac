"""Keeps definitions of tools out of the prompt until a tool search finds them.

    declared    the client declares a tool search, and tools with `defer_loading`
    internal    the client offers more tools than the setting `tools.search_above`: a search that it does not see

The prompt of a later request begins with that of the earlier one. The client sends back the results of a declared
search. Of an internal one it has none, so each deferred tool that the model called gets a search before its first call,
which depends only on the conversation:

    user, [search, result,] call, result, …
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from dragoman.core.messages import Message, Request, Text, Tool, ToolCall, ToolResult
from dragoman.prompting.deferred_tools import DEFER_LOADING, is_deferred
from dragoman.steps.validate import named_tools
from dragoman.vendor_tools.codec import encode
from dragoman.vendor_tools.tool import TOOL_SEARCH, VendorTool, tools_text

_NAME: Final = "tool_search"
_CALL_ID: Final = "search{}x{}"


def declared_search(tool: VendorTool, request: Request) -> VendorTool:
    """Returns a tool search of the client with the tools that it finds."""
    return replace(tool, deferred=tuple(each for each in _callable(request) if is_deferred(each)))


def internal_search(request: Request, search_above: int) -> VendorTool | None:
    """Returns the search for a client that offers more tools than `search_above`; None: it does not need one.

    Args:
        request: The request of the client.
        search_above: Number of tools; 0: no limit.
    """
    if not 0 < search_above < len(request.tools) or request.tool_choice.mode == "none":
        return None
    if request.steps is not None and request.steps.derive:  # from all tools, by what each says
        return None
    functions = [tool for tool in _callable(request) if tool.loading == "listed"]
    if len(functions) <= search_above:
        return None
    names = {tool.name for tool in request.tools}
    name = next(name for n in range(len(names) + 1) if (name := f"{_NAME}_{n}" if n else _NAME) not in names)
    return VendorTool(TOOL_SEARCH, name, "", deferred=tuple(functions), is_internal=True)


def with_search(request: Request, search: VendorTool, found: Iterable[str]) -> Request:
    """Returns the request with its deferred tools marked.

    Args:
        request: The request, with past calls as calls of functions.
        search: The tool search.
        found: Names that are in the results of past searches.
    """
    deferred = {tool.name: tool for tool in search.deferred}
    called = [part.name for part in _calls(request.messages) if part.name in deferred]
    messages = _with_past_searches(request.messages, search) if search.is_internal else request.messages
    tools = tuple(_marked(tool) if tool.name in deferred else tool for tool in request.tools)
    return with_found(replace(request, tools=tools, messages=messages), [*found, *called])


def with_found(request: Request, names: Iterable[str]) -> Request:
    """Returns the request in which these deferred tools are found; they are the last tools, in this order."""
    found = tuple(dict.fromkeys(names))
    tools, all_tools = _with_found(request.tools, found), _with_found(request.prompt_tools, found)
    return replace(request, tools=tools, prompt_tools=all_tools)


def _with_found(tools: tuple[Tool, ...], names: Sequence[str]) -> tuple[Tool, ...]:
    deferred = {tool.name: tool for tool in tools if tool.loading == "deferred"}
    found = {name: replace(deferred[name], loading="found") for name in names if name in deferred}
    return (*(tool for tool in tools if tool.name not in found), *found.values()) if found else tools


def _callable(request: Request) -> Iterator[Tool]:
    """Yields the client's functions, without those that must be called: the model needs their definitions at once."""
    named = {request.tool_choice.name} if request.tool_choice.mode == "named" else set[str]()
    if request.steps is not None:
        named.update(name for name, _ in named_tools(request.steps))
    return (tool for tool in request.tools if tool.kind == "function" and tool.name not in named)


def _marked(tool: Tool) -> Tool:
    """Returns the tool as deferred; a server that gets it, once it is found, must not defer it."""
    extra = {name: raw for name, raw in tool.extra.items() if name != DEFER_LOADING}
    return replace(tool, loading="deferred", extra=extra)


def _calls(messages: Sequence[Message]) -> Iterator[ToolCall]:
    return (part for message in messages for part in message.parts if isinstance(part, ToolCall))


def _with_past_searches(messages: Sequence[Message], search: VendorTool) -> tuple[Message, ...]:
    """Returns the messages with a search and its result before the first call of each tool."""
    unknown = {tool.name: tool for tool in search.deferred}
    out: list[Message] = []
    for number, message in enumerate(messages):
        names = dict.fromkeys(part.name for part in _calls((message,)) if part.name in unknown)
        if names:
            id = _CALL_ID.format(number, len(unknown))
            call = ToolCall(id, search.name, encode({"query": " ".join(names)}))
            result = ToolResult(id, (Text(tools_text([unknown.pop(name) for name in names])),))
            out += [Message("assistant", (call,)), Message("tool", (result,))]
        out.append(message)
    return tuple(out)
