"""Searches by a SearXNG server.

    GET /search?q=…&format=json  →  {"results": [{"url": …, "title": …, "content": …, "publishedDate": …}, …]}

The server's settings must list `json` among `search.formats`; otherwise it responds with 403.

Source: https://docs.searxng.org/dev/search_api.html (2026-11).
"""

import os
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

from dragoman.backends.http.client.errors import HttpError
from dragoman.backends.http.client.http_client import HttpClient
from dragoman.backends.http.proxy import proxy_for
from dragoman.core.errors import BackendUnavailableError, UpstreamError
from dragoman.tool_executors.web_search import WebSearch
from dragoman.vendor_tools.tool import SearchHit, VendorTool

_MAX_BODY_BYTES: Final = 4 * 1024 * 1024
_JSON_OFF: Final = "its settings do not allow it to answer in JSON: add json to search.formats"


class _Result(msgspec.Struct):
    url: str
    title: str | None = None
    content: str | None = None
    publishedDate: str | None = None


class _Body(msgspec.Struct):
    results: list[msgspec.Raw]


_decode: Final = msgspec.json.Decoder(_Body).decode
_decode_result: Final = msgspec.json.Decoder(_Result).decode


def _valid(results: Sequence[msgspec.Raw]) -> list[_Result]:
    """Returns the results without invalid ones: engines differ in what they send.

    Raises:
        msgspec.DecodeError: There are only invalid ones.
    """
    valid: list[_Result] = []
    for n, raw in enumerate(results, 1):
        try:
            valid.append(_decode_result(raw))
        except msgspec.DecodeError:
            if n == len(results) and not valid:
                raise
    return valid


class SearxngSearch(WebSearch):
    """Searches by a SearXNG server, over the connections of its own client."""

    def __init__(self, url: str, max_results: int, timeout_s: float) -> None:
        """
        Args:
            url: Base URL of the server.
            max_results: Maximum results of a search.
            timeout_s: Limit until the response begins, and of each wait for its bytes.

        Raises:
            ConfigError: The proxy of the environment is invalid.
            LocalProtocolError: The URL is invalid.
        """
        super().__init__(max_results)
        self._path = urlsplit(url).path.rstrip("/")
        self._timeout_s = timeout_s
        self._client = HttpClient(url, {"accept": "application/json"}, proxy=proxy_for(url, "", os.environ))

    async def start(self) -> None:
        """Opens the client."""
        self._client.start()

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()

    async def find(self, query: str, tool: VendorTool) -> Sequence[SearchHit]:
        """Returns the results of the first page.

        Raises:
            RemoteError: The server cannot be reached, or responds with an error.
        """
        if len(tool.allowed_domains) == 1:
            query = f"{query} site:{tool.allowed_domains[0]}"
        try:
            body = await self._get(f"{self._path}/search?q={quote(query, safe='')}&format=json")
            results = _valid(_decode(body).results)
        except (HttpError, msgspec.DecodeError, UnicodeError) as error:
            message = f"the search server sent no search results: {type(error).__name__}"
            raise BackendUnavailableError(message) from None
        return [SearchHit(r.url, r.title or r.url, r.content or "", r.publishedDate or "") for r in results]

    async def _get(self, target: str) -> bytes:
        response = await self._client.send("GET", target, timeout_s=self._timeout_s)
        try:
            body = await response.read_body(_MAX_BODY_BYTES)
        finally:
            response.close()
        if response.status != 200:
            why = f"; {_JSON_OFF}" if response.status == 403 else ""
            raise UpstreamError(f"the search server responded with status {response.status}{why}")
        return body
