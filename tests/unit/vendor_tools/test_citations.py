"""Sources that a text mentions by their URL."""

import json

import pytest

from dragoman.vendor_tools.citations import url_citations
from dragoman.vendor_tools.tool import SearchHit

HITS = [SearchHit("https://a.org/x", "A"), SearchHit("https://a.org/x/y", "B"), SearchHit("https://b.org", "C")]


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("Nothing.", []),
        ("See https://a.org/x.", [(4, 19, "A")]),
        ("See [A](https://a.org/x) and <https://b.org>, 🌊", [(8, 23, "A"), (30, 43, "C")]),
        ("https://a.org/x/y", [(0, 17, "B")]),
        ("https://a.org/xyz https://a.org/x-1 https://a.org/x?q https://b.org.evil.com", []),
        ("https://b.org https://b.org", [(0, 13, "C"), (14, 27, "C")]),
    ],
)
def test_urls_of_results_are_cited(text: str, cited: list[tuple[int, int, str]]) -> None:
    found = json.loads(url_citations(text, 0, [*HITS, HITS[0]]) or "[]")
    assert [(each["start_index"], each["end_index"], each["title"]) for each in found] == cited


def test_offset_is_added() -> None:
    (found,) = json.loads(url_citations("https://b.org", 10, HITS))
    assert found == {"type": "url_citation", "start_index": 10, "end_index": 23, "url": "https://b.org", "title": "C"}
