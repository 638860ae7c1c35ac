"""The examples of the README and of docs/.

A fence's language determines its kind, and `title="FILE"` after it the file for its content. A `text` fence directly
after another one is the output of that one. An example that cannot be run is marked in the page's source, with the
reason:

    <!-- not run: it needs a graphics processor -->
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.paths import ROOT

PAGES: Final = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
GATEWAY: Final = "http://127.0.0.1:8484"
"""The gateway's URL in the pages."""
_FENCE: Final = re.compile(r'^( {0,3})```(\w+)(?: title="([^"]+)")?\n(.*?)^\1```$', re.M | re.S)
_PRINTED: Final = re.compile(r"\n```text\n(.*?)^```$", re.M | re.S)
_NOT_RUN: Final = re.compile(r"<!-- not run: ([^>]+) -->\s*\Z")


@dataclass(frozen=True)
class Block:
    page: str
    """The page's path from the root."""
    heading: str
    """The heading above the example."""
    line: int
    language: str
    title: str
    code: str
    printed: str
    """The documented output; empty if the page shows none."""
    not_run: str
    """Why the example is not run; empty if it is run."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """One command of a `console` fence, and its documented output."""

    block: Block
    typed: str
    printed: str

    @property
    def words(self) -> list[str]:
        """The words of the command without variable assignments."""
        words = shlex.split(self.typed, comments=True)
        while words and re.match(r"[A-Z_]+=", words[0]):
            words.pop(0)
        return words

    @property
    def ours(self) -> list[str]:
        """The arguments of `dragoman`, without a redirection; empty if another program is called."""
        words = self.words[: self.words.index(">")] if ">" in self.words else self.words
        starts = [i for i, word in enumerate(words) if word == "dragoman" and (i == 0 or words[i - 1] == "|")]
        return words[starts[0] + 1 :] if starts else []

    def __str__(self) -> str:
        return f"{self.block} {' '.join(self.words)[:40]}"


def _of(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for fence in _FENCE.finditer(text):
        indent, language, title, code = fence.groups()
        code = re.sub(rf"^{indent}", "", code, flags=re.M) if indent else code
        follows = _PRINTED.match(text, fence.end() + 1)
        why = _NOT_RUN.search(text, 0, fence.start())
        line = text.count("\n", 0, fence.start()) + 1
        heading = re.findall(r"^#+ (.+)$", text[: fence.start()], re.M)[-1]
        yield Block(
            page=str(page.relative_to(ROOT)),
            heading=heading,
            line=line,
            language=language,
            title=title or "",
            code=code,
            printed=follows[1] if follows else "",
            not_run=why[1] if why else "",
        )


BLOCKS: Final = [block for page in PAGES for block in _of(page)]


def of(*languages: str, page: str = "") -> list[Block]:
    """The examples in these languages, without those that are not run."""
    return [b for b in BLOCKS if b.language in languages and not b.not_run and b.page.startswith(page)]


def commands(page: str = "") -> list[Command]:
    """The console commands, without those that are not run."""
    found = []
    for block in of("console", page=page):
        for said in re.split(r"^\$ ", block.code, flags=re.M)[1:]:
            typed = re.match(r"(?:.*\\\n)*.*\n", said)
            assert typed is not None
            found.append(Command(block, typed[0].replace("\\\n", " ").strip(), said[typed.end() :]))
    return found


def matches(told: str, printed: str) -> bool:
    """Whether the output matches the documented one, in which `…` matches anything in a line."""
    lines = [".*?".join(map(re.escape, line.rstrip().split("…"))) for line in told.rstrip().splitlines()]
    return re.fullmatch(r"[ ]*\n".join(lines), printed.rstrip()) is not None
