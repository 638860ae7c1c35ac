"""Converts web sources of Anthropic Messages to `url_citation` of OpenAI's APIs, with the span of text they support.

    text block "It is 8°." with {"type": "web_search_result_location", "url": …, "title": …, …}
    →   {"type": "url_citation", "start_index": 12, "end_index": 21, "url": …, "title": …}

Messages attaches a source to a whole text block. A client of OpenAI's APIs reads consecutive blocks as one text, so the
span is counted in characters from the beginning of that text. `cited_text` and `encrypted_index` have no equivalent.
The other types of `citations` refer to documents of the request, and are not converted. Sources of OpenAI's APIs are
not converted either: only the vendor can write the `encrypted_index` that Messages requires.

Source: https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/web-search-tool,
https://platform.openai.com/docs/guides/tools-web-search (2026-11).
"""

from typing import Final

import msgspec
from msgspec import Raw, Struct

from dragoman.core.events import TEXT_BREAK, AnyEvent, Detail, Failure, Finish, ReasoningDelta, ToolCallStart
from dragoman.core.response_details import ANNOTATIONS, CITATIONS, SINGLE_TEXT_APIS, is_for, list_items


class _Source(Struct, tag="web_search_result_location"):
    url: str
    title: str | None = None


_source: Final = msgspec.json.Decoder(_Source).decode
_encode: Final = msgspec.json.Encoder().encode
_HANDLED: Final = frozenset((Detail, ToolCallStart, ReasoningDelta, Finish, Failure))


class WebSourceConverter:
    """Converts the web sources of one response for a client of one API."""

    __slots__ = ("_began", "_buffered", "_is_one_text", "chars", "handles")

    def __init__(self, client: str) -> None:
        self.handles = _HANDLED if is_for("", client) else frozenset()
        """Types of the events to `feed`."""
        self._is_one_text = client in SINGLE_TEXT_APIS
        self.chars = self._began = 0
        """Characters of the text so far, counted by the caller, and of the text before the open block."""
        self._buffered: list[_Source] = []
        """Sources of the open block."""

    def feed(self, event: AnyEvent) -> list[AnyEvent]:
        """Returns the events that replace this one."""
        if type(event) not in self.handles:
            return [event]
        if type(event) is Detail:
            if event.name == CITATIONS:
                return self._cited(event, event.json)
            return [*self._flush(), event] if event.name == TEXT_BREAK else [event]
        sources = self._flush()
        if not self._is_one_text and (type(event) is ToolCallStart or type(event) is ReasoningDelta):
            self.chars = self._began = 0
        return [*sources, event]

    def _cited(self, event: Detail, json: str) -> list[AnyEvent]:
        try:
            sources = [_source(each) for each in list_items(Raw(json.encode()))]
        except msgspec.DecodeError:
            return [event]
        self._buffered += sources
        return []

    def _flush(self) -> list[AnyEvent]:
        """Returns the sources of the block that ends here."""
        citations, began, self._began = self._buffered, self._began, self.chars
        if not citations:
            return []
        self._buffered = []
        span = {"type": "url_citation", "start_index": began, "end_index": self.chars}
        spans = [{**span, "url": each.url, "title": each.title or ""} for each in citations]
        return [Detail(ANNOTATIONS, _encode(spans).decode())]
