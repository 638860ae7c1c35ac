"""`dragoman mcp`: serves the tools of all configured MCP servers as one MCP server, by standard input and output."""

import argparse
import asyncio
import os
from pathlib import Path

from dragoman import compose
from dragoman import config as settings
from dragoman.cli._common import require_extras
from dragoman.core.errors import ConfigError
from dragoman.mcp_client import library_logs
from dragoman.mcp_client.pool import McpServers

_EXAMPLES = """
    examples:
      dragoman mcp                                     serve until standard input ends
      claude mcp add tools -- dragoman mcp             let Claude Code use them
      dragoman mcp --config tools.toml                 use another settings file

    exit status:
      0  standard input ended, or SIGTERM
      2  the settings are wrong, or have no [mcp.NAME]
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    command = commands.add_parser(
        "mcp",
        help="serve the tools of all configured MCP servers as one",
        description="Serve the tools of all MCP servers of the settings ([mcp.NAME]) as one MCP server, by standard "
        "input and output. A tool is named NAME__TOOL. A server is started when it is first used.",
        epilog=_EXAMPLES,
    )
    command.add_argument("--config", type=Path, metavar="FILE", help="settings file")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serves until standard input ends or SIGTERM arrives.

    Raises: ConfigError: the settings are wrong, or name no server.
    """
    require_extras("tools", doing="serving MCP")
    path = compose.settings_path(args.config)
    config, _ = settings.load(path, os.environ, {})
    if not config.mcp:
        raise ConfigError(f"expected MCP servers in the settings, [mcp.NAME], got none - in {path or 'the defaults'}")
    from dragoman.mcp_client.combined_server import serve_stdio

    library_logs.silence()
    asyncio.run(serve_stdio(McpServers(config.mcp)))
    return 0
