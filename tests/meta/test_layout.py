"""The layout of the source: file sizes, docstrings, case files, one version."""

import ast
import re
from pathlib import Path

import pytest

import dragoman
from dragoman import dialects, formats
from support.check_each import check_each
from support.paths import ROOT

SOURCES = sorted((ROOT / "src").rglob("*.py"))

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
NESTING = ast.If | ast.For | ast.AsyncFor | ast.While | ast.Try | ast.Match


def depth(node: ast.AST, level: int = 0) -> int:
    """The nesting depth of branches and loops in a function; `elif` does not count again, `with` does not count."""
    deepest = level
    for name, value in ast.iter_fields(node):
        children = [c for c in (value if isinstance(value, list) else [value]) if isinstance(c, ast.AST)]
        for child in children:
            chained = name == "orelse" and len(children) == 1 and isinstance(node, ast.If) and isinstance(child, ast.If)
            step = isinstance(child, NESTING) and not chained
            if not isinstance(child, FUNCTIONS):
                deepest = max(deepest, depth(child, level + step))
    return deepest


def test_modules_have_docstrings_and_sizes_are_limited(subtests: pytest.Subtests) -> None:
    check_each(subtests, SOURCES, check_module, lambda path: str(path.relative_to(ROOT / "src")))


def check_module(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "the module has no docstring"
    limit = 450 if {"core", "text", "schema", "parsing", "wire", "dialects"} & set(path.parts) else 400
    assert len(text.splitlines()) <= limit
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            assert (node.end_lineno or 0) - node.lineno < 60, f"{node.name} is too long"
            assert depth(node) <= 3, f"{node.name} nests too deep"


def test_every_format_has_cases() -> None:
    assert {p.stem for p in (ROOT / "tests/data/formats").glob("*.txt")} == set(formats.names())


def code_lines(path: Path) -> int:
    """The number of lines, without the module's docstring, imports and empty lines."""
    text = path.read_text()
    tree = ast.parse(text)
    told = [n for n in ast.walk(tree) if n is tree.body[0] or isinstance(n, ast.Import | ast.ImportFrom)]
    others = {line for node in told for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    return sum(bool(line.strip()) and i not in others for i, line in enumerate(text.splitlines(), 1))


def test_format_modules_are_small() -> None:
    sizes = {name: code_lines(ROOT / f"src/dragoman/formats/{name}.py") for name in formats.names() if name != "auto"}
    by_hand = {name: size for name, size in sizes.items() if size > 40}
    assert len(by_hand) <= 5
    assert max(by_hand.values()) <= 120


def test_every_format_has_at_least_12_cases() -> None:
    for path in (ROOT / "tests/data/formats").glob("*.txt"):
        assert len(re.findall(r"^# ", path.read_text(), re.M)) >= 12, path.name


def test_every_dialect_has_cases() -> None:
    assert {p.name for p in (ROOT / "tests/data/dialects").iterdir()} == set(dialects.names())


def test_newest_changelog_entry_is_this_version() -> None:
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest is not None
    assert newest[1] == dragoman.__version__


def test_every_warning_is_documented() -> None:
    page = (ROOT / "docs/warnings.md").read_text()
    documented = set(re.findall(r"^\| `(\w+)`", page, re.M))
    sources = "".join(path.read_text() for path in SOURCES)
    assert documented == set(re.findall(r'(?:warn|notices_by_name|end_reply|Notice)\(\s*"([a-z_0-9]+)"', sources))
