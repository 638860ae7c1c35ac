"""Builds the documentation site into site/, and checks that its pages load nothing from other hosts.

Run `python docs/site.py`, or `make docs`, which writes the generated parts first. The exit status is 1 if a link or an
anchor is broken, or if a page would load something from another host.
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
"""Attributes whose URL the browser loads by itself, and the elements that have them."""
HARMLESS: Final = ("canonical", "alternate", "prev", "next")
"""Values of `rel` of a `link` that the browser does not load."""
FETCHING: Final = ("mermaid", "glightbox", "pyodide")
"""Classes for which the theme's script would load a library from another host."""


class Loads(HTMLParser):
    """Collects what a page would load from another host, in `found`."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Checks one element."""
        given = {name: value or "" for name, value in attrs}
        for name, tags in LOADS.items():
            if tag in tags and urlsplit(given.get(name, "")).netloc and given.get("rel") not in HARMLESS:
                self.found.append(f"<{tag} {name}={given[name]!r}>")
        self.found += [f"<{tag} class={each!r}>" for each in given.get("class", "").split() if each in FETCHING]


def foreign(site: Path) -> Iterator[str]:
    """Yields what each page or style sheet in this folder would load from another host, after the file's path."""
    for page in sorted(site.rglob("*.html")):
        loads = Loads()
        loads.feed(page.read_text())
        yield from (f"{page.relative_to(site)}: {each}" for each in loads.found)
    for style in sorted(site.rglob("*.css")):
        if "url(http" in (text := style.read_text()) or "url(//" in text or "@import" in text:
            yield f"{style.relative_to(site)}: loads from another host"


def build(site: Path) -> None:
    """Builds the site into a folder that does not exist yet.

    Raises:
        subprocess.CalledProcessError: zensical found an error, and printed it.
    """
    # In a separate folder, because zensical uses .cache next to its settings, which contains this project's tools.
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
