"""Tools of a replay: the model is offered the same functions, and their results come from the capture."""

import sys
from collections.abc import Awaitable, Callable

from dragoman.core.messages import JsonText, Tool
from dragoman.gateway.vendor_tools.tool_search import ToolSearch
from dragoman.vendor_tools.executor import ToolExecutor
from dragoman.vendor_tools.tool import ToolRunResult, VendorToolCall, error_result, tools_result


class CapturedTool(ToolExecutor):
    """A tool whose results the observer of the exchange returns."""

    def __init__(self, function: Tool) -> None:
        self.description, self.parameters = function.description, function.parameters

    async def run(self, call: VendorToolCall) -> ToolRunResult:
        """Not called: `Replay.run_tool` returns the captured result."""
        return error_result("unavailable")


class CapturedSearch(ToolSearch):
    """A tool search whose results are captured, as the names of the tools that it found."""

    def __init__(self, captured_result: Callable[[str, JsonText], Awaitable[ToolRunResult]]) -> None:
        """`captured_result` returns the captured result of a call, given its kind and arguments."""
        self._captured_result = captured_result

    async def run(self, call: VendorToolCall) -> ToolRunResult:
        """Returns the captured result, with the definitions of the request."""
        captured = await self._captured_result(call.tool.kind, call.arguments)
        tools = {tool.name: tool for tool in call.tool.deferred}
        found = [tools[tool.name] for tool in captured.tools if tool.name in tools]
        return tools_result(found, sys.maxsize) if found else captured
