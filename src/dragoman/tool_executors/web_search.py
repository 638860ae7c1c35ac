"""Common part of all web searches: the function for the model, its arguments, and the domains of results."""

import json
import logging
from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from dragoman.core.errors import RemoteError, loggable_message
from dragoman.core.messages import Tool
from dragoman.tool_executors.domains import is_admitted
from dragoman.vendor_tools.executor import ToolExecutor
from dragoman.vendor_tools.tool import SearchHit, ToolRunResult, VendorTool, VendorToolCall, error_result, search_result

log = logging.getLogger("dragoman.tool_executors.web_search")

_MAX_QUERY_CHARS: Final = 1000
_MAX_PLACE_CHARS: Final = 100
_MAX_CHARS: Final = 100_000
"""Maximum characters of all results; the gateway's own limit is usually lower."""


class _Arguments(msgspec.Struct):
    query: str


def with_location(function: Tool, tool: VendorTool) -> Tool:
    """Returns the function of a search with the location of the user, which the model can add to queries."""
    if not tool.user_location:
        return function
    try:
        location = json.loads(tool.user_location)
    except (ValueError, RecursionError):  # also for thousands of digits
        return function
    inner = location.get("approximate")
    places = inner if isinstance(inner, dict) else location
    named = (places.get(name) for name in ("city", "region", "country", "timezone"))
    found = [" ".join(each.split()) for each in named if isinstance(each, str) and 0 < len(each) <= _MAX_PLACE_CHARS]
    if not found:
        return function
    return replace(function, description=f"{function.description} The user is near {', '.join(found)}.")


class WebSearch(ToolExecutor):
    """A web search; a subclass knows where."""

    description = "Searches for a query and returns titles, URLs and excerpts of the pages found."
    parameters = (
        '{"type":"object","properties":{"query":{"type":"string","description":"What to search for."}},'
        '"required":["query"]}'
    )

    def __init__(self, max_results: int) -> None:
        self._max_results = max_results

    @abstractmethod
    async def find(self, query: str, tool: VendorTool) -> Sequence[SearchHit]:
        """Returns what was found, the best first; more than requested is allowed.

        Raises:
            RemoteError: The search failed.
        """

    def function(self, tool: VendorTool) -> Tool:
        """See `ToolExecutor.function`."""
        return with_location(super().function(tool), tool)

    async def run(self, call: VendorToolCall) -> ToolRunResult:
        """Searches for the query of the call."""
        try:
            query = msgspec.json.decode(call.arguments, type=_Arguments).query.strip()
        except msgspec.DecodeError:
            query = ""
        if not query or len(query) > _MAX_QUERY_CHARS:
            return error_result("invalid_tool_input")
        try:
            found = await self.find(query, call.tool)
        except RemoteError as error:
            log.warning("a web search failed: %s", loggable_message(error))
            return error_result("unavailable")
        hits = [hit for hit in found if is_admitted(hit.url, call.tool)]
        return search_result(hits[: self._max_results], _MAX_CHARS)
