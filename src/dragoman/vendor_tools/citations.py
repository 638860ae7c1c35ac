"""Finds the sources of a search that a text mentions by their URL.

"It was May (https://example.com/news)."
→  {"type": "url_citation", "start_index": 12, "end_index": 36, "url": "https://example.com/news", "title": "News"}
"""

import re
from collections.abc import Iterable
from typing import Final

from dragoman.vendor_tools.codec import encode
from dragoman.vendor_tools.tool import SearchHit

_AFTER: Final = r"(?![\w/%#?=&-])(?!\.\w)"
"""What may not follow a URL: it would be the beginning of a longer one."""


def url_citations(text: str, offset: int, hits: Iterable[SearchHit]) -> str:
    """Returns the citations in a text as JSON in the form of Responses, in order; "" if there are none.

    Args:
        text: The text.
        offset: Characters before it, which are counted too.
        hits: What the searches found.
    """
    found = []
    for hit in {hit.url: hit for hit in hits if hit.url in text}.values():
        for match in re.finditer(re.escape(hit.url) + _AFTER, text):
            span = {"start_index": offset + match.start(), "end_index": offset + match.end()}
            found.append({"type": "url_citation", **span, "url": hit.url, "title": hit.title})
    found.sort(key=lambda each: (each["start_index"], each["url"]))
    return encode(found) if found else ""
