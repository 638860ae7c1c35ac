"""The tools of the MCP servers that `--mcp` names: found, offered to the model, and run.

`--mcp` is a server of the settings, a URL, or a command line, which is started without a shell.
"""

import asyncio
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from dragoman import config as settings
from dragoman.cli._common import require_extras
from dragoman.cli._terminal import ProgressLine
from dragoman.cli.chat.background_loop import BackgroundLoop
from dragoman.cli.chat.line_editor import without_echo
from dragoman.core.errors import BackendUnavailableError, ConfigError, nearest, quote
from dragoman.core.messages import Text, Tool, ToolCall, ToolResult
from dragoman.mcp_client.config import McpServerConfig
from dragoman.mcp_client.pool import McpServers
from dragoman.mcp_client.result import McpServerError
from dragoman.mcp_client.server import McpServer
from dragoman.text.json_cursor import load_json
from dragoman.vendor_tools.remote import function_name

_NO_NAME = re.compile(r"[^A-Za-z0-9-]+|_+")
_INVALID = re.compile(r"[^A-Za-z0-9_-]")
"""What names of tools must not contain in some APIs."""
_MAX_NAME = 64

_CUT = 60
"""Length of a name before a number is added."""
_RUNNERS = ("python", "node", "npx", "uv", "bun", "deno", "pipx")
"""Programs that run another one, which names the server."""


class OfferedTool(NamedTuple):
    """A tool as the model sees it, and where it runs."""

    tool: Tool
    server: McpServer
    name: str
    """Its name on the server."""


class Toolbox:
    """The tools of all servers."""

    def __init__(self, servers: Mapping[str, McpServerConfig], max_result_chars: int) -> None:
        """Args:
        servers: The settings of each server, by name.
        max_result_chars: Maximum characters of a result for the model; more are cut.

        Raises:
            ConfigError: The extra `tools` is not installed, or a setting is wrong.
        """
        self._servers = McpServers(servers)
        self._max_result_chars = max_result_chars
        self._offered: dict[str, OfferedTool] = {}

    @property
    def offered(self) -> list[OfferedTool]:
        """The tools, in the order of the servers."""
        return list(self._offered.values())

    async def open(self) -> None:
        """Starts the servers and lists their tools.

        Raises:
            BackendUnavailableError: A server does not respond; the message has the last line that its program wrote.
        """
        servers = list(self._servers.by_name.values())
        try:
            listed = await asyncio.gather(*(server.tools() for server in servers))
        except McpServerError as error:
            lines = [line for server in servers for line in server.last_output.splitlines() if line.strip()]
            wrote = f"; it wrote: {lines[-1].strip()}" if lines else ""
            raise BackendUnavailableError(f"{error}{wrote}") from None
        names = [_INVALID.sub("_", tool.name) for tools in listed for tool in tools]
        for server, tools in zip(servers, listed, strict=True):
            for tool in tools:
                own = _INVALID.sub("_", tool.name)
                is_usable = names.count(own) == 1 and len(own) <= _MAX_NAME
                name = own if is_usable else self._free(function_name(server.name, tool.name))
                self._offered[name] = OfferedTool(Tool(name, tool.description, tool.parameters), server, tool.name)

    def _free(self, name: str) -> str:
        """Returns the name, with a number if it is used already: long names are cut, and may be equal then."""
        number, free = 2, name
        while free in self._offered:
            free, number = f"{name[:_CUT]}_{number}", number + 1
        return free

    def server_of(self, name: str) -> str:
        """Returns the name of the server of a tool; "" if no such tool is offered."""
        return self._offered[name].server.name if name in self._offered else ""

    async def run(self, call: ToolCall) -> ToolResult:
        """Runs a call and returns its result, which may be an error."""
        offered = self._offered.get(call.name)
        if offered is None:
            return failed(call, f"there is no tool {call.name}{nearest(call.name, list(self._offered))}")
        try:
            arguments = load_json(call.arguments)
            result = await offered.server.call(offered.name, arguments)
        except (ValueError, RecursionError, McpServerError) as error:
            return failed(call, str(error))
        cut = result.text[: self._max_result_chars]
        if cut != result.text:
            cut += f"\n[The result was cut: {len(cut)} of {len(result.text)} characters are shown.]"
        return ToolResult(call.id, (Text(cut), *result.images), result.is_error)

    async def close(self) -> None:
        """Ends the servers."""
        await self._servers.close()


@contextmanager
def open_toolbox(
    values: Sequence[str], config: settings.Config, loop: BackgroundLoop, line: ProgressLine
) -> "Iterator[Toolbox | None]":
    """Starts the servers that `--mcp` names, and ends them at the end; yields None if there are none.

    Args:
        values: The values of the option.
        config: The settings.
        loop: Runs the servers' clients.
        line: Shows what the user waits for.

    Raises:
        ConfigError: A value is wrong, or the extra `tools` is not installed.
        BackendUnavailableError: A server does not respond; the message has the last line that its program wrote.
    """
    if not values:
        yield None
        return
    require_extras("tools", doing="using MCP servers")
    toolbox = Toolbox(servers_of(values, config.mcp), config.tools.max_result_chars)
    try:
        with without_echo(), line.showing("starting MCP servers"):
            loop.run(toolbox.open(), line.redraw)
        yield toolbox
    finally:
        loop.run(toolbox.close())


def failed(call: ToolCall, message: str) -> ToolResult:
    """Returns the result of a call that was not run or failed."""
    return ToolResult(call.id, (Text(message),), is_error=True)


def result_text(result: ToolResult) -> str:
    """Returns the text of a result."""
    return "\n".join(part.text if isinstance(part, Text) else "[image]" for part in result.parts)


def servers_of(values: Sequence[str], configured: Mapping[str, McpServerConfig]) -> dict[str, McpServerConfig]:
    """Returns the servers that `--mcp` names.

    Args:
        values: The values of the option.
        configured: The servers of the settings.

    Raises:
        ConfigError: A value is neither a server of the settings, nor a URL, nor a program.
    """
    servers: dict[str, McpServerConfig] = {}
    for value in values:
        if value in configured:
            servers[value] = configured[value]
        elif value.startswith(("http://", "https://")):
            servers[_free_name(urlsplit(value).hostname or "server", servers)] = McpServerConfig(url=value)
        else:
            command = _command(value, configured)
            servers[_free_name(_title(command), servers)] = McpServerConfig(command=command)
    return servers


def _command(value: str, configured: Mapping[str, McpServerConfig]) -> tuple[str, ...]:
    try:
        command = tuple(shlex.split(value))
    except ValueError as error:
        raise ConfigError(f"--mcp: expected a command line, got {quote(value)}: {str(error).lower()}") from None
    if command and shutil.which(str(Path(command[0]).expanduser())):
        return command
    names = (
        f"; the settings have {', '.join(sorted(configured))}" if configured else "; the settings have no [mcp.NAME]"
    )
    raise ConfigError(
        "--mcp: expected a server of the settings, a URL or a command, "
        f"got {quote(value)}{nearest(value, list(configured)) or names}"
    )


def _title(command: Sequence[str]) -> str:
    """Returns a name for a program: that of the script or package that it runs, else its own."""
    program = Path(command[0]).stem
    if not program.startswith(_RUNNERS):
        return program
    return next((Path(word).stem for word in command[1:] if not word.startswith("-") and word != "run"), program)


def _free_name(title: str, used: Mapping[str, object]) -> str:
    name = _NO_NAME.sub("_", title).strip("_") or "server"
    number = 2
    free = name
    while free in used:
        free, number = f"{name}{number}", number + 1
    return free
