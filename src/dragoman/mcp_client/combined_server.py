"""One MCP server with the tools of all servers of the settings, named NAME__TOOL.

Results are passed on unchanged. A server that does not respond is left out of the list, and its calls are errors.
"""

import asyncio
import json
import logging
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from dragoman import __version__
from dragoman.core.client import Permissions
from dragoman.mcp_client.pool import McpServers
from dragoman.mcp_client.result import McpServerError
from dragoman.mcp_client.server import McpServer

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, Tool

log = logging.getLogger("dragoman.mcp_client")

SEPARATOR = "__"
PERMISSIONS: Final = "dragoman.permissions"
"""Entry of the ASGI scope with the `Permissions` of a request; None or missing: it may use all servers."""


def combined_server(servers: Mapping[str, McpServer]) -> "Server[Any]":
    """Returns the server; it asks the others, given by name, when it is asked."""
    from mcp.server.lowlevel import Server
    from mcp.types import CallToolResult, ListToolsResult, TextContent

    async def list_tools(context: object, params: object) -> "ListToolsResult":
        listed = await asyncio.gather(*map(_tools, _permitted(servers, context).values()))
        return ListToolsResult(tools=[tool for tools in listed for tool in tools])

    async def call_tool(context: object, params: "CallToolRequestParams") -> "CallToolResult":
        name, _, tool = params.name.partition(SEPARATOR)
        server = _permitted(servers, context).get(name)
        try:
            if server is None:
                raise McpServerError(f"there is no tool {params.name}")
            return await server.call_unread(tool, params.arguments or {})
        except McpServerError as error:
            return CallToolResult(content=[TextContent(type="text", text=f"Error: {error}")], is_error=True)

    def input_schema(name: str) -> Mapping[str, Any] | None:
        """Returns the schema that is known; without it the SDK would list all tools for each call."""
        server = servers.get(name.partition(SEPARATOR)[0])
        return server.input_schema(name.partition(SEPARATOR)[2]) if server is not None else None

    return Server(
        "dragoman",
        version=__version__,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema=input_schema,
    )


async def serve_stdio(servers: McpServers) -> None:
    """Serves until standard input ends or SIGTERM arrives, and then ends all servers."""
    from mcp.server.stdio import stdio_server

    server = combined_server(servers.by_name)

    async def serve() -> None:
        async with stdio_server() as (received, sent):
            await server.run(received, sent, server.create_initialization_options())

    serving = asyncio.create_task(serve())
    stopped = asyncio.Event()
    with suppress(NotImplementedError):  # Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    stopping = asyncio.create_task(stopped.wait())
    await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
    await servers.close()
    if serving.done():
        stopping.cancel()
        serving.result()
    else:  # a thread of the SDK reads standard input and would delay the end until that is closed
        os._exit(0)


def _permitted(servers: Mapping[str, McpServer], context: object) -> Mapping[str, McpServer]:
    """Returns the servers that a request may use; over standard input and output all."""
    request = getattr(context, "request", None)
    permissions: Permissions | None = request.scope.get(PERMISSIONS) if request is not None else None
    if permissions is None:
        return servers
    return {name: server for name, server in servers.items() if permissions.admits_tool(f"mcp:{name}")}


async def _tools(server: McpServer) -> "list[Tool]":
    from mcp.types import Tool, ToolAnnotations

    try:
        tools = await server.tools()
    except McpServerError as error:
        log.warning("%s", error)
        return []
    return [
        Tool(
            name=f"{server.name}{SEPARATOR}{tool.name}",
            description=tool.description,
            input_schema=json.loads(tool.parameters),
            annotations=ToolAnnotations.model_validate_json(tool.annotations) if tool.annotations else None,
        )
        for tool in tools
    ]
