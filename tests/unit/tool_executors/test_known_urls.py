"""URLs that occur in a conversation, which a model may fetch, and URLs of its own, which it may not."""

import pytest

from dragoman.core.messages import Document, MediaSource, Message, Text, ToolCall, ToolResult
from dragoman.tool_executors.fetch.fetch_url import parse_fetch_url
from dragoman.tool_executors.fetch.known_urls import KnownUrls
from dragoman.vendor_tools.tool import ToolFilter, UrlSources

SECRET = "https://example.com/x?data=secret"


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def known(url: str, *messages: Message, sources: UrlSources | None = None) -> bool:
    return KnownUrls(messages, sources or UrlSources()).contains(parse_fetch_url(url))


@pytest.mark.parametrize(
    "text",
    [
        "Read https://example.com/a?b=1&c=2 please",
        "https://example.com/a?b=1&c=2",
        "(https://example.com/a?b=1&c=2).",
        "[this](https://example.com/a?b=1&c=2)",
        "**https://example.com/a?b=1&c=2**",
        '<a href="https://example.com/a?b=1&amp;c=2">',
        '{"url":"https://example.com/a?b=1&c=2"}',
        "http://example.com/a?b=1&c=2",
        "HTTPS://EXAMPLE.com/a?b=1&c=2#part",
        "see example.com/a?b=1&c=2",
    ],
)
def test_url_of_user_is_known(text: str) -> None:
    assert known("https://example.com/a?b=1&c=2", user(text))


@pytest.mark.parametrize(
    "text",
    [
        "https://example.com/x",
        "https://example.com/x?data=",
        "https://example.com/x?data=secrets",
        "https://example.com/x?data=Secret",
        "https://example.com:8443/x?data=secret",
        "https://www.example.com/x?data=secret",
        "mail me@example.com/x?data=secret",
        "https://other.example/https://example.com/x?data=secret2",
        "https://example.com/x and ?data=secret",
        "",
    ],
)
def test_url_made_by_model_is_not_known(text: str) -> None:
    assert not known(SECRET, user(text))


def test_slash_at_end_makes_no_difference() -> None:
    assert known("https://example.com/", user("example.com is down"))
    assert known("https://example.com/a/", user("https://example.com/a"))
    assert not known("https://example.com/a//", user("https://example.com/a"))


def test_text_and_calls_of_model_do_not_count() -> None:
    call = ToolCall("1", "read", f'{{"url": "{SECRET}"}}')
    assert not known(SECRET, user("hi"), Message("assistant", (Text(SECRET), call)))


@pytest.mark.parametrize("role", ["tool", "user"])
def test_tool_result_counts(role: str) -> None:
    call = Message("assistant", (ToolCall("1", "web_search", "{}"),))
    result = Message("tool" if role == "tool" else "user", (ToolResult("1", (Text(f"1. {SECRET}"),)),))
    assert known(SECRET, user("hi"), call, result)


def test_result_that_repeats_the_url_of_its_call_does_not_count() -> None:
    call = Message("assistant", (ToolCall("1", "web_search", f'{{"query": "{SECRET}"}}'),))
    result = Message("tool", (ToolResult("1", (Text(f"Nothing found for {SECRET}; see https://example.com/help"),)),))
    assert not known(SECRET, user("hi"), call, result)
    assert known("https://example.com/help", user("hi"), call, result)


def test_document_and_system_prompt_count() -> None:
    assert known(SECRET, Message("system", (Text(SECRET),)))
    assert known(SECRET, Message("user", (Document(MediaSource(url=SECRET)),)))
    assert known(SECRET, Message("user", (Document(MediaSource(text=SECRET), "Notes"),)))


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        (UrlSources(), {"user", "search", "own"}),
        (UrlSources(user_input=False), {"search", "own"}),
        (UrlSources(client_tools=ToolFilter((), are_excluded=False)), {"user", "search"}),
        (UrlSources(client_tools=ToolFilter(("read",), are_excluded=True)), {"user", "search"}),
        (UrlSources(server_tools=ToolFilter((), are_excluded=False)), {"user", "own"}),
        (UrlSources(server_tools=ToolFilter(("web_search",), are_excluded=False)), {"user", "search", "own"}),
    ],
)
def test_client_selects_sources(sources: UrlSources, found: set[str]) -> None:
    sources = UrlSources(sources.user_input, sources.client_tools, sources.server_tools, ("web_search", "web_fetch"))
    calls = (ToolCall("1", "web_search", "{}"), ToolCall("2", "read", "{}"))
    results = (
        ToolResult("1", (Text("https://search.example/"),)),
        ToolResult("2", (Text("https://own.example/"),)),
    )
    conversation = (user("https://user.example/"), Message("assistant", calls), Message("tool", results))
    names = ("user", "search", "own")
    assert {name for name in names if known(f"https://{name}.example/", *conversation, sources=sources)} == found
