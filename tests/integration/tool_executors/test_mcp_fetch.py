"""Web fetch by the tool of a real MCP server: the rules for URLs, and what its results become."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from dragoman.core.events import TextDelta
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.mcp_client.config import McpServerConfig
from dragoman.mcp_client.pool import McpServers
from dragoman.tool_executors.config import ToolsConfig, WebFetchConfig
from dragoman.tool_executors.fetch.mcp_fetch import ARGUMENT_NAMES, McpFetch
from dragoman.tool_executors.mcp_tool import McpTool
from dragoman.tool_executors.registry import build_executors
from dragoman.vendor_tools.earlier_messages import EarlierMessages
from dragoman.vendor_tools.tool import ToolRunResult, VendorTool, VendorToolCall
from support.pages import TOOL, Resolver
from support.paths import ROOT
from support.scenarios import call
from support.vendor_tools import asking, messages, scripted

COMMAND: Final = (sys.executable, str(ROOT / "tests/support/mcp_page_server.py"))
URL: Final = "https://pages.example/news"
PAGE: Final = "Dragoman 1.0 came out on the fifth of May, in Lisbon."


@asynccontextmanager
async def fetcher(
    tool: str = "read", resolver: Resolver | None = None, command: tuple[str, ...] = COMMAND, **settings: Any
) -> AsyncIterator[McpFetch]:
    servers = McpServers({"pages": McpServerConfig(command=command, timeout_s=60.0)}, {})
    config = WebFetchConfig(f"mcp:pages/{tool}", **{"any_url": True, "timeout_s": 60.0, **settings})
    server, name = servers.find(config.use, "tools.web_fetch.use")
    try:
        yield McpFetch(config, McpTool(server, name, ARGUMENT_NAMES), resolver or Resolver(["93.184.215.14"]))
    finally:
        await servers.close()


async def fetched(fetch: McpFetch, url: str = URL, tool: VendorTool = TOOL, **more: str) -> ToolRunResult:
    return await fetch.run(VendorToolCall("1", tool, json.dumps({"url": url, **more})))


@pytest.mark.parametrize(
    ("tool", "path", "title", "text"),
    [
        ("read", "news", "", PAGE),
        ("structured", "news", "News", PAGE),
        ("read", "data", "", '{"title": "Not a title", "content": "Not a page"}'),
    ],
)
async def test_result_is_a_page(tool: str, path: str, title: str, text: str) -> None:
    url = f"https://pages.example/{path}"
    async with fetcher(tool) as fetch:
        page = (await fetched(fetch, url)).page
    assert page is not None
    assert (page.url, page.title, page.text) == (url, title, text)
    assert page.retrieved_at.startswith("20")


async def test_reported_url_is_that_of_the_page() -> None:
    async with fetcher("moved") as fetch:
        page = (await fetched(fetch)).page
        assert page is not None
        assert page.url == "https://elsewhere.example/news"
        refused = await fetched(fetch, tool=VendorTool("web_fetch", "f", "f", allowed_domains=("pages.example",)))
        assert refused.error == "url_not_allowed"
        assert PAGE not in refused.text


@pytest.mark.parametrize(
    ("url", "settings", "options", "code"),
    [
        (URL, {"allowed_hosts": ("example.org",)}, {}, "url_not_allowed"),
        (URL, {}, {"allowed_domains": ("example.org",)}, "url_not_allowed"),
        (URL, {}, {"blocked_domains": ("pages.example",)}, "url_not_allowed"),
        ("https://pages.example:8443/news", {}, {}, "url_not_allowed"),
        ("http://169.254.169.254/news", {}, {}, "url_not_allowed"),
        ("http://me:key@pages.example/news", {}, {}, "url_not_allowed"),
        ("file:///etc/news", {}, {}, "invalid_tool_input"),
        ("https://pages.example/" + "a" * 2048, {}, {}, "url_too_long"),
    ],
)
async def test_refused_url_does_not_reach_the_server(
    url: str, settings: dict[str, Any], options: dict[str, Any], code: str
) -> None:
    resolver = Resolver(["169.254.169.254" if "169.254" in url else "93.184.215.14"])
    async with fetcher(resolver=resolver, command=("/no/such/program",), **settings) as fetch:
        result = await fetched(fetch, url, VendorTool("web_fetch", "web_fetch", "web_fetch", **options))
    assert result.error == code


async def test_private_address_of_a_name_is_refused() -> None:
    async with fetcher(resolver=Resolver(["10.0.0.7"]), command=("/no/such/program",)) as fetch:
        assert (await fetched(fetch)).error == "url_not_allowed"
    async with fetcher(resolver=Resolver(["10.0.0.7"]), allow_private=("pages.example",)) as fetch:
        assert (await fetched(fetch)).page is not None


async def test_name_that_only_the_server_knows_is_left_to_it() -> None:
    async with fetcher(resolver=Resolver([])) as fetch:
        assert (await fetched(fetch)).page is not None


async def test_url_of_model_is_refused() -> None:
    async with fetcher(any_url=False, command=("/no/such/program",)) as fetch:
        refused = await fetch.refusal(VendorToolCall("1", TOOL, json.dumps({"url": URL})), EarlierMessages(()))
    assert refused == "url_not_in_prior_context"


async def test_error_of_the_server_is_read_by_the_model() -> None:
    async with fetcher() as fetch:
        result = await fetched(fetch, "https://pages.example/missing")
    assert result.error == "url_not_accessible"
    assert "https://pages.example/missing has no page" in result.text


@pytest.mark.parametrize(("tool", "command"), [("read", ("/no/such/program",)), ("no_such_tool", COMMAND)])
async def test_missing_server_or_tool_is_named(tool: str, command: tuple[str, ...]) -> None:
    async with fetcher(tool, command=command) as fetch:
        result = await fetched(fetch)
    assert result.error == "unavailable"
    assert "MCP server pages" in result.text


async def test_server_that_hangs_is_not_waited_for() -> None:
    async with fetcher("hang", timeout_s=2.0) as fetch:
        assert (await fetched(fetch)).error == "url_not_accessible"


async def test_text_is_found_in_page() -> None:
    async with fetcher() as fetch:
        page = (await fetched(fetch, tool=VendorTool("web_fetch", "f", "f", can_find=True), pattern="2.0")).page
    assert page is not None
    assert page.text.startswith("The page does not contain this text.")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_messages_client_gets_page(stream: bool) -> None:
    servers = McpServers({"pages": McpServerConfig(command=COMMAND, timeout_s=60.0)}, {})
    settings = WebFetchConfig("mcp:pages/structured", allow_private=("127.0.0.0/8",), timeout_s=60.0)
    executors = build_executors(ToolsConfig(web_fetch=settings), servers)
    url = "http://127.0.0.1/news"
    script = scripted(call(0, "web_fetch", url=url), [TextDelta("Done.")], asked=[])
    runner = VendorToolRunner(executors, on_close=servers.close)
    async with asking(script, runner) as http:
        tool = {"type": "web_fetch_20250910", "name": "web_fetch"}
        content, _ = await messages(http, stream, tools=[tool], messages=[{"role": "user", "content": url}])
    await runner.close()
    result = content[1]["content"]
    assert (result["url"], result["content"]["title"], result["content"]["source"]["data"]) == (url, "News", PAGE)
