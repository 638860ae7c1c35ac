"""All MCP servers of a gateway: those of the settings, by name."""

import os
from collections.abc import Mapping

from dragoman.closing import close_all
from dragoman.core.errors import ConfigError, nearest, quote
from dragoman.mcp_client.config import McpServerConfig, check_name
from dragoman.mcp_client.server import McpServer
from dragoman.process_reaper.reaper import Reaper


class McpServers:
    """The servers of the settings; each is started when it is first used."""

    def __init__(self, configs: Mapping[str, McpServerConfig], environ: Mapping[str, str] = os.environ) -> None:
        """Args:
        configs: The settings of each server.
        environ: The environment variables.

        Raises:
            ConfigError: The extra `tools` is not installed, or a setting is wrong.
        """
        for name in configs:
            check_name(name)
        self._reaper = Reaper()
        self.by_name = {name: McpServer(name, config, environ, self._reaper) for name, config in configs.items()}

    def find(self, use: str, where: str) -> tuple[McpServer, str]:
        """Returns the server and the name of the tool that a setting `mcp:NAME/TOOL` names.

        Raises:
            ConfigError: It has another form, or there is no such server.
        """
        name, slash, tool = use.removeprefix("mcp:").partition("/")
        if not slash or not tool:
            raise ConfigError(f"expected mcp:NAME/TOOL, got {quote(use)} - at {where}")
        server = self.by_name.get(name)
        if server is None:
            hint = nearest(name, self.by_name)
            raise ConfigError(f"expected a server of the settings [mcp.NAME], got {quote(name)}{hint} - at {where}")
        allowed = server.config.allowed_tools
        if allowed and tool not in allowed:
            raise ConfigError(f"expected one of mcp.{name}.allowed_tools, got {quote(tool)} - at {where}")
        return server, tool

    def served(self) -> dict[str, McpServer]:
        """Returns the servers whose tools the clients of the gateway may use, by name."""
        return {name: server for name, server in self.by_name.items() if server.config.serve}

    def secret_values(self) -> list[str]:
        """Returns the values of headers, which must not appear in logs or captures."""
        return [value for server in self.by_name.values() for value in server.secret_values()]

    async def close(self) -> None:
        """Ends all servers.

        Raises:
            ExceptionGroup: Some could not be ended.
        """
        try:
            await close_all(*(server.close for server in self.by_name.values()))
        finally:
            await self._reaper.close()
