"""Downloads a page: each redirect is checked like the first URL, the body is limited before and after decompression.

Requests carry no cookies and no credentials. They never use a proxy, not even that of the environment: the proxy would
resolve the name again, and so undo the check of its addresses.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from dragoman.backends.http.client.errors import HttpError
from dragoman.backends.http.client.http_client import HttpClient, Response
from dragoman.tool_executors.fetch.address_guard import AddressGuard
from dragoman.tool_executors.fetch.fetch_url import FetchUrl, RefusedUrlError, redirect_url

_REDIRECTS: Final = (301, 302, 303, 307, 308)
_ACCEPT: Final = "text/html, application/xhtml+xml, application/pdf, text/*, application/json;q=0.9, */*;q=0.1"


class Download(NamedTuple):
    """A downloaded page."""

    url: FetchUrl
    """After all redirects."""
    content_type: str
    """As the server wrote it."""
    body: bytes


class PageDownloader:
    """Downloads one page after another, each over its own connection."""

    def __init__(self, guard: AddressGuard, *, max_bytes: int, max_redirects: int, timeout_s: float) -> None:
        """
        Args:
            guard: Checks the addresses of each host.
            max_bytes: Maximum bytes of a body, decompressed.
            max_redirects: Maximum redirects to follow.
            timeout_s: Limit of each wait for the server; the caller limits the whole download.
        """
        self._guard = guard
        self._max_bytes = max_bytes
        self._max_redirects = max_redirects
        self._timeout_s = timeout_s

    async def download(self, url: FetchUrl, admits: Callable[[FetchUrl], bool]) -> Download:
        """Returns the page.

        Args:
            url: Its URL.
            admits: Whether a URL may be fetched at all; also asked for each redirect.

        Raises:
            RefusedUrlError: A URL or address is refused, or the server sends no page.
        """
        seen: set[FetchUrl] = set()
        while len(seen) <= self._max_redirects:
            if not admits(url):
                raise RefusedUrlError("a host that the settings or the request do not allow")
            seen.add(url)
            page = await self._get(url)
            if isinstance(page, Download):
                return page
            url = redirect_url(url, page)
            if url in seen:
                raise RefusedUrlError("redirects in a circle", "url_not_accessible")
        raise RefusedUrlError(f"more than {self._max_redirects} redirects", "url_not_accessible")

    async def _get(self, url: FetchUrl) -> Download | str:
        """Returns the page, or where it is instead."""
        addresses = await self._guard.addresses(url)
        client = HttpClient(
            url.origin, {"accept": _ACCEPT}, connect_timeout_s=self._timeout_s, addresses=tuple(addresses)
        )
        try:
            response = await client.send("GET", url.target, timeout_s=self._timeout_s)
            try:
                return await self._read(url, response)
            finally:
                response.close()
        except HttpError as error:
            raise RefusedUrlError(f"the server cannot be read: {type(error).__name__}", "url_not_accessible") from None
        finally:
            await client.close()

    async def _read(self, url: FetchUrl, response: Response) -> Download | str:
        if response.status in _REDIRECTS and (location := response.headers.get("location")):
            return location
        if response.status == 429:
            raise RefusedUrlError("the server responded with status 429", "too_many_requests")
        if response.status != 200:
            raise RefusedUrlError(f"the server responded with status {response.status}", "url_not_accessible")
        declared = response.headers.get("content-length", "")
        body = b""
        is_too_long = declared.isdecimal() and int(declared[:20]) > self._max_bytes
        if not is_too_long:
            body = await response.read_body(self._max_bytes + 1)
        if is_too_long or len(body) > self._max_bytes:
            raise RefusedUrlError(f"a page of more than {self._max_bytes} bytes", "content_too_large")
        return Download(url, response.headers.get("content-type", ""), body)
