"""Settings of the test's MCP servers, and the server that speaks HTTP, as a program."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from dragoman.mcp_client.config import McpServerConfig
from support.paths import ROOT

COMMAND: Final = (sys.executable, str(ROOT / "tests/support/mcp_server.py"))
SESSIONS_COMMAND: Final = (sys.executable, str(ROOT / "tests/support/mcp_session_server.py"))
OLD_COMMAND: Final = (sys.executable, str(ROOT / "tests/support/old_mcp_server.py"))


def stdio(**fields: Any) -> McpServerConfig:
    return McpServerConfig(**{"command": COMMAND, "timeout_s": 60.0, "serve": True, **fields})


@asynccontextmanager
async def http_server(port: int = 0, mode: str = "") -> AsyncIterator[str]:
    """The URL of a server; the program is ended afterwards. `mode`: "sessions" for one with sessions that expire."""
    command = SESSIONS_COMMAND if mode == "sessions" else COMMAND
    process = await asyncio.create_subprocess_exec(*command, str(port), stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
