"""Logs of the MCP SDK and its HTTP client, which contain URLs with keys, ids of sessions, arguments and results."""

import logging
from typing import Final

LOGGERS: Final = ("mcp", "client", "httpx2", "httpcore2", "sse_starlette")


def silence() -> None:
    """Turns these logs off, at every level."""
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
