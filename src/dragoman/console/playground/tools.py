"""Lists and runs the tools of the playground.

These are the tools of the demonstration, and those of the MCP servers that clients of the gateway may use, which is
what `/mcp` offers too. Nothing else is run: no program of this machine, no shell, and no other tool of the settings.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from dragoman.api.demo_tools import DEMO_TOOLS, run_demo_tool, signature
from dragoman.console.playground.views import (
    PlaygroundImage,
    PlaygroundRun,
    PlaygroundRunView,
    PlaygroundTool,
    PlaygroundToolsView,
    ToolSourceProblem,
)
from dragoman.core.errors import BackendUnavailableError, NotFoundError, RequestError, nearest, quote
from dragoman.core.messages import ANY_ARGUMENTS, Tool
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.vendor_tools.executor import ToolServers
from dragoman.vendor_tools.remote import RemoteTool, function_name
from dragoman.vendor_tools.tool import ToolRunResult, VendorTool, VendorToolCall

LIST_TIMEOUT_S: Final = 15.0
"""Time for the list of one MCP server, which may have to be started."""
RUN_TIMEOUT_S: Final = 60.0
"""Time for one call; a server may have a shorter limit of its own."""
MAX_RUNS: Final = 8
"""Maximum calls at the same time."""
MAX_IMAGES_CHARS: Final = 4_000_000
"""Maximum characters of the base64 of all images of a result."""
_CALL_ID: Final = "playground"


class ServerTool(NamedTuple):
    """A tool of an MCP server."""

    function: Tool
    """As the model sees it."""
    declared: VendorTool
    """As the executor runs it."""
    server: str


class PlaygroundRunner:
    """Runs calls, a limited number of them at the same time."""

    def __init__(self, list_timeout_s: float = LIST_TIMEOUT_S, run_timeout_s: float = RUN_TIMEOUT_S) -> None:
        """Args:
        list_timeout_s: Seconds for the list of one MCP server.
        run_timeout_s: Seconds for one call.
        """
        self._list_timeout_s, self._run_timeout_s = list_timeout_s, run_timeout_s
        self._running = 0

    async def tools(self, runner: VendorToolRunner, configured: Iterable[str]) -> PlaygroundToolsView:
        """Returns all tools, and why those of some servers are missing.

        Args:
            runner: What runs tools in the gateway, for the API key of the request.
            configured: Names of the MCP servers of the settings.
        """
        found, problems = await self._list(runner)
        named = {tool.server.label for tool in _served(runner) if tool.server is not None}
        problems += [
            ToolSourceProblem(server=name, message=f"clients may not use it: set mcp.{name}.serve = true")
            for name in configured
            if name not in named
        ]
        demo = [_view(tool, "") for tool in DEMO_TOOLS.values()]
        return PlaygroundToolsView(
            tools=[*demo, *(_view(tool.function, tool.server) for tool in found)], problems=problems
        )

    async def run(self, runner: VendorToolRunner, call: PlaygroundRun) -> PlaygroundRunView:
        """Runs a call and returns its result, which may be an error.

        Args:
            runner: What runs tools in the gateway, for the API key of the request.
            call: The call.

        Raises:
            NotFoundError: There is no such tool.
            BackendUnavailableError: Too many calls run.
        """
        if self._running >= MAX_RUNS:
            raise BackendUnavailableError(f"expected at most {MAX_RUNS} calls at the same time, got another one")
        self._running += 1
        began_s = time.monotonic()
        try:
            result = await self._result(runner, call)
        finally:
            self._running -= 1
        view = _result_view(result, runner.max_result_chars)
        return replace(view, run_ms=round((time.monotonic() - began_s) * 1000))

    async def _result(self, runner: VendorToolRunner, call: PlaygroundRun) -> ToolRunResult:
        if call.name in DEMO_TOOLS:
            demo = run_demo_tool(call.name, call.arguments)
            return ToolRunResult(demo.text, error="invalid_tool_input" if demo.is_error else None)
        found, _ = await self._list(runner)
        tool = next((each for each in found if each.function.name == call.name), None)
        if tool is None:
            names = [*DEMO_TOOLS, *(each.function.name for each in found)]
            raise NotFoundError(f"expected a tool of the playground, got {quote(call.name)}{nearest(call.name, names)}")
        try:
            async with asyncio.timeout(self._run_timeout_s):
                return await runner.executors["mcp"].run(VendorToolCall(_CALL_ID, tool.declared, call.arguments))
        except TimeoutError:
            text = f"the tool {call.name} did not return within {self._run_timeout_s:g} s"
            return ToolRunResult(text, error="unavailable")

    async def _list(self, runner: VendorToolRunner) -> tuple[list[ServerTool], list[ToolSourceProblem]]:
        """Returns the tools of all servers, and the problems of those that do not respond."""
        tools: list[ServerTool] = []
        problems: list[ToolSourceProblem] = []
        served = _served(runner)
        for declared, listed in zip(
            served, await asyncio.gather(*(self._list_one(runner, tool) for tool in served)), strict=True
        ):
            server = declared.server.label if declared.server is not None else ""
            if listed.error is not None:
                problems.append(ToolSourceProblem(server=server, message=listed.text))
            tools += [_server_tool(declared, server, remote) for remote in listed.listed]
        return tools, problems

    async def _list_one(self, runner: VendorToolRunner, declared: VendorTool) -> ToolRunResult:
        executor = runner.executors["mcp"]
        assert isinstance(executor, ToolServers)
        try:
            async with asyncio.timeout(self._list_timeout_s):
                return await executor.list_tools(declared)
        except TimeoutError:
            text = f"it did not list its tools within {self._list_timeout_s:g} s"
            return ToolRunResult(text, error="unavailable")
        except RequestError as error:
            return ToolRunResult(error.message, error="unavailable")


def _served(runner: VendorToolRunner) -> list[VendorTool]:
    executor = runner.executors.get("mcp")
    return executor.served() if isinstance(executor, ToolServers) else []


def _server_tool(declared: VendorTool, server: str, remote: RemoteTool) -> ServerTool:
    name = function_name(server, remote.name)
    return ServerTool(
        Tool(name, remote.description, remote.parameters), replace(declared, name=name, remote=remote), server
    )


def _view(tool: Tool, server: str) -> PlaygroundTool:
    return PlaygroundTool(
        name=tool.name,
        description=tool.description,
        parameters=msgspec.Raw(_json_object(tool.parameters)),
        signature=signature(tool),
        server=server,
    )


def _json_object(text: str) -> bytes:
    """Returns a schema as browsers can read it; a server may have sent `NaN` or half of a surrogate pair."""
    data = text.encode("utf-8", "replace")
    try:
        msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return ANY_ARGUMENTS.encode()
    return data


def _result_view(result: ToolRunResult, max_chars: int) -> PlaygroundRunView:
    images: list[PlaygroundImage] = []
    left_out = size = 0
    for image in result.images:
        data = image.source.data
        if not data or size + len(data) > MAX_IMAGES_CHARS:
            left_out += 1
            continue
        size += len(data)
        images.append(PlaygroundImage(media_type=image.source.media_type, data=data))
    return PlaygroundRunView(
        text=result.text[:max_chars],
        is_error=result.error is not None,
        is_cut=len(result.text) > max_chars or left_out > 0,
        run_ms=0,
        images=images,
    )
