"""Checks all rules over src/dragoman, and those of text and names over bench.

PYTHONPATH=tests python -m meta.source_rules
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import grimp

from . import docstrings, language, layout, names
from .finding import Finding

ROOT = Path(__file__).parents[3]


def read_folder(folder: str) -> dict[str, str]:
    """The source of each module below the folder, by path."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def check_text(sources: Mapping[str, str]) -> Iterator[Finding]:
    """Yields findings on wording, docstrings and names; class names are unique in `sources`."""
    trees = {path: ast.parse(source) for path, source in sources.items()}
    yield from names.check(trees)
    for path, source in sources.items():
        yield from language.check(path, source)
        yield from docstrings.check(path, trees[path])
        yield from names.check_words(path, trees[path])


def main() -> int:
    """Prints each finding; the exit status is 1 if there is one."""
    sources = read_folder("src/dragoman")
    graph = grimp.build_graph("dragoman", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    findings = [*check_text(sources), *check_text(read_folder("bench"))]
    findings += [*layout.check_folders(sources), *layout.check_cycles(imports)]
    for finding in sorted(findings):
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
