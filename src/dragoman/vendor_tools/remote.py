"""Servers of MCP that a request declares, and their tools, each of which is a function for the model.

{"type": "mcp", "server_label": "books", "server_url": "https://…/mcp"}   →  RemoteServer
its tools add and report                                                  →  functions books__add, books__report
"""

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from dragoman.core.messages import FrozenStruct, JsonText

_INVALID: Final = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME: Final = 64
_SEPARATOR: Final = "__"
_DIGEST: Final = 8
"""Characters."""


class RemoteTool(FrozenStruct, frozen=True):
    """A tool of a server."""

    name: str
    description: str
    parameters: JsonText
    """JSON Schema of its arguments."""
    annotations: JsonText = ""
    """The server's hints about it, an object; empty: none."""
    read_only: bool = False
    """The server declares that it changes nothing."""


class RemoteToolFilter(FrozenStruct, frozen=True):
    """Selects tools; a tool must meet each condition that is set."""

    names: tuple[str, ...] | None = None
    read_only: bool | None = None

    def matches(self, tool: RemoteTool) -> bool:
        """Returns whether the tool is selected."""
        by_name = self.names is None or tool.name in self.names
        return by_name and (self.read_only is None or self.read_only == tool.read_only)


class RemoteServer(FrozenStruct, frozen=True):
    """A server that a request declares."""

    label: str
    url: str
    """Empty: the label is the name of a server of the settings."""
    path: str
    """Position in the client's JSON."""
    headers: Mapping[str, str] = {}
    """HTTP headers, which contain secrets."""
    allowed: RemoteToolFilter = RemoteToolFilter()
    excluded: tuple[str, ...] = ()
    """Names of tools that may not be used."""
    needs_approval: bool = False
    """Whether a call needs the user's approval if neither filter selects its tool."""
    always: RemoteToolFilter | None = None
    """Tools whose calls need approval."""
    never: RemoteToolFilter | None = None
    """Tools whose calls need none; decides before `always`."""
    connector: str = ""
    """Position of the field that names a connector, which only the API's vendor can run; empty: there is none."""

    def offers(self, tool: RemoteTool) -> bool:
        """Returns whether the model may use the tool."""
        return tool.name not in self.excluded and self.allowed.matches(tool)

    def asks_before(self, tool: RemoteTool) -> bool:
        """Returns whether calls of the tool need approval."""
        if self.never is not None and self.never.matches(tool):
            return False
        return self.needs_approval or (self.always is not None and self.always.matches(tool))


class ApprovedCall(FrozenStruct, frozen=True):
    """A call that the user has approved and that has not been run."""

    id: str
    """The id of the request for approval, and of the call in the messages for the model."""
    function: str
    """Name of the function for the model."""
    arguments: JsonText


def function_name(label: str, tool: str) -> str:
    """Returns the name of a server's tool for the model.

    A name that several tools could get, because characters are replaced or cut, ends with a digest.
    """
    plain = f"{label}{_SEPARATOR}{tool}"
    if len(plain) <= _MAX_NAME and not _INVALID.search(plain) and plain.count(_SEPARATOR) == 1 and "___" not in plain:
        return plain
    digest = sha256(f"{label}\0{tool}".encode()).hexdigest()[:_DIGEST]
    return f"{_INVALID.sub('_', plain)[: _MAX_NAME - _DIGEST - 1]}_{digest}"
