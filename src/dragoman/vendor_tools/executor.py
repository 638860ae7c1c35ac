"""What runs the calls of one kind of vendor's tool, and what observes the runs."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from fnmatch import fnmatchcase
from typing import Protocol, TypeAlias, runtime_checkable

from dragoman.core.messages import ANY_ARGUMENTS, JsonText, Tool
from dragoman.vendor_tools.earlier_messages import EarlierMessages
from dragoman.vendor_tools.tool import ToolErrorCode, ToolRunResult, VendorTool, VendorToolCall

RunTool: TypeAlias = Callable[[], Awaitable[ToolRunResult]]
"""Runs one call, within all limits."""


@runtime_checkable
class ToolRunObserver(Protocol):
    """An observer of an exchange (`ExchangeObserver`) that also observes what the gateway runs."""

    async def run_tool(self, kind: str, arguments: JsonText, run: RunTool) -> ToolRunResult:
        """Returns what `run` returns.

        Args:
            kind: The kind of tool.
            arguments: The arguments of the call.
            run: Runs the call.
        """


def matches_model(patterns: Sequence[str], names: Sequence[str]) -> bool:
    """Returns whether one of a model's names matches one of the patterns, such as `qwen*`, in any case."""
    return any(fnmatchcase(name.lower(), pattern.lower()) for name in names for pattern in patterns)


class ToolExecutor(ABC):
    """Runs the calls of one kind of tool."""

    description: str = ""
    """What the tool does, for the model."""
    parameters: JsonText = ANY_ARGUMENTS
    """JSON Schema of its arguments."""
    timeout_s: float | None = None
    """Time limit of one call, in seconds; None: only that of the response."""
    models: Sequence[str] = ()
    """Patterns of the models that may use it, such as `qwen*`; empty: all."""

    def admits(self, *names: str) -> bool:
        """Returns whether a model with one of these names may use it."""
        return not self.models or matches_model(self.models, names)

    def function(self, tool: VendorTool) -> Tool:
        """Returns the declared tool as a function for the model."""
        return Tool(tool.name, self.description, self.parameters)

    @abstractmethod
    async def run(self, call: VendorToolCall) -> ToolRunResult:
        """Runs a call; cancelled when its time is over or the client has left.

        Problems are results with an `error`, never exceptions: the model reads them and tries something else.
        """

    async def refusal(self, call: VendorToolCall, earlier: EarlierMessages) -> ToolErrorCode | None:
        """Returns why a call is not run; None: it is.

        Args:
            call: The call.
            earlier: The messages before it; the same object for all calls of one round.
        """
        return None

    async def start(self) -> None:
        """Prepares the executor; called once, before the first call."""

    async def close(self) -> None:
        """Frees what the executor holds."""


class ToolServers(ToolExecutor):
    """Runs the tools of servers that requests declare."""

    def function(self, tool: VendorTool) -> Tool:
        """Returns the server's tool as a function for the model."""
        assert tool.remote is not None
        return Tool(tool.name, tool.remote.description, tool.remote.parameters)

    @abstractmethod
    def offered(self, *models: str) -> list[VendorTool]:
        """Returns the servers whose tools a model of one of these names is offered in every request."""

    def served(self) -> list[VendorTool]:
        """Returns the servers of the settings that requests may name."""
        return []

    @abstractmethod
    async def list_tools(self, tool: VendorTool) -> ToolRunResult:
        """Returns the tools of the declared server, or an error.

        Raises:
            RequestError: Requests may not name this server.
        """
