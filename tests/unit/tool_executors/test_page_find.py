"""Passages of a page that contain a text."""

import pytest

from dragoman.tool_executors.fetch.page_find import find_passages

LONG = "\n".join(f"Line {n} of the page, which says nothing." for n in range(200))


@pytest.mark.parametrize("pattern", ["line 150 of", "LINE  150\nOF", " Line 150 of "])
def test_passage_is_found_in_any_case_and_white_space(pattern: str) -> None:
    found = find_passages(LONG, pattern)
    assert "Line 150 of the page" in found
    assert "Line 100 of" not in found
    assert len(found) < 1000
    assert found.startswith("[…] ")
    assert found.endswith(" […]")
    assert all(line in LONG for line in found.removeprefix("[…] ").removesuffix(" […]").split("\n"))


def test_passages_that_overlap_are_joined() -> None:
    assert find_passages("Some text, some more text.", "some") == "Some text, some more text."


def test_passages_are_in_order() -> None:
    found = find_passages(LONG, "0 of the page, which says")
    assert found.index("Line 0 of") < found.index("Line 10 of") < found.index("Line 100 of")


def test_number_of_passages_is_limited() -> None:
    text = ("a" + " b" * 1000) * 100
    assert find_passages(text, "a b").count("a b") == 20


@pytest.mark.parametrize(
    ("text", "pattern"), [("a (b) [c] .*", "(B) [c] .*"), ("Viele Grüße", "GRÜSSE"), ("ΣΊΣΥΦΟΣ", "σίσυφος")]
)
def test_pattern_is_text(text: str, pattern: str) -> None:
    assert find_passages(text, pattern) == text


@pytest.mark.parametrize("pattern", ["not there", ".*"])
def test_nothing_is_found(pattern: str) -> None:
    assert find_passages(LONG, pattern) == ""


def test_time_does_not_grow_with_repeated_text() -> None:
    assert find_passages("a " * 250_000, "a " * 249 + "b") == ""
