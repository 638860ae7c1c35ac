"""The search of the documentation site finds the right page for what users type (tests/data/docs/searches.toml)."""

import json
import subprocess
import tomllib
from pathlib import Path

import pytest
from bench import offline
from docs import site

from support.check_each import check_each
from support.paths import DATA

SHOWN = 3
"""Results of a search that a user looks at."""


def test_search_finds_page_among_first_results(tmp_path: Path, subtests: pytest.Subtests) -> None:
    groups = tomllib.loads((DATA / "docs" / "searches.toml").read_text())
    searches = [(query, pages) for group in groups.values() for query, pages in group.items()]
    site.build(tmp_path / "site")
    runner = Path(__file__).parents[2] / "support" / "site_search.mjs"
    command = [str(offline.node()), str(runner), str(tmp_path / "site")]
    queries = json.dumps([query for query, _ in searches])
    run = subprocess.run(command, input=queries, capture_output=True, text=True, check=True)
    results: list[list[str]] = json.loads(run.stdout)

    def check(case: tuple[tuple[str, list[str]], list[str]]) -> None:
        (_, pages), found = case
        first = [location.partition(".html")[0] for location in found[:SHOWN]]
        assert set(first) & set(pages), f"expected one of {pages} among the first {SHOWN} results, got {found}"

    check_each(subtests, list(zip(searches, results, strict=True)), check, lambda case: case[0][0])
