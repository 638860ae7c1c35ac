"""What a process must not have: it says at the beginning of its answer what tools and servers it has."""

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
    """Refuse an answer of a model that could do something on this machine; gives the client's tools that it has not.

    Raises: BackendUnavailableError: it has other tools than the client's, or servers of its own.
    """
    offered = {f"mcp__{SERVER}__{tool.name}" for tool in conversation.tools}
    own = offered | ({STRUCTURED} if conversation.schema else set())
    try:
        mounted = set(msgspec.json.decode(line.tools, type=list[str]))
        servers = {server.name for server in msgspec.json.decode(line.mcp_servers, type=list[_Server])} - {SERVER}
    except msgspec.DecodeError:
        raise BackendUnavailableError("claude does not say which tools it has; its answer is refused") from None
    if too_many := (mounted - own) | servers:
        has = ", ".join(sorted(too_many))
        raise BackendUnavailableError(f"claude has tools or servers of its own ({has}); its answer is refused")
    return offered - mounted
