"""Fetches web pages: the function for the model, the rules for URLs, and the text of pages.

`fetch_url.py` parses URLs, `known_urls.py` finds them in the conversation, `address_guard.py` checks addresses,
`page_download.py` follows redirects, `page_text.py` extracts the text.
"""

import asyncio
import json
import logging
from datetime import UTC, datetime
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from dragoman.core.messages import Tool
from dragoman.documents.pdf import MAX_CHARS
from dragoman.off_loop import off_loop
from dragoman.tool_executors.config import WebFetchConfig
from dragoman.tool_executors.domains import is_admitted, is_below
from dragoman.tool_executors.fetch.address_guard import AddressGuard, Resolve, resolve
from dragoman.tool_executors.fetch.fetch_url import FetchUrl, RefusedUrlError, parse_fetch_url
from dragoman.tool_executors.fetch.known_urls import KnownUrls, text_chars
from dragoman.tool_executors.fetch.page_download import PageDownloader
from dragoman.tool_executors.fetch.page_find import MAX_PATTERN_CHARS, find_passages
from dragoman.tool_executors.fetch.page_text import PageReader
from dragoman.vendor_tools.codec import string_argument
from dragoman.vendor_tools.conversation import Conversation
from dragoman.vendor_tools.executor import ToolExecutor
from dragoman.vendor_tools.tool import (
    FetchedPage,
    ToolErrorCode,
    ToolRunResult,
    VendorTool,
    VendorToolCall,
    error_result,
    page_result,
)

log = logging.getLogger("dragoman.tool_executors.fetch.web_fetch")

_CHARS_PER_TOKEN: Final = 4
_DESCRIPTION: Final = "Fetches the page or PDF at a URL and returns its text."
_KNOWN_ONLY: Final = " Only URLs that the user, a search result or another tool result contains can be fetched."


_FINDS: Final = " With a pattern it returns only the passages of the page that contain it."
_URL: Final = {"type": "string", "description": "The URL of the page."}
_PATTERN: Final = {"type": "string", "description": "A text to find in the page. Leave it out to read the whole page."}
_NOT_FOUND: Final = "The page does not contain this text."
_MAX_ON_LOOP_CHARS: Final = 50_000
"""Characters of a page up to which finding a text takes less than about 1 ms."""


class _Arguments(msgspec.Struct):
    url: str


class WebFetch(ToolExecutor):
    """Fetches pages over HTTP."""

    parameters = json.dumps({"type": "object", "properties": {"url": _URL}, "required": ["url"]})

    def __init__(self, settings: WebFetchConfig, resolve: Resolve = resolve) -> None:
        """
        Args:
            settings: What may be fetched, and the limits.
            resolve: Resolves a host name.
        """
        self.description = _DESCRIPTION + ("" if settings.any_url else _KNOWN_ONLY)
        self._settings = settings
        guard = AddressGuard(settings.allow_private, settings.allowed_ports, resolve)
        self._downloader = PageDownloader(
            guard,
            max_bytes=settings.max_bytes,
            max_redirects=settings.max_redirects,
            timeout_s=settings.timeout_s,
        )
        self._reader = PageReader(settings.timeout_s)

    def function(self, tool: VendorTool) -> Tool:
        """See `ToolExecutor.function`."""
        if not tool.can_find:
            return super().function(tool)
        parameters = {"type": "object", "properties": {"url": _URL, "pattern": _PATTERN}, "required": ["url"]}
        return Tool(tool.name, self.description + _FINDS, json.dumps(parameters))

    async def refusal(self, call: VendorToolCall, conversation: Conversation) -> ToolErrorCode | None:
        """Refuses a URL that does not occur in the conversation, unless the settings allow any."""
        if self._settings.any_url:
            return None
        try:
            url = _url(call)
        except RefusedUrlError as error:
            return error.code
        is_large = text_chars(conversation.messages) > _MAX_ON_LOOP_CHARS
        find = partial(off_loop, is_large, KnownUrls, conversation.messages, call.tool.url_sources)
        known = await conversation.once((KnownUrls, call.tool.url_sources), find)
        return None if await off_loop(is_large, known.contains, url) else "url_not_in_prior_context"

    async def run(self, call: VendorToolCall) -> ToolRunResult:
        """Fetches the page of the call."""
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                page = await self._fetch(_url(call), call.tool)
                if pattern := _pattern(call):
                    page = await _only_passages(page, pattern)
        except RefusedUrlError as error:
            log.info("a page was not fetched: %s", error)
            result = error_result(error.code)
            if error.code == "unsupported_content_type":
                return replace(result, text=f"{error}.")
            return result
        except TimeoutError:
            log.info("a page was not fetched: it took more than %g s", self._settings.timeout_s)
            return error_result("url_not_accessible")
        tokens = call.tool.max_content_tokens
        return page_result(page, MAX_CHARS if tokens is None else tokens * _CHARS_PER_TOKEN)

    async def _fetch(self, url: FetchUrl, tool: VendorTool) -> FetchedPage:
        download = await self._downloader.download(url, partial(self._is_admitted, tool))
        retrieved_at = datetime.now(UTC).isoformat(timespec="seconds")
        page = await self._reader.read(download)
        return FetchedPage(str(download.url), page.title, page.text, retrieved_at)

    def _is_admitted(self, tool: VendorTool, url: FetchUrl) -> bool:
        hosts = self._settings.allowed_hosts
        return is_admitted(str(url), tool) and (not hosts or is_below(str(url), hosts))


async def _only_passages(page: FetchedPage, pattern: str) -> FetchedPage:
    """Returns the page with the passages that contain the pattern."""
    found = await off_loop(len(page.text) > _MAX_ON_LOOP_CHARS, find_passages, page.text, pattern)
    return replace(page, text=found or _NOT_FOUND)


def _pattern(call: VendorToolCall) -> str:
    """Returns the text to find; "" if the whole page is read.

    Raises:
        RefusedUrlError: It is too long.
    """
    pattern = string_argument(call.arguments, "pattern").strip() if call.tool.can_find else ""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise RefusedUrlError(f"a pattern of {len(pattern)} characters", "invalid_tool_input")
    return pattern


def _url(call: VendorToolCall) -> FetchUrl:
    try:
        written = msgspec.json.decode(call.arguments, type=_Arguments).url
    except msgspec.DecodeError:
        raise RefusedUrlError("arguments without a URL", "invalid_tool_input") from None
    return parse_fetch_url(written.strip(" "))
