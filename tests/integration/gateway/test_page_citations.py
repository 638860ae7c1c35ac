"""Fetched pages in each API: `url_citation`, `char_location`, and pages that Chat Completions clients do not see."""

import json
from collections.abc import Sequence
from typing import Any, Final

import pytest

from dragoman import dialects
from dragoman.core import messages as v
from dragoman.core.events import TextDelta
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.vendor_tools.executor import ToolExecutor
from dragoman.vendor_tools.tool import SearchHit, ToolRunResult, VendorToolCall, search_result
from support.pages import Site, fetcher, page, site
from support.scenarios import call
from support.vendor_tools import FUNCTION, ONLY, asking, body, messages, scripted, whole

PAGE: Final = "# Release\n\nDragoman 1.0 came out on the fifth of May, in Lisbon."
QUOTE: Final = "came out on the fifth of May"
ANSWER: Final = f"As they say, it {QUOTE}."
each_stream = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
SEARCH: Final = call(0, "web_search", query="dragoman release")


class Found(ToolExecutor):
    """Finds one page."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def run(self, call: VendorToolCall) -> ToolRunResult:
        return search_result([SearchHit(self.url, "News", "Excerpt.")], 10_000)


def pages_with(**more: bytes) -> Any:
    return site({"/news": page(PAGE, "text/markdown"), **{f"/{name}": body for name, body in more.items()}})


def running(pages: Site, *, searches: bool = True) -> VendorToolRunner:
    fetch = {"web_fetch": fetcher(pages.port, any_url=False)}
    return VendorToolRunner({**fetch, **({"web_search": Found(pages.url("/news"))} if searches else {})})


def annotations(dialect: str, reply: Any) -> tuple[str, list[dict[str, Any]]]:
    """The text and its citations."""
    if dialect == "openai_responses":
        output = reply[-1]["response"]["output"] if isinstance(reply, list) else reply["output"]
        content = output[-1]["content"][0]
        return content["text"], content["annotations"]
    chunks = reply if isinstance(reply, list) else [reply]
    parts = [choice.get("delta") or choice.get("message") for chunk in chunks for choice in chunk["choices"]]
    found = [each["url_citation"] for part in parts if part for each in part.get("annotations", [])]
    return "".join(part.get("content") or "" for part in parts if part), found


@each_stream
@pytest.mark.parametrize("dialect", ["openai_responses", "openai_chat"])
async def test_openai_text_has_citation_of_quoted_page(dialect: str, stream: bool) -> None:
    asked: list[v.Request] = []
    async with pages_with() as pages:
        opened = call(0, "open_page", url=pages.url("/news"))
        script = scripted([TextDelta("Let me look."), *SEARCH], opened, [TextDelta(ANSWER)], asked=asked)
        async with asking(script, running(pages)) as http:
            reply = await whole(http, dialect, body(dialect, stream, **ONLY[dialect]))
        assert pages.paths == ["/news"]
    text, (cited,) = annotations(dialect, reply)
    assert text[cited["start_index"] : cited["end_index"]] == QUOTE
    assert (cited["url"], cited["title"]) == (pages.url("/news"), pages.url("/news"))
    assert [tool.name for tool in asked[0].tools] == ["web_search", "open_page"]


@pytest.mark.parametrize("kind", ["web_search", "web_fetch"])
async def test_chat_client_can_open_pages_only_if_both_are_configured(kind: str) -> None:
    asked: list[v.Request] = []
    async with pages_with() as pages:
        runner = VendorToolRunner({kind: running(pages).executors[kind]})
        async with asking(scripted([TextDelta(ANSWER)], asked=asked), runner) as http:
            answer = await http.post("/v1/chat/completions", json=body("openai_chat", False, **ONLY["openai_chat"]))
    assert [tool.name for request in asked for tool in request.tools] == (
        ["web_search"] if kind == "web_search" else []
    )
    assert answer.status_code == (200 if kind == "web_search" else 400)


async def test_function_of_chat_client_is_not_replaced() -> None:
    asked: list[v.Request] = []
    own = {"type": "function", "function": {"name": "open_page", "parameters": FUNCTION}}
    async with pages_with() as pages:
        script = scripted(call(0, "open_page", path="x"), asked=asked)
        async with asking(script, running(pages)) as http:
            reply = await whole(http, "openai_chat", body("openai_chat", False, tools=[own], **ONLY["openai_chat"]))
        assert not pages.server.connections
    assert reply["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "open_page"


FETCH: Final = {"type": "web_fetch_20250910", "name": "web_fetch"}
CITING: Final = {**FETCH, "citations": {"enabled": True}}


async def citations(
    script: Any, pages: Site, tools: Sequence[Any], history: Sequence[Any], *, stream: bool = False
) -> list[dict[str, Any]]:
    async with asking(script, running(pages)) as http:
        asked = body("anthropic_messages", stream, tools=tools, messages=history)
        reply = await whole(http, "anthropic_messages", asked)
    if not stream:
        return reply["content"][-1].get("citations") or []
    deltas = [event["delta"] for event in reply if event["type"] == "content_block_delta"]
    return [delta["citation"] for delta in deltas if delta["type"] == "citations_delta"]


@each_stream
async def test_messages_text_has_place_of_quote_in_page(stream: bool) -> None:
    async with pages_with(other=page("Nothing of interest.", "text/plain")) as pages:
        rounds = (call(0, "web_fetch", url=pages.url("/other")), call(0, "web_fetch", url=pages.url("/news")))
        script = scripted(*rounds, [TextDelta(ANSWER[:9]), TextDelta(ANSWER[9:])], asked=[])
        question = [{"role": "user", "content": f"{pages.url('/other')} {pages.url('/news')}"}]
        (cited,) = await citations(script, pages, [CITING], question, stream=stream)
    start = PAGE.index(QUOTE)
    assert (
        cited.items()
        >= {
            "type": "char_location",
            "document_index": 1,
            "document_title": None,
            "start_char_index": start,
            "end_char_index": start + len(QUOTE),
            "cited_text": QUOTE,
        }.items()
    )


async def test_page_is_not_cited_unless_request_enables_it() -> None:
    async with pages_with() as pages:
        script = scripted(call(0, "web_fetch", url=pages.url("/news")), [TextDelta(ANSWER)], asked=[])
        question = [{"role": "user", "content": pages.url("/news")}]
        assert await citations(script, pages, [FETCH], question) == []


async def test_documents_of_the_request_count_before_pages() -> None:
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}
    found = {
        "type": "search_result",
        "source": "https://a.org",
        "title": "A",
        "content": [{"type": "text", "text": "x"}],
    }
    async with pages_with() as pages:
        fetched = call(0, "web_fetch", url=pages.url("/news"))
        failed = call(0, "web_fetch", url=pages.url("/missing?x"))
        script = scripted(failed, fetched, [TextDelta(ANSWER)], fetched, [TextDelta(ANSWER)], asked=[])
        question = [{"role": "user", "content": [document, found, {"type": "text", "text": pages.url("/news")}]}]
        async with asking(script, running(pages)) as http:
            content, _ = await messages(http, False, tools=[CITING], messages=question)
            again = [*question, {"role": "assistant", "content": content}, {"role": "user", "content": "Again."}]
            later, _ = await messages(http, False, tools=[CITING], messages=again)
    assert [each["document_index"] for each in (*content[-1]["citations"], *later[-1]["citations"])] == [1, 2]


async def test_citations_come_back_without_warning() -> None:
    asked: list[v.Request] = []
    async with pages_with() as pages:
        fetched = call(0, "web_fetch", url=pages.url("/news"))
        script = scripted(fetched, [TextDelta(ANSWER)], [TextDelta("Bye.")], asked=asked)
        question = [{"role": "user", "content": pages.url("/news")}]
        async with asking(script, running(pages)) as http:
            content, _ = await messages(http, False, tools=[CITING], messages=question)
            history = [*question, {"role": "assistant", "content": content}, {"role": "user", "content": "Thanks."}]
            path = dialects.get("anthropic_messages").path
            again = body("anthropic_messages", False, tools=[CITING], messages=history)
            answered = await http.post(path, json=again)
    assert content[-1]["citations"]
    assert "citations" not in answered.headers.get("x-dragoman-warnings", "")
    texts = [part for message in asked[2].messages for part in message.parts if isinstance(part, v.Text)]
    assert not any(text.extra for text in texts)


async def test_search_results_and_pages_are_cited_together() -> None:
    async with pages_with() as pages:
        url = pages.url("/news")
        text = f"{ANSWER} See {url}."
        script = scripted(SEARCH, call(0, "web_fetch", url=url), [TextDelta(text)], asked=[])
        tools = [*ONLY["anthropic_messages"]["tools"], CITING]
        found = await citations(script, pages, tools, [{"role": "user", "content": "Look."}])
    assert [each["type"] for each in found] == ["web_search_result_location", "char_location"]
    assert json.dumps(found).count(QUOTE) == 1
