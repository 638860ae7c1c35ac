"""Finds the sources that a text mentions by their URL or quotes: results of a search, and fetched pages.

A quote is a run of words that the text and the source have in common. Responses and Chat Completions mark its place,
and that of a URL, in the text:

"It was May (https://example.com/news)."
→  {"type": "url_citation", "start_index": 12, "end_index": 36, "url": "https://example.com/news", "title": "News"}

Messages attaches sources to a whole text; of a page it marks the place in the page's document:

→  {"type": "web_search_result_location", "url": …, "title": …, "encrypted_index": …, "cited_text": "It was in May …"}
→  {"type": "char_location", "document_index": 0, "start_char_index": 7, "end_char_index": 31, "cited_text": …, …}

Source: https://docs.anthropic.com/en/docs/build-with-claude/citations, …/agents-and-tools/tool-use/web-fetch-tool,
https://developers.openai.com/api/docs/guides/tools-web-search (2026-11).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from dragoman.redaction.opaque_text import opaque
from dragoman.vendor_tools.codec import encode
from dragoman.vendor_tools.tool import FetchedPage, SearchHit

Span: TypeAlias = tuple[int, int]

_AFTER: Final = r"(?![\w/%#?=&-])(?!\.\w)"
"""What may not follow a URL: it would be the beginning of a longer one."""
_WORD: Final = re.compile(r"\w+")
_QUOTE_WORDS: Final = 6
"""Words in a row that a text and a source have in common only if one quotes the other."""
_CITED_CHARS: Final = 150
"""Maximum characters of a `cited_text` of a search result, as the vendor's."""
_MAX_PASSAGES: Final = 8
"""Maximum citations of one page."""
_MAX_PASSAGE_CHARS: Final = 2000


class CitedPage(NamedTuple):
    """A fetched page that may be cited."""

    page: FetchedPage
    document_index: int
    """Number of documents before it, those of the request included."""


def page_source(page: FetchedPage) -> SearchHit:
    """Returns the page as a source of `url_citations`."""
    return SearchHit(page.url, page.title or page.url, page.text)


def url_citations(text: str, offset: int, sources: Iterable[SearchHit]) -> str:
    """Returns the citations in a text as JSON in the form of Responses, in order; "" if there are none.

    Args:
        text: The text.
        offset: Characters before it, which are counted too.
        sources: What the searches found, and the pages that were fetched.
    """
    quotes = _Quotes(text)
    found: dict[tuple[int, int, str], str] = {}
    for source in (each for each in sources if each.url):
        mentions = [] if source.url not in text else re.finditer(re.escape(source.url) + _AFTER, text)
        urls = [match.span() for match in mentions]
        quoted = [span for span in quotes.in_text(source.text) if not any(_overlap(span, url) for url in urls)]
        for start, end in (*urls, *quoted):
            found[start, end, source.url] = source.title
    spans = [
        {"type": "url_citation", "start_index": offset + start, "end_index": offset + end, "url": url, "title": title}
        for (start, end, url), title in sorted(found.items())
    ]
    return encode(spans) if spans else ""


def result_citations(text: str, hits: Iterable[SearchHit], pages: Sequence[CitedPage] = ()) -> str:
    """Returns the citations in a text as JSON in the form of Messages, one for each source; "" if there are none.

    Args:
        text: The text.
        hits: What the searches found.
        pages: The fetched pages of which quoted passages are cited, each passage by itself.
    """
    quotes = _Quotes(text)
    found: list[dict[str, object]] = []
    for number, hit in enumerate({hit.url: hit for hit in hits}.values()):
        if not hit.url:
            continue
        start, end = next(quotes.in_source(hit.text), (0, 0))
        quote = hit.text[start:end]
        if not quote and re.search(re.escape(hit.url) + _AFTER, text):
            quote = hit.text or hit.title or hit.url
        if quote:
            cited = {"encrypted_index": opaque(str(number)), "cited_text": quote[:_CITED_CHARS]}
            found.append({"type": "web_search_result_location", "url": hit.url, "title": hit.title, **cited})
    for page, index in pages:
        document = {"document_index": index, "document_title": page.title or None}
        for start, end in islice(quotes.in_source(page.text), _MAX_PASSAGES):
            end = min(end, start + _MAX_PASSAGE_CHARS)
            place = {"start_char_index": start, "end_char_index": end, "cited_text": page.text[start:end]}
            found.append({"type": "char_location", **document, **place})
    return encode(found) if found else ""


class _Quotes:
    """The runs of `_QUOTE_WORDS` words in a text."""

    def __init__(self, text: str) -> None:
        self._tokens, runs = _runs(text)
        self._places: dict[tuple[str, ...], list[int]] = {}
        for n, run in enumerate(runs):
            self._places.setdefault(run, []).append(n)

    def in_source(self, source: str) -> Iterator[Span]:
        """Yields the passages of the source whose runs are all in the text."""
        if self._places:
            tokens, runs = _runs(source)
            yield from _joined(tokens, [n for n, run in enumerate(runs) if run in self._places])

    def in_text(self, source: str) -> list[Span]:
        """Returns the passages of the text whose runs are all in the source."""
        if not self._places:
            return []
        quoted = {run for run in _runs(source)[1] if run in self._places}
        return [*_joined(self._tokens, sorted(n for run in quoted for n in self._places[run]))]


def _runs(text: str) -> tuple[list[Span], Iterator[tuple[str, ...]]]:
    """Returns the places of the words of a text, and its runs of words; each run begins at the word of its number."""
    matches = [*_WORD.finditer(text)]
    tokens = [match[0].casefold() for match in matches]
    return [match.span() for match in matches], zip(*(tokens[n:] for n in range(_QUOTE_WORDS)), strict=False)


def _joined(tokens: Sequence[Span], runs: Sequence[int]) -> Iterator[Span]:
    """Yields from where to where runs that overlap are, given their numbers in ascending order."""
    first = last = -1
    for n in runs:
        if first >= 0 and n >= last + _QUOTE_WORDS:
            yield tokens[first][0], tokens[last + _QUOTE_WORDS - 1][1]
            first = -1
        first, last = (n if first < 0 else first), n
    if first >= 0:
        yield tokens[first][0], tokens[last + _QUOTE_WORDS - 1][1]


def _overlap(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]
