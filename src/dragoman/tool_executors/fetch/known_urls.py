"""Decides whether a URL occurs in a conversation, so that a model cannot send data away in a URL of its own.

It must be in a text of the user, in the system prompt or in a tool result. Text and calls of the model do not count,
nor does a result that repeats a URL of its call, such as "nothing found for https://…".
"""

import re
from collections.abc import Iterable, Iterator, Sequence
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


class KnownUrls:
    """The URLs in a conversation. Finding them takes 50 ms for 1 MB of text, after which each question is quick."""

    def __init__(self, conversation: Sequence[Message], sources: UrlSources) -> None:
        """
        Args:
            conversation: All messages before the calls of the model.
            sources: The texts that count.
        """
        plain: dict[str, None] = {}
        self._urls: list[tuple[str, Iterable[str]]] = [("", plain)]
        """What looks like a URL, with the arguments of the call whose result it is in; empty: it is in no result."""
        for text, arguments in _texts(conversation, sources):
            found = dict.fromkeys(match[0] for match in _URL.finditer(text))
            if not arguments:
                plain |= found
            elif found:
                self._urls.append((arguments, found))

    def contains(self, url: FetchUrl) -> bool:
        """Returns whether the URL occurs in the conversation."""
        return any(
            _is_among(url, found) and not _is_among(url, _URL.findall(arguments)) for arguments, found in self._urls
        )


def text_chars(conversation: Sequence[Message]) -> int:
    """Returns about how many characters the texts of a conversation have."""
    return sum(len(text) for text, _ in _texts(conversation, UrlSources()))


def _is_among(url: FetchUrl, written: Iterable[str]) -> bool:
    return any(_page(each) == _page(url) for each in _urls(written, url))


def _page(url: FetchUrl) -> tuple[str, int, str]:
    """Returns what identifies a page: `http` and `https` on their own ports, and one slash at the end, do not."""
    port = 443 if url.port == 80 and url.scheme == "http" else url.port
    path, mark, query = url.target.partition("?")
    return url.host, port, path.removesuffix("/") + mark + query


def _urls(written: Iterable[str], url: FetchUrl) -> Iterator[FetchUrl]:
    """Yields those URLs that may be this one."""
    beginning = url.target.partition("?")[0].partition("&")[0].removesuffix("/")
    for found in written:
        if beginning not in found or (url.host not in found.lower() and found.isascii()):
            continue
        for each in _endings(found):
            with suppress(RefusedUrlError):
                yield parse_fetch_url(each if "://" in each else f"https://{each}")


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


def _texts(conversation: Sequence[Message], sources: UrlSources) -> Iterator[tuple[str, str]]:
    """Yields the texts that count; those of a result with the arguments of its call."""
    calls = {part.id: part for message in conversation for part in message.parts if isinstance(part, ToolCall)}
    for message in conversation:
        for part in message.parts:
            if isinstance(part, ToolResult):
                yield from _result_texts(part, calls.get(part.call_id, _UNKNOWN_CALL), sources)
            elif message.role != "assistant" and sources.user_input:
                yield _text(part), ""


def _result_texts(result: ToolResult, call: ToolCall, sources: UrlSources) -> Iterator[tuple[str, str]]:
    tools = sources.server_tools if call.name in sources.server_names else sources.client_tools
    if tools.admits(call.name):
        yield from ((_text(part), call.arguments) for part in result.parts)


def _text(part: Part) -> str:
    match part:
        case Document(source=source) | Image(source=source) if source.url:
            return source.url
        case UnknownPart(raw=raw):
            return bytes(raw).decode("utf-8", "replace")
    return part_text(part)
