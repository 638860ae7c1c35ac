"""Decides whether a URL occurs in a conversation, so that a model cannot send data away in a URL of its own.

It must be in a text of the user, in the system prompt or in a tool result. Text and calls of the model do not count,
nor does a result that repeats a URL of its call, such as "nothing found for https://…".
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from html import unescape
from typing import Final

from dragoman.core.messages import Document, Image, Message, Part, ToolCall, ToolResult, UnknownPart, part_text
from dragoman.tool_executors.fetch.fetch_url import FetchUrl, RefusedUrlError, parse_fetch_url
from dragoman.vendor_tools.tool import UrlSources

_URL: Final = re.compile(r"(?:https?://|(?<![\w@.:/%-])(?=[\w-]+\.[\w.-]+))[^\s<>\"'`\\]+", re.IGNORECASE)
"""A URL, or what looks like one without its scheme: `example.com/page`."""
_UNKNOWN_CALL: Final = ToolCall("", "", "{}")
_MAX_CLOSING: Final = 4
_CLOSING: Final = ".,;:!?)]}*_|"
"""Characters after a URL that are usually not a part of it."""


def is_known_url(url: FetchUrl, conversation: Sequence[Message], sources: UrlSources) -> bool:
    """Returns whether the URL occurs in the conversation.

    Args:
        url: The URL that the model wants to fetch.
        conversation: All messages before the model's response.
        sources: The texts that count.
    """
    return any(_is_in(url, text) for text in _texts(url, conversation, sources))


def _is_in(url: FetchUrl, text: str) -> bool:
    return any(_page(each) == _page(url) for each in _urls(text, url))


def _page(url: FetchUrl) -> tuple[str, int, str]:
    """Returns what identifies a page: `http` and `https` on their own ports, and one slash at the end, do not."""
    port = 443 if url.port == 80 and url.scheme == "http" else url.port
    path, mark, query = url.target.partition("?")
    return url.host, port, path.removesuffix("/") + mark + query


def _urls(text: str, url: FetchUrl) -> Iterator[FetchUrl]:
    """Yields the URLs in a text that may be this one."""
    if url.host not in text.lower() and text.isascii():
        return
    beginning = url.target.partition("?")[0].partition("&")[0].removesuffix("/")
    for found in dict.fromkeys(match[0] for match in _URL.finditer(text)):
        if beginning not in found or (url.host not in found.lower() and found.isascii()):
            continue
        for written in _endings(found):
            with suppress(RefusedUrlError):
                yield parse_fetch_url(written if "://" in written else f"https://{written}")


def _endings(found: str) -> Iterator[str]:
    """Yields a URL with and without the punctuation after it."""
    for _ in range(_MAX_CLOSING):
        yield found
        if "&" in found:
            yield unescape(found)
        if found[-1:] not in _CLOSING or len(found) < 2:
            return
        found = found[:-1]
    yield found


def _texts(url: FetchUrl, conversation: Sequence[Message], sources: UrlSources) -> Iterator[str]:
    calls = {part.id: part for message in conversation for part in message.parts if isinstance(part, ToolCall)}
    for message in conversation:
        for part in message.parts:
            if isinstance(part, ToolResult):
                yield from _result_texts(url, part, calls.get(part.call_id, _UNKNOWN_CALL), sources)
            elif message.role != "assistant" and sources.user_input:
                yield _text(part)


def _result_texts(url: FetchUrl, result: ToolResult, call: ToolCall, sources: UrlSources) -> Iterator[str]:
    tools = sources.server_tools if call.name in sources.server_names else sources.client_tools
    admitted = tools.admits(call.name) and not _is_in(url, call.arguments)
    return map(_text, result.parts) if admitted else iter(())


def _text(part: Part) -> str:
    match part:
        case Document(source=source) | Image(source=source) if source.url:
            return source.url
        case UnknownPart(raw=raw):
            return bytes(raw).decode("utf-8", "replace")
    return part_text(part)
