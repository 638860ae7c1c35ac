"""Sources that a text mentions by their URL or quotes."""

import json

import pytest

from dragoman.redaction.opaque_text import is_opaque
from dragoman.vendor_tools.citations import CitedPage, page_source, result_citations, url_citations
from dragoman.vendor_tools.tool import FetchedPage, SearchHit

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


PAGES = [
    SearchHit(
        "https://a.org/x", "A", "In short: Dragoman 1.0 was released on the fifth of May, in Lisbon. It is free."
    ),
    SearchHit("https://b.org", "B", "b" * 400),
    SearchHit("https://c.org", "", ""),
]


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("Nothing.", []),
        ("It was released on the fifth.", []),
        ("“dragoman 1.0 WAS released  on the fifth of May”.", [("A", "Dragoman 1.0 was released on the fifth of May")]),
        ("It was released on the fifth of May; it is free.", [("A", "was released on the fifth of May")]),
        ("See https://b.org.", [("B", "b" * 150)]),
        ("See https://b.org.evil.com.", []),
        ("https://c.org, https://b.org", [("B", "b" * 150), ("", "https://c.org")]),
    ],
)
def test_quoted_and_mentioned_results_are_cited(text: str, cited: list[tuple[str, str]]) -> None:
    found = json.loads(result_citations(text, [*PAGES, PAGES[0]]) or "[]")
    assert [(each["title"], each["cited_text"]) for each in found] == cited
    assert all(is_opaque(each["encrypted_index"]) for each in found)


def test_source_without_url_is_not_cited() -> None:
    hits = [SearchHit("", "A", "these six words are quoted here"), *HITS]
    text = "As these six words are quoted here, see https://b.org"
    assert [each["url"] for each in json.loads(url_citations(text, 0, hits))] == ["https://b.org"]
    assert [each["url"] for each in json.loads(result_citations(text, hits))] == ["https://b.org"]
    assert url_citations("some text", 0, hits) == result_citations("some text", hits) == ""


PAGE = FetchedPage(
    "https://a.org/x", "A", "Dragoman 1.0 was released on the fifth of May. Since then, it is free for all of us."
)


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("Nothing.", []),
        ("🌊 It was released on the fifth of May!", ["was released on the fifth of May"]),
        ("Dragoman 1.0 was released on the: fifth of May, and it is free for all of us", [
            "Dragoman 1.0 was released on the: fifth of May", "it is free for all of us",
        ]),
        ("https://a.org/x: it is free for all of us", ["https://a.org/x", "it is free for all of us"]),
    ],
)  # fmt: skip
def test_quotes_of_pages_are_cited_with_their_place_in_text(text: str, cited: list[str]) -> None:
    found = json.loads(url_citations(text, 0, [page_source(PAGE)]) or "[]")
    assert [text[each["start_index"] : each["end_index"]] for each in found] == cited
    assert {each["title"] for each in found} <= {"A"}


def test_url_is_the_title_of_a_page_without_one() -> None:
    (found,) = json.loads(url_citations("https://b.org", 0, [page_source(FetchedPage("https://b.org", "", ""))]))
    assert found["title"] == "https://b.org"


def test_url_that_its_page_repeats_is_cited_once() -> None:
    url = "https://a.org/the/news/of/may/2026"
    assert len(json.loads(url_citations(f"See {url}.", 0, [SearchHit(url, "A", f"More at {url}.")]))) == 1


def test_passages_of_pages_are_cited_with_their_place_in_document() -> None:
    text = "It was released on the fifth of May and it is free for all of us"
    found = json.loads(
        result_citations(text, (), [CitedPage(FetchedPage("https://b.org", "", "b"), 2), CitedPage(PAGE, 3)])
    )
    passages = ["was released on the fifth of May", "it is free for all of us"]
    assert [each["cited_text"] for each in found] == passages
    assert [PAGE.text[each["start_char_index"] : each["end_char_index"]] for each in found] == passages
    assert {(each["type"], each["document_index"], each["document_title"]) for each in found} == {
        ("char_location", 3, "A")
    }


def test_runs_that_overlap_are_one_passage() -> None:
    page = FetchedPage("https://a.org", "", "one two three four five six seven eight")
    text = "one two three four five six, three four five six seven eight"
    (found,) = json.loads(result_citations(text, (), [CitedPage(page, 0)]))
    assert found["cited_text"] == page.text


def test_citations_of_a_page_are_limited() -> None:
    page = FetchedPage("https://a.org", "", " ".join(f"{n} a b c d e f" for n in range(20)))
    found = json.loads(result_citations("a b c d e f", (), [CitedPage(page, 0)]))
    assert [each["cited_text"] for each in found] == ["a b c d e f"] * 8


def test_passage_that_repeats_itself_is_cut() -> None:
    page = FetchedPage("https://a.org", "", "a " * 5000)
    (found,) = json.loads(result_citations("a a a a a a a a", (), [CitedPage(page, 0)]))
    assert (found["start_char_index"], found["end_char_index"], len(found["cited_text"])) == (0, 2000, 2000)


def test_time_does_not_grow_with_repeated_quotes() -> None:
    """Each run of the source is at thousands of places of the text."""
    assert len(json.loads(url_citations("a " * 20_000, 0, [SearchHit("https://a.org", "A", "a " * 50_000)]))) == 1
