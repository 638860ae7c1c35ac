"""The tools of MCP servers in a plan: those that requests declare, and those that the gateway offers by itself."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from dragoman.core.errors import BackendUnavailableError, UnsupportedError, quote
from dragoman.core.messages import Request
from dragoman.vendor_tools.codec import VendorToolCodec
from dragoman.vendor_tools.executor import ToolExecutor, ToolServers
from dragoman.vendor_tools.remote import function_name
from dragoman.vendor_tools.tool import ToolRunResult, VendorTool

Listings: TypeAlias = Sequence[tuple[VendorTool, ToolRunResult]]
"""MCP servers, with their tools."""
SERVER: Final = "mcp"
"""The kind of tool that is such a server."""


def offers_tools(executors: Mapping[str, ToolExecutor], *models: str) -> bool:
    """Returns whether the gateway offers tools of its own to a model of one of these names."""
    executor = executors.get(SERVER)
    return isinstance(executor, ToolServers) and bool(executor.offered(*models))


def new_listings(request: Request, codec: VendorToolCodec, listings: Listings) -> Listings:
    """Returns those of declared servers that the client has not got yet."""
    known = frozenset(codec.listed(request.messages)) if listings else frozenset()
    return tuple(each for each in listings if each[0].declared and each[0].name not in known)


def remote_tools(listings: Listings) -> Iterator[VendorTool]:
    """Yields the tools of MCP servers, as tools that the model calls by a name of its own."""
    for declared, listing in listings:
        for remote in listing.listed:
            yield replace(declared, name=function_name(declared.name, remote.name), remote=remote)


def require_tools(request: Request, written: Request, listings: Listings) -> None:
    """Raises an error if declared MCP servers list no tool, and the model would be asked without any.

    Args:
        request: The request of the client.
        written: The request for the backend.
        listings: The servers, with their tools.

    Raises:
        BackendUnavailableError: A server does not respond.
        UnsupportedError: A server has no tool that the request allows.
    """
    choice, declared = request.tool_choice, [each for each in listings if each[0].declared]
    is_named = choice.mode == "named" and choice.name in {tool.declared for tool, _ in declared}
    if choice.mode == "none" or (written.tools and not is_named) or any(listing.listed for _, listing in declared):
        return
    for tool, listing in declared:
        if listing.error is not None:
            raise BackendUnavailableError(f"{listing.text}, and the request needs its tools")
        message = f"the MCP server {quote(tool.name)} lists no tool that the request allows, and the request needs one"
        raise UnsupportedError(f"{message}: see its allowed_tools", tool.server.path if tool.server else "$")
