"""Who sent a request: what routing, limits, logs and records ask about a client."""

import re
from fnmatch import translate
from functools import lru_cache
from typing import Final

import msgspec


class Permissions(msgspec.Struct, frozen=True):
    """What the owner of an API key may use: patterns such as `qwen*`, in any case; an empty tuple admits all."""

    models: tuple[str, ...] = ()
    """Names of models and aliases, as they are requested."""
    upstreams: tuple[str, ...] = ()
    """Names of backends."""
    tools: tuple[str, ...] = ()
    """Tools that the gateway runs: kinds of tools such as `web_search`, and `mcp:NAME` for MCP servers."""

    def admits_model(self, *names: str) -> bool:
        """Returns whether a model may be requested by one of these names."""
        return not self.models or any(_matches(self.models, name) for name in names)

    def admits_upstream(self, name: str) -> bool:
        """Returns whether the backend of this name may answer."""
        return not self.upstreams or _matches(self.upstreams, name)

    def admits_tool(self, name: str) -> bool:
        """Returns whether the gateway may run the tool, or a tool of the MCP server `mcp:NAME`."""
        return not self.tools or _matches(self.tools, name)


class ClientFacts(msgspec.Struct, frozen=True):
    """What is known about the sender of a request; empty: not known."""

    key: str = ""
    """Name of the API key."""
    agent: str = ""
    """Name of the agent or SDK, such as `claude-code`: one of `catalog/clients.toml`."""
    role: str = ""
    """Which part of the agent asks: `main`, `subagent`, `title`, `compaction` or `background`; empty for an SDK."""
    session: str = ""
    """The agent's own id of the conversation, at most 128 characters."""
    permissions: Permissions | None = None
    """What the key may use; None: everything."""
    exchange: str = ""
    """The gateway's id of this request and its response."""
    secret_id: str = ""
    """A digest of the secret of a key without a name, to tell such clients apart; not for logs."""


ANONYMOUS: Final = ClientFacts()
"""A client of which nothing is known."""


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return _compiled(patterns).match(name.lower()) is not None


@lru_cache(1024)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(translate(pattern.lower()) for pattern in patterns))
