"""Checks all rules over src/dragoman: `PYTHONPATH=tests python -m meta.source_rules`."""

import ast
import sys
from pathlib import Path

import grimp

from . import docstrings, language, layout, names
from .finding import Finding

ROOT = Path(__file__).parents[3]


def main() -> int:
    """Prints each finding; the exit status is 1 if there is one."""
    paths = sorted((ROOT / "src/dragoman").rglob("*.py"))
    sources = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    trees = {path: ast.parse(source) for path, source in sources.items()}
    graph = grimp.build_graph("dragoman", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    findings: list[Finding] = [*names.check(trees), *layout.check_folders(sources), *layout.check_cycles(imports)]
    for path, source in sources.items():
        findings += [*language.check(path, source), *docstrings.check(path, trees[path])]
        findings += names.check_words(path, trees[path])
    for finding in sorted(findings):
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
