"""The tests' browser itself: what it may reach, and what is noticed."""

import pytest
from playwright.async_api import Browser

from support.browser.pages import tab
from support.fake_upstream import server, whole

pytestmark = pytest.mark.asyncio(loop_scope="session")
PAGE = """<!doctype html><html lang="en"><title>Page</title><body><h1>Page</h1>
<script>globalThis.secret = "marker-" + 2 * 12345; console.error("oh")</script>
<img src="https://example.com/image.png" alt=""></body></html>"""


async def test_browser_reaches_loopback_only_and_page_is_watched(chromium: Browser) -> None:
    policy = {"content_security_policy": "default-src * 'unsafe-inline'; style-src 'none'"}
    async with server(whole(200, PAGE, "text/html", **policy)) as site, tab(chromium, site.url) as one:
        await one.open()
        await one.page.evaluate("() => { document.body.innerHTML += '<style>p {}</style>' }")
        heap = await one.heap()
        assert "marker-24690" in heap
        assert "marker-24691" not in heap
        assert set(one.watch.foreign()) == {"https://example.com/image.png"}
        with pytest.raises(AssertionError, match=r"other hosts: \['https://example\.com"):
            one.watch.check()
        one.watch.requests.clear()
        for error in ("SOCKS_CONNECTION_FAILED", "oh", "CSP: style-src"):
            with pytest.raises(AssertionError, match=error):
                one.watch.check()
        one.watch.errors.clear()
