"""Runs web searches and code by a tool of an MCP server: `use = "mcp:NAME/TOOL"`.

The model sees the vendor's tool, with a `query` or the `code`; that value is the tool's argument of this name, or of
the only required string. Results with an array of objects that have a `url` are hits of a search; results with
`stdout` are the output of a program; any other text is one hit, or what the program printed.
"""

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from dragoman.core.messages import Tool
from dragoman.mcp_client.result import McpResult, McpServerError
from dragoman.mcp_client.server import McpServer
from dragoman.text.json_cursor import load_json
from dragoman.tool_executors.domains import is_admitted
from dragoman.tool_executors.web_search import with_location
from dragoman.vendor_tools.codec import string_argument
from dragoman.vendor_tools.executor import ToolExecutor
from dragoman.vendor_tools.tool import (
    CodeOutput,
    SearchHit,
    ToolRunResult,
    VendorTool,
    VendorToolCall,
    error_result,
    output_text,
    search_result,
)

_MAX_HITS: Final = 50
_MAX_HIT_CHARS: Final = 200_000


class _Argument(NamedTuple):
    """The only argument of a vendor's tool."""

    name: str
    others: tuple[str, ...]
    """What tools of MCP servers call it."""
    meaning: str
    description: str
    """Of the tool."""


_ARGUMENTS: Final[Mapping[str, _Argument]] = {
    "web_search": _Argument("query", ("q", "search", "search_query"), "What to search for.", "Searches the web."),
    "code_execution": _Argument(
        "code", ("source", "script", "program", "command", "python"), "The code to run.", "Runs code in a sandbox."
    ),
}
KINDS: Final = tuple(_ARGUMENTS)
"""Kinds of tools that a tool of an MCP server can run."""


class McpTool:
    """A tool of an MCP server that gets one argument."""

    def __init__(self, server: McpServer, name: str, argument_names: Sequence[str]) -> None:
        """
        Args:
            server: The server.
            name: The name of its tool.
            argument_names: What the argument may be called, the usual name first.
        """
        self.server, self.name = server, name
        self._argument_names = argument_names
        self.url = f"mcp://{server.name}/{name}"
        """Names the tool where a result has no URL."""

    async def call(self, value: str) -> McpResult:
        """Returns the result of a call with this argument.

        Raises:
            McpServerError: The server does not respond, or has no such tool.
        """
        return await self.server.call(self.name, {await self._parameter(): value})

    async def _parameter(self) -> str:
        tools = {tool.name: tool for tool in await self.server.tools()}
        if self.name not in tools:
            raise McpServerError(f"the MCP server {self.server.name} has no tool {self.name}")
        schema = json.loads(tools[self.name].parameters)
        properties = schema.get("properties") or {}
        name = next((each for each in self._argument_names if each in properties), "")
        return name or _only_string(schema) or self._argument_names[0]


class McpToolExecutor(ToolExecutor):
    """Runs one kind of vendor's tool by a tool of an MCP server."""

    def __init__(self, server: McpServer, tool: str, kind: str, max_results: int = 0) -> None:
        """Args:
        server: The server.
        tool: The name of its tool.
        kind: One of `KINDS`.
        max_results: Maximum hits of a search; 0: no limit but that of the client's API.
        """
        self._max_results = max_results or _MAX_HITS
        self._argument = _ARGUMENTS[kind]
        self._tool = McpTool(server, tool, (self._argument.name, *self._argument.others))
        self._is_search = kind == "web_search"
        self.description = self._argument.description
        name = self._argument.name
        schema = {"type": "object", "properties": {name: {"type": "string", "description": self._argument.meaning}}}
        self.parameters = json.dumps({**schema, "required": [name]})

    def function(self, tool: VendorTool) -> Tool:
        """See `ToolExecutor.function`."""
        function = super().function(tool)
        return with_location(function, tool) if self._is_search else function

    async def run(self, call: VendorToolCall) -> ToolRunResult:
        """Calls the tool. See `ToolExecutor.run`."""
        value = string_argument(call.arguments, self._argument.name, *self._argument.others)
        if not value:
            return error_result("invalid_tool_input")
        try:
            result = await self._tool.call(value)
        except McpServerError as error:
            return ToolRunResult(f"{error}. Answer without it, and say so.", error="unavailable")
        if not self._is_search:
            output = _output(result)
            return ToolRunResult(output_text(output), output=output, images=result.images)
        if result.is_error:
            return ToolRunResult(result.text, error="unavailable")
        found = _hits(result) or [SearchHit(self._tool.url, self._tool.name, result.text)]
        admitted = [hit for hit in found if is_admitted(hit.url, call.tool)]
        return await asyncio.to_thread(search_result, admitted[: self._max_results], _MAX_HIT_CHARS)


def _only_string(schema: Mapping[str, Any]) -> str:
    """Returns the name of the only required property, if it is a string; else ""."""
    required = schema.get("required") or []
    if len(required) != 1:
        return ""
    prop = (schema.get("properties") or {}).get(required[0]) or {}
    return str(required[0]) if prop.get("type") == "string" else ""


def _values(result: McpResult) -> list[object]:
    """Returns the structured content and the text as JSON, as far as they are JSON: servers repeat one in the other."""
    values = []
    for text in (result.structured, result.text):
        with contextlib.suppress(ValueError, RecursionError):
            values.append(load_json(text))
    return values


def _hits(result: McpResult) -> list[SearchHit]:
    for value in _values(result):
        lists = [value] if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
        for each in lists:
            entries = [entry for entry in each if isinstance(entry, dict)] if isinstance(each, list) else []
            if entries and all(isinstance(entry.get("url"), str) for entry in entries):
                return [_hit(entry) for entry in entries]
    return []


def _hit(entry: Mapping[str, Any]) -> SearchHit:
    return SearchHit(
        entry["url"],
        _first(entry, "title", "name") or entry["url"],
        _first(entry, "content", "text", "snippet", "description"),
        _first(entry, "page_age", "age", "date", "published"),
    )


def _first(entry: Mapping[str, Any], *names: str) -> str:
    return next((value for name in names if isinstance(value := entry.get(name), str) and value), "")


def _output(result: McpResult) -> CodeOutput:
    printed = (value for value in _values(result) if isinstance(value, dict) and isinstance(value.get("stdout"), str))
    if (value := next(printed, None)) is not None:
        code = next((value[name] for name in ("return_code", "exit_code", "returncode") if name in value), 0)
        return CodeOutput(value["stdout"], _first(value, "stderr"), code if isinstance(code, int) else 0)
    return CodeOutput("", result.text, 1) if result.is_error else CodeOutput(result.text)
