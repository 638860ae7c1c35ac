"""Common part of all web fetches: the function for the model, the rules for URLs, and texts to find in a page.

`fetch_url.py` parses URLs, `known_urls.py` finds them in the conversation, `page_find.py` finds texts.
"""

import asyncio
import json
import logging
from abc import abstractmethod
from typing import Final

import msgspec
from msgspec.structs import replace

from dragoman.core.messages import Tool
from dragoman.documents.pdf import MAX_CHARS
from dragoman.off_loop import off_loop
from dragoman.tool_executors.config import WebFetchConfig
from dragoman.tool_executors.domains import is_admitted, is_below
from dragoman.tool_executors.fetch.fetch_url import FetchUrl, RefusedUrlError, parse_fetch_url
from dragoman.tool_executors.fetch.known_urls import KnownUrls, text_chars
from dragoman.tool_executors.fetch.page_find import MAX_PATTERN_CHARS, find_passages
from dragoman.vendor_tools.codec import string_argument
from dragoman.vendor_tools.earlier_messages import EarlierMessages
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

log = logging.getLogger("dragoman.tool_executors.fetch.page_fetch")

_CHARS_PER_TOKEN: Final = 4
_DESCRIPTION: Final = "Fetches the page or PDF at a URL and returns its text."
_KNOWN_ONLY: Final = " Only URLs that the user, a search result or another tool result contains can be fetched."
_FINDS: Final = " With a pattern it returns only the passages of the page that contain it."
_URL: Final = {"type": "string", "description": "The URL of the page."}
_PATTERN: Final = {"type": "string", "description": "A text to find in the page. Leave it out to read the whole page."}
_NOT_FOUND: Final = "The page does not contain this text. Without a pattern, the whole page can be read."
_MAX_ON_LOOP_CHARS: Final = 50_000
"""Characters up to which finding a text, or URLs, takes less than about 5 ms."""


class _Arguments(msgspec.Struct):
    url: str


class PageFetch(ToolExecutor):
    """Fetches pages; a subclass knows how."""

    parameters = json.dumps({"type": "object", "properties": {"url": _URL}, "required": ["url"]})

    def __init__(self, settings: WebFetchConfig) -> None:
        """`settings`: what may be fetched, and the limits."""
        self.description = _DESCRIPTION + ("" if settings.any_url else _KNOWN_ONLY)
        self.settings = settings

    @abstractmethod
    async def fetch_page(self, url: FetchUrl, tool: VendorTool) -> FetchedPage:
        """Returns the page at a URL that the settings and the request allow; cancelled when its time is over.

        Raises:
            RefusedUrlError: It cannot or may not be fetched.
        """

    def function(self, tool: VendorTool) -> Tool:
        """See `ToolExecutor.function`."""
        if not tool.can_find:
            return super().function(tool)
        parameters = {"type": "object", "properties": {"url": _URL, "pattern": _PATTERN}, "required": ["url"]}
        return Tool(tool.name, self.description + _FINDS, json.dumps(parameters))

    async def refusal(self, call: VendorToolCall, earlier: EarlierMessages) -> ToolErrorCode | None:
        """Refuses a URL that does not occur in the conversation, unless the settings allow any."""
        if self.settings.any_url:
            return None
        try:
            url = _url(call)
        except RefusedUrlError as error:
            return error.code
        is_large = text_chars(earlier.messages) > _MAX_ON_LOOP_CHARS
        key = KnownUrls, call.tool.url_sources
        if key not in earlier.memo:
            find = off_loop(is_large, KnownUrls, earlier.messages, call.tool.url_sources)
            earlier.memo[key] = asyncio.create_task(find)
        known: KnownUrls = await asyncio.shield(earlier.memo[key])
        return None if await off_loop(is_large, known.contains, url) else "url_not_in_prior_context"

    async def run(self, call: VendorToolCall) -> ToolRunResult:
        """Fetches the page of the call."""
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                url, pattern = _url(call), _pattern(call)
                if not self.is_admitted(call.tool, url):
                    raise RefusedUrlError("a host that the settings or the request do not allow")
                page = await self.fetch_page(url, call.tool)
                if pattern:
                    page = await _only_passages(page, pattern)
        except RefusedUrlError as error:
            log.info("a page was not fetched: %s", error)
            result = error_result(error.code)
            return replace(result, text=error.text) if error.text else result
        except TimeoutError:
            log.info("a page was not fetched: it took more than %g s", self.settings.timeout_s)
            return error_result("url_not_accessible")
        tokens = call.tool.max_content_tokens
        return page_result(page, MAX_CHARS if tokens is None else tokens * _CHARS_PER_TOKEN)

    def is_admitted(self, tool: VendorTool, url: FetchUrl) -> bool:
        """Returns whether the settings and the request allow the URL's host."""
        hosts = self.settings.allowed_hosts
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
