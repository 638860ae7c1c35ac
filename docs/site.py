"""Builds the site of these pages into site/, and looks for what a reader's browser would fetch from elsewhere.

`python docs/site.py`, or `make docs`, which writes the generated parts first. A link or an anchor that leads nowhere
ends it with status 1, and so does anything that a page would load from another host.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

ROOT: Final = Path(__file__).parent.parent
SITE: Final = ROOT / "site"
LOADS: Final = {"href": ("link",), "src": ("audio", "embed", "iframe", "img", "script", "source", "video")}
"""Attributes whose URL is loaded without a click, and of which elements."""
HARMLESS: Final = ("canonical", "alternate", "prev", "next")
"""Relations of a `link` that name a page and load nothing."""
FETCHING: Final = ("mermaid", "glightbox", "pyodide")
"""Classes for which the theme's script would fetch a library from elsewhere."""


class Loads(HTMLParser):
    """What a page would load from another host, as it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Look at one element."""
        given = {name: value or "" for name, value in attrs}
        for name, tags in LOADS.items():
            if tag in tags and urlsplit(given.get(name, "")).netloc and given.get("rel") not in HARMLESS:
                self.found.append(f"<{tag} {name}={given[name]!r}>")
        self.found += [f"<{tag} class={each!r}>" for each in given.get("class", "").split() if each in FETCHING]


def foreign(site: Path) -> Iterator[str]:
    """Each thing that a page or a style sheet under this folder would load from elsewhere, with where it stands."""
    for page in sorted(site.rglob("*.html")):
        loads = Loads()
        loads.feed(page.read_text())
        yield from (f"{page.relative_to(site)}: {each}" for each in loads.found)
    for style in sorted(site.rglob("*.css")):
        if "url(http" in (text := style.read_text()) or "url(//" in text or "@import" in text:
            yield f"{style.relative_to(site)}: loads from elsewhere"


def build(site: Path) -> None:
    """Builds the site into a folder that does not exist yet.

    Raises:
        subprocess.CalledProcessError: zensical found a fault, and printed it.
    """
    # In a folder of its own: zensical takes .cache beside its settings for its own, where this project's tools are.
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder)
        shutil.copytree(ROOT / "docs", there / "docs", ignore=shutil.ignore_patterns("*.py", "*.toml", "__pycache__"))
        shutil.copytree(ROOT / "examples", there / "docs" / "examples", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "zensical.toml", there)
        for page in (there / "docs").glob("*.md"):
            page.write_text(page.read_text().replace("](../examples/", "](examples/"))
        subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=there, check=True)
        shutil.move(there / "site", site)


def main() -> int:
    """Builds the site, and returns 1 if that fails or a page loads something from another host."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            build(Path(folder) / "site")
        except subprocess.CalledProcessError:
            return 1
        shutil.rmtree(SITE, ignore_errors=True)
        shutil.move(Path(folder) / "site", SITE)
    found = list(foreign(SITE))
    for each in found:
        print(each, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
