"""The URLs of a large conversation are found once for all calls of a round, and not on the event loop."""

import asyncio
import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from dragoman.core.messages import Message, Text
from dragoman.tool_executors.config import WebFetchConfig
from dragoman.tool_executors.fetch import page_fetch
from dragoman.tool_executors.fetch.known_urls import KnownUrls
from dragoman.tool_executors.fetch.web_fetch import WebFetch
from dragoman.vendor_tools.earlier_messages import EarlierMessages
from dragoman.vendor_tools.tool import UrlSources, VendorTool, VendorToolCall

TOOL = VendorTool("web_fetch", "web_fetch", "web_fetch_20250910")


def call(path: str, tool: VendorTool = TOOL) -> VendorToolCall:
    return VendorToolCall("1", tool, json.dumps({"url": f"https://example.com/{path}"}))


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The thread of each search for the URLs of a conversation."""
    found: list[int] = []

    class Watched(KnownUrls):
        def __init__(self, *args: Any) -> None:
            found.append(threading.get_ident())
            super().__init__(*args)

    monkeypatch.setattr(page_fetch, "KnownUrls", Watched)
    return found


async def refusals(conversation: EarlierMessages, calls: Sequence[VendorToolCall]) -> list[str | None]:
    fetch = WebFetch(WebFetchConfig("http"))
    return [*await asyncio.gather(*(fetch.refusal(each, conversation) for each in calls))]


@pytest.mark.parametrize(("size", "is_in_thread"), [(10, False), (5_000, True)])
async def test_urls_are_found_once_for_a_round(threads: list[int], size: int, is_in_thread: bool) -> None:
    text = "\n".join(f"https://example.com/{n}" for n in range(size))
    conversation = EarlierMessages([Message("user", (Text(text),))])
    found = await refusals(conversation, [call("1"), call("9"), call("other"), call("1")])
    assert found == [None, None, "url_not_in_prior_context", None]
    assert [thread != threading.get_ident() for thread in threads] == [is_in_thread]


async def test_other_sources_are_other_urls(threads: list[int]) -> None:
    other = VendorTool("web_fetch", "web_fetch", "web_fetch_20260318", url_sources=UrlSources(user_input=False))
    conversation = EarlierMessages([Message("user", (Text("https://example.com/1"),))])
    assert await refusals(conversation, [call("1"), call("1", other)]) == [None, "url_not_in_prior_context"]
    assert len(threads) == 2
