"""Fetches web pages by a tool of an MCP server: `use = "mcp:NAME/TOOL"`.

    {"url": "https://example.com/"}   →   a text, or structured content such as {"title": "Example", "content": "…"}

The rules for URLs are those of any web fetch, and what the host's name means to this machine is checked. The server
resolves the name again and follows redirects by itself, so it has to refuse private addresses too.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from dragoman.mcp_client.result import McpResult, McpServerError
from dragoman.text.json_cursor import load_json
from dragoman.tool_executors.config import WebFetchConfig
from dragoman.tool_executors.fetch.address_guard import AddressGuard, Resolve, resolve
from dragoman.tool_executors.fetch.fetch_url import FetchUrl, RefusedUrlError, parse_fetch_url
from dragoman.tool_executors.fetch.page_fetch import PageFetch
from dragoman.tool_executors.mcp_tool import McpTool
from dragoman.vendor_tools.tool import FetchedPage, VendorTool

ARGUMENT_NAMES: Final = ("url", "uri", "link", "href", "address", "page")
_TEXTS: Final = ("content", "text", "markdown", "result")


class McpFetch(PageFetch):
    """Fetches pages by a tool of an MCP server."""

    def __init__(self, settings: WebFetchConfig, tool: McpTool, resolve: Resolve = resolve) -> None:
        """
        Args:
            settings: What may be fetched, and the limits.
            tool: The tool.
            resolve: Resolves a host name.
        """
        super().__init__(settings)
        self._tool = tool
        self._guard = AddressGuard(settings.allow_private, settings.allowed_ports, resolve)

    async def fetch_page(self, url: FetchUrl, tool: VendorTool) -> FetchedPage:
        """See `PageFetch.fetch_page`."""
        await self._check_addresses(url)
        retrieved_at = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            result = await self._tool.call(str(url))
        except McpServerError as error:
            text = f"{error}. Answer without it, and say so."
            raise RefusedUrlError("the MCP server does not respond", "unavailable", text) from None
        if result.is_error:
            raise RefusedUrlError("the MCP server returned an error", "url_not_accessible", result.text)
        fields = _fields(result)
        text = next((fields[name] for name in _TEXTS if isinstance(fields.get(name), str)), result.text)
        title, reported = (value if isinstance(value := fields.get(name), str) else "" for name in ("title", "url"))
        return FetchedPage(str(self._reported(tool, reported, url)), title, text, retrieved_at)

    async def _check_addresses(self, url: FetchUrl) -> None:
        """Checks the port and the addresses of the host; a name that only the server can resolve is left to it.

        Raises:
            RefusedUrlError: The port or an address is refused.
        """
        try:
            await self._guard.addresses(url)
        except RefusedUrlError as error:
            if error.code != "url_not_accessible":
                raise

    def _reported(self, tool: VendorTool, reported: str, url: FetchUrl) -> FetchUrl:
        """Returns the URL after redirects, if the server reports it.

        Raises:
            RefusedUrlError: The settings or the request do not allow its host.
        """
        with suppress(RefusedUrlError):
            url = parse_fetch_url(reported)
        if not self.is_admitted(tool, url):
            raise RefusedUrlError("a redirect to a host that the settings or the request do not allow")
        return url


def _fields(result: McpResult) -> Mapping[str, Any]:
    """Returns the structured content; the text is not parsed, because the page itself may be JSON."""
    try:
        value = load_json(result.structured or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
