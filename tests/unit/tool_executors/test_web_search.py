"""Arguments and domains of searches."""

import pytest

from dragoman.core.errors import UpstreamError
from dragoman.tool_executors.domains import is_admitted
from dragoman.tool_executors.web_search import WebSearch
from dragoman.vendor_tools.tool import SearchHit, VendorTool, VendorToolCall


class Listed(WebSearch):
    """Finds these pages, whatever the query is."""

    def __init__(self, *urls: str, max_results: int = 5) -> None:
        super().__init__(max_results)
        self.urls = urls
        self.queries: list[str] = []

    async def find(self, query: str, tool: VendorTool) -> list[SearchHit]:
        self.queries.append(query)
        if not self.urls:
            raise UpstreamError("the server is gone")
        return [SearchHit(url, url, "text") for url in self.urls]


def tool(allowed: tuple[str, ...] = (), blocked: tuple[str, ...] = ()) -> VendorTool:
    return VendorTool("web_search", "web_search", "web_search", None, allowed, blocked)


def search(arguments: str, **domains: tuple[str, ...]) -> VendorToolCall:
    return VendorToolCall("1", tool(**domains), arguments)


@pytest.mark.parametrize(
    ("allowed", "blocked", "url", "admitted"),
    [
        ((), (), "https://example.com/a", True),
        (("example.com",), (), "https://example.com/a", True),
        (("example.com",), (), "https://docs.EXAMPLE.com:8443/a", True),
        (("example.com",), (), "https://notexample.com/a", False),
        (("example.com",), (), "https://example.com.evil.org/a", False),
        (("example.com",), (), "https://evil.org/example.com", False),
        (("example.com/blog",), (), "https://example.com/blog/1", True),
        (("example.com/blog",), (), "https://example.com/shop", False),
        (("a.org", "b.org"), (), "https://b.org", True),
        ((), ("example.com",), "https://docs.example.com/a", False),
        ((), ("example.com",), "https://example.org", True),
        (("",), (), "https://example.com", False),
        (("example.com",), (), "http://[broken", False),
    ],
)
def test_domains_of_results(allowed: tuple[str, ...], blocked: tuple[str, ...], url: str, admitted: bool) -> None:
    assert is_admitted(url, tool(allowed, blocked)) == admitted


async def test_results_are_filtered_before_they_are_counted() -> None:
    listed = Listed("https://a.org/1", "https://b.org/1", "https://b.org/2", "https://b.org/3", max_results=2)
    result = await listed.run(search('{"query": " x "}', allowed=("b.org",)))
    assert [hit.url for hit in result.hits] == ["https://b.org/1", "https://b.org/2"]
    assert listed.queries == ["x"]
    assert result.error is None
    assert "https://b.org/1" in result.text


@pytest.mark.parametrize(
    ("location", "added"),
    [
        ("", ""),
        ('{"type": "approximate", "city": "Berlin", "country": "DE"}', " The user is near Berlin, DE."),
        (
            '{"type": "approximate", "approximate": {"city": "Graz", "region": "Styria", "timezone": "Europe/Vienna"}}',
            " The user is near Graz, Styria, Europe/Vienna.",
        ),
        ('{"type": "approximate"}', ""),
        ('{"city": null, "country": 5}', ""),
        (f'{{"city": {"[" * 5000}1{"]" * 5000}}}', ""),
        (f'{{"city": "{"x" * 101}"}}', ""),
        ('{"city": "Berlin.\\nIgnore"}', " The user is near Berlin. Ignore."),
    ],
)
def test_model_reads_the_location_of_the_user(location: str, added: str) -> None:
    function = Listed("https://a.org").function(VendorTool("web_search", "search", "x", user_location=location))
    assert (function.name, function.parameters) == ("search", WebSearch.parameters)
    assert function.description == WebSearch.description + added


@pytest.mark.parametrize(
    "arguments", ["{}", '{"query": ""}', '{"query": 3}', "[]", "{", '{"query": "%s"}' % ("x" * 2000)]
)
async def test_invalid_arguments_are_error_for_model(arguments: str) -> None:
    listed = Listed("https://a.org")
    result = await listed.run(search(arguments))
    assert result.error == "invalid_tool_input"
    assert listed.queries == []


async def test_failed_search_is_error_for_model() -> None:
    assert (await Listed().run(search('{"query": "x"}'))).error == "unavailable"


async def test_nothing_found_is_no_error() -> None:
    result = await Listed("https://a.org").run(search('{"query": "x"}', allowed=("b.org",)))
    assert (result.error, result.hits, result.text) == (None, (), "The search found nothing.")
