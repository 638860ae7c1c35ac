"""The pages of the documentation: their size, and numbers in their text that the code decides."""

import re

from docs import tables

from dragoman import formats
from support.paths import ROOT

GENERATED = ("agents-and-backends.md", "commands.md", "configuration.md", "formats.md", "supported-servers.md")
"""Pages that are almost only generated tables."""
MAX_WORDS = 43_200


def words(page: str) -> int:
    """Returns the number of words that a person wrote: without code blocks, lists of tests, URLs and numbers."""
    text = re.sub(r"^( {0,3})```.*?^\1```$", "", page, flags=re.M | re.S)
    lines = [line for line in text.splitlines() if not line.startswith(("    ", "- `tests/"))]
    text = re.sub(r"\]\([^)]*\)", "]", "\n".join(lines))
    return sum(any(c.isalpha() for c in word) for word in re.findall(r"[\w`][\w`.'/-]*", text))


def test_hand_written_pages_stay_within_word_limit() -> None:
    pages = [page for page in (ROOT / "docs").glob("*.md") if page.name not in GENERATED]
    assert sum(words(page.read_text()) for page in [*pages, ROOT / "README.md"]) <= MAX_WORDS
    assert words((ROOT / "README.md").read_text()) <= 900


def test_number_of_formats_is_current() -> None:
    number = len([name for name in formats.names() if name != "auto"])
    assert f"- {number} call formats are parsed" in (ROOT / "docs" / "index.md").read_text()
    assert f"parsed in {number} formats" in (ROOT / "docs" / "comparison.md").read_text()


def test_table_escapes_pipes() -> None:
    shown = tables.table(["a", "b"], [["x | y", "`a | b`"], ["1", "`c`"]], ["---", ":-:"])
    assert shown == "| a | b |\n| --- | :-: |\n| x \\| y | <code>a &#124; b</code> |\n| 1 | `c` |\n"
