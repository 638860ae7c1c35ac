"""Finds the sources of a search that a text mentions by their URL or quotes.

"It was May (https://example.com/news)."
→  {"type": "url_citation", "start_index": 12, "end_index": 36, "url": "https://example.com/news", "title": "News"}

Messages attaches sources to a whole text, also those of which the text repeats several words in a row:

→  {"type": "web_search_result_location", "url": …, "title": …, "encrypted_index": …, "cited_text": "It was in May …"}
"""

import re
from collections.abc import Iterable
from typing import Final

from dragoman.redaction.opaque_text import opaque
from dragoman.vendor_tools.codec import encode
from dragoman.vendor_tools.tool import SearchHit

_AFTER: Final = r"(?![\w/%#?=&-])(?!\.\w)"
"""What may not follow a URL: it would be the beginning of a longer one."""
_WORD: Final = re.compile(r"\w+")
_QUOTE_WORDS: Final = 6
"""Words in a row that a text and a source have in common only if one quotes the other."""
_CITED_CHARS: Final = 150
"""Maximum characters of a `cited_text`, as the vendor's."""


def url_citations(text: str, offset: int, hits: Iterable[SearchHit]) -> str:
    """Returns the citations in a text as JSON in the form of Responses, in order; "" if there are none.

    Args:
        text: The text.
        offset: Characters before it, which are counted too.
        hits: What the searches found.
    """
    found = []
    for hit in {hit.url: hit for hit in hits if hit.url and hit.url in text}.values():
        for match in re.finditer(re.escape(hit.url) + _AFTER, text):
            span = {"start_index": offset + match.start(), "end_index": offset + match.end()}
            found.append({"type": "url_citation", **span, "url": hit.url, "title": hit.title})
    found.sort(key=lambda each: (each["start_index"], each["url"]))
    return encode(found) if found else ""


def result_citations(text: str, hits: Iterable[SearchHit]) -> str:
    """Returns the citations in a text as JSON in the form of Messages, one for each source; "" if there are none.

    Args:
        text: The text.
        hits: What the searches found.
    """
    tokens = [match[0].casefold() for match in _WORD.finditer(text)]
    known = {tuple(tokens[n : n + _QUOTE_WORDS]) for n in range(len(tokens) - _QUOTE_WORDS + 1)}
    found = []
    for number, hit in enumerate({hit.url: hit for hit in hits}.values()):
        if not hit.url:
            continue
        quote = _quote(hit.text, known)
        if not quote and re.search(re.escape(hit.url) + _AFTER, text):
            quote = hit.text or hit.title or hit.url
        if quote:
            place = {"encrypted_index": opaque(str(number)), "cited_text": quote[:_CITED_CHARS]}
            found.append({"type": "web_search_result_location", "url": hit.url, "title": hit.title, **place})
    return encode(found) if found else ""


def _quote(source: str, known: set[tuple[str, ...]]) -> str:
    """Returns the first passage of a source whose runs of words are all known; "" if there is none."""
    tokens = list(_WORD.finditer(source)) if known else []
    first = last = -1
    for n in range(len(tokens) - _QUOTE_WORDS + 1):
        if tuple(match[0].casefold() for match in tokens[n : n + _QUOTE_WORDS]) in known:
            first, last = (n if first < 0 else first), n + _QUOTE_WORDS - 1
        elif first >= 0:
            break
    return source[tokens[first].start() : tokens[last].end()] if first >= 0 else ""
