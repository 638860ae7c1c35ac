"""Reads text, Markdown and HTML files as passages for the local search index."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final, NamedTuple

SUFFIXES: Final = (".txt", ".text", ".md", ".markdown", ".rst", ".html", ".htm")
_HTML: Final = (".html", ".htm")
_MAX_FILE_BYTES: Final = 5_000_000
_PASSAGE_CHARS: Final = 1500
_HEADING: Final = re.compile(r"^#{1,3} +(.+?)#*$", re.MULTILINE)
_BLANK_LINES: Final = re.compile(r"\n\s*\n+")
_SPACES: Final = re.compile(r"[ \t\f\v]+")
_UNSHOWN: Final = frozenset(("script", "style", "template", "noscript", "svg"))
_BLOCKS: Final = frozenset(
    (
        "p",
        "div",
        "section",
        "article",
        "li",
        "tr",
        "pre",
        "blockquote",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "br",
        "dt",
        "dd",
    )
)


class Passage(NamedTuple):
    """A part of a document."""

    path: str
    """Of the document, relative to its folder, with `/`."""
    title: str
    text: str


def read_documents(folder: Path) -> Iterator[Passage]:
    """Yields the passages of all documents below this folder, in order of their paths.

    Files and folders whose names begin with a dot, links, files in other formats and very large files are omitted.
    """
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        is_hidden = any(part.startswith(".") for part in relative.parts)
        if is_hidden or path.suffix.lower() not in SUFFIXES or path.is_symlink() or not path.is_file():
            continue
        if not path.resolve().is_relative_to(folder.resolve()):  # below a folder that is a link
            continue
        try:
            if path.stat().st_size > _MAX_FILE_BYTES:
                continue
            content = path.read_text("utf-8", "replace")
        except OSError:
            continue
        title, text = _read(content, is_html=path.suffix.lower() in _HTML)
        for passage in _passages(text):
            yield Passage(relative.as_posix(), title or path.stem, passage)


def _read(content: str, *, is_html: bool) -> tuple[str, str]:
    """Returns title and text."""
    if is_html:
        page = _Page()
        page.feed(content)
        page.close()
        return page.title.strip(), "".join(page.texts)
    heading = _HEADING.search(content)
    return heading[1].strip() if heading else "", content


def _passages(text: str) -> Iterator[str]:
    """Yields the text in parts of about `_PASSAGE_CHARS`, cut between paragraphs where possible."""
    passage = ""
    for paragraph in _BLANK_LINES.split(text):
        clean = _SPACES.sub(" ", paragraph).strip()
        if passage and len(passage) + len(clean) > _PASSAGE_CHARS:
            yield passage
            passage = ""
        while len(clean) > _PASSAGE_CHARS:
            yield clean[:_PASSAGE_CHARS]
            clean = clean[_PASSAGE_CHARS:]
        passage = f"{passage}\n\n{clean}" if passage and clean else passage or clean
    if passage:
        yield passage


class _Page(HTMLParser):
    """The visible text of an HTML page."""

    def __init__(self) -> None:
        super().__init__()
        self.title = ""
        self.texts: list[str] = []
        self._unshown = 0
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._unshown += tag in _UNSHOWN
        self._in_title = tag == "title"
        if tag in _BLOCKS:
            self.texts.append("\n\n")

    def handle_endtag(self, tag: str) -> None:
        self._unshown -= tag in _UNSHOWN and self._unshown > 0
        self._in_title = False

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        elif not self._unshown:
            self.texts.append(data)
