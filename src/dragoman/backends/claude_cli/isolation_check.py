"""Checks that a process has no tools or MCP servers but the client's; it reports both before its response."""

from typing import Final

import msgspec

from dragoman.backends.claude_cli import command
from dragoman.backends.claude_cli.conversation import STRUCTURED, Conversation
from dragoman.backends.claude_cli.process import OutputLine
from dragoman.core.errors import BackendUnavailableError

SERVER: Final = command.SERVER


TOOLS_UNKNOWN: Final = "claude answers before it said which tools it has; its answer is refused"


class _Server(msgspec.Struct):
    name: str = ""


def check_isolation(line: OutputLine, conversation: Conversation) -> set[str]:
    """Refuses the response of a model that could act on this machine.

    Returns: the client's tools that the process did not accept.
    Raises: BackendUnavailableError: it has other tools or servers than the client's.
    """
    offered = {f"mcp__{SERVER}__{tool.name}" for tool in conversation.tools}
    own = offered | ({STRUCTURED} if conversation.schema else set())
    try:
        mounted = set(msgspec.json.decode(line.tools, type=list[str]))
        servers = {server.name for server in msgspec.json.decode(line.mcp_servers, type=list[_Server])} - {SERVER}
    except msgspec.DecodeError:
        raise BackendUnavailableError("claude does not say which tools it has; its answer is refused") from None
    if too_many := (mounted - own) | servers:
        names = ", ".join(sorted(too_many))
        raise BackendUnavailableError(f"claude has tools or servers of its own ({names}); its answer is refused")
    return offered - mounted
