"""Who sent a request: what routing, limits, logs and records ask about a client."""

from typing import Final

import msgspec


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


ANONYMOUS: Final = ClientFacts()
"""A client of which nothing is known."""
