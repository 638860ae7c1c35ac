"""Searches by a SearXNG server over HTTP."""

import json
from typing import Any

import pytest

from dragoman.core.errors import RemoteError
from dragoman.tool_executors.searxng import SearxngSearch
from dragoman.vendor_tools.tool import SearchHit, VendorTool, VendorToolCall
from support.fake_upstream import server, whole

TOOL = VendorTool("web_search", "web_search", "web_search_20250305")
PAGE: dict[str, Any] = {
    "query": "x",
    "results": [
        {"url": "https://a.org/1", "title": "One", "content": "First.", "publishedDate": "2026-05-05", "score": 2.5},
        {"url": "https://b.org/2", "title": None, "engine": "wiby"},
    ],
    "answers": [],
}


async def test_results_are_read_from_json() -> None:
    async with server(whole(200, json.dumps(PAGE))) as far:
        search = SearxngSearch(far.url + "/searx/", 5, 5.0)
        await search.start()
        try:
            hits = await search.find("größe & more", TOOL)
        finally:
            await search.close()
    assert hits == [
        SearchHit("https://a.org/1", "One", "First.", "2026-05-05"),
        SearchHit("https://b.org/2", "https://b.org/2"),
    ]
    assert far.asked[0][0] == "GET /searx/search?q=gr%C3%B6%C3%9Fe%20%26%20more&format=json HTTP/1.1"


@pytest.mark.parametrize("wrong", [{"url": None}, {"url": "https://c.org", "content": 5}, {"title": "no url"}, "text"])
async def test_invalid_result_is_left_out(wrong: object) -> None:
    page = {"results": [wrong, *PAGE["results"]]}
    async with server(whole(200, json.dumps(page))) as far:
        search = SearxngSearch(far.url, 5, 5.0)
        hits = await search.find("x", TOOL)
        await search.close()
    assert [hit.url for hit in hits] == ["https://a.org/1", "https://b.org/2"]


async def test_single_allowed_domain_is_part_of_query() -> None:
    tool = VendorTool("web_search", "web_search", "web_search", None, ("b.org",))
    async with server(whole(200, json.dumps(PAGE))) as far:
        search = SearxngSearch(far.url, 5, 5.0)
        result = await search.run(VendorToolCall("1", tool, '{"query": "x"}'))
        await search.close()
    assert [hit.url for hit in result.hits] == ["https://b.org/2"]
    assert "q=x%20site%3Ab.org&" in far.asked[0][0]


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (403, "Forbidden", "add json to search.formats"),
        (429, "{}", "status 429"),
        (200, "<html></html>", "no search results"),
        (200, '{"results": [{"title": "no url"}]}', "no search results"),
    ],
)
async def test_other_responses_are_errors(status: int, body: str, message: str) -> None:
    async with server(whole(status, body)) as far:
        search = SearxngSearch(far.url, 5, 5.0)
        with pytest.raises(RemoteError, match=message):
            await search.find("x", TOOL)
        assert (await search.run(VendorToolCall("1", TOOL, '{"query": "x"}'))).error == "unavailable"
        await search.close()


async def test_unreachable_server_is_error() -> None:
    async with server(whole(200, "{}")) as far:
        url = far.url
    search = SearxngSearch(url, 5, 5.0)
    with pytest.raises(RemoteError, match="no search results"):
        await search.find("x", TOOL)
    await search.close()
