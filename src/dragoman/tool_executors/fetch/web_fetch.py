"""Fetches web pages over HTTP.

`address_guard.py` checks addresses, `page_download.py` follows redirects, `page_text.py` extracts the text.
"""

from datetime import UTC, datetime
from functools import partial

from dragoman.tool_executors.config import WebFetchConfig
from dragoman.tool_executors.fetch.address_guard import AddressGuard, Resolve, resolve
from dragoman.tool_executors.fetch.fetch_url import FetchUrl
from dragoman.tool_executors.fetch.page_download import PageDownloader
from dragoman.tool_executors.fetch.page_fetch import PageFetch
from dragoman.tool_executors.fetch.page_text import PageReader
from dragoman.vendor_tools.tool import FetchedPage, VendorTool


class WebFetch(PageFetch):
    """Fetches pages over HTTP."""

    def __init__(self, settings: WebFetchConfig, resolve: Resolve = resolve) -> None:
        """
        Args:
            settings: What may be fetched, and the limits.
            resolve: Resolves a host name.
        """
        super().__init__(settings)
        guard = AddressGuard(settings.allow_private, settings.allowed_ports, resolve)
        self._downloader = PageDownloader(
            guard,
            max_bytes=settings.max_bytes,
            max_redirects=settings.max_redirects,
            timeout_s=settings.timeout_s,
        )
        self._reader = PageReader(settings.timeout_s)

    async def fetch_page(self, url: FetchUrl, tool: VendorTool) -> FetchedPage:
        """See `PageFetch.fetch_page`."""
        download = await self._downloader.download(url, partial(self.is_admitted, tool))
        retrieved_at = datetime.now(UTC).isoformat(timespec="seconds")
        page = await self._reader.read(download)
        return FetchedPage(str(download.url), page.title, page.text, retrieved_at)
