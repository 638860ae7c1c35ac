"""The record of tested client and server pairs agrees with the tests that are marked with `ran`."""

from pathlib import Path

import pytest

from support import ran_pairs
from support.paths import ROOT
from support.ran_pairs import MARKED, AccessRecord, Pair

CODEX = Pair("Codex", "claude CLI")
OLD = AccessRecord("1", "2", "2026-01-01", ("tests/a.py::test_a", "tests/a.py::test_b"))


def test_record_equals_marked_tests(request: pytest.FixtureRequest) -> None:
    """Only files that this run collects completely are compared; in a run of all tests, these are all files."""
    parts = {Path(arg.partition("::")[0]).name for arg in request.config.args if "::" in arg}
    recorded = {(pair, test) for pair, record in ran_pairs.read().items() for test in record.tests}
    for file, marked in request.config.stash[MARKED].items():
        if Path(file).name not in parts:
            of_file = {(pair, test) for pair, test in recorded if test.startswith(f"{file}::")}
            assert marked == of_file, "marked and recorded differ; run these with --ran, then: make docs"
    assert [test for _, test in recorded if not (ROOT / test.partition("::")[0]).exists()] == []


def test_passed_pair_is_recorded_with_versions() -> None:
    ((pair, record),) = ran_pairs.merged({}, {(CODEX, "tests/a.py::test_a"): {"passed"}}).items()
    assert (pair, record.tests) == (CODEX, ("tests/a.py::test_a",))
    assert (record.front_version, record.behind_version) == (
        ran_pairs.FRONT["Codex"](),
        ran_pairs.FRONT["Claude Code"](),
    )


@pytest.mark.parametrize(
    ("outcomes", "left"),
    [
        ({}, {CODEX: OLD}),
        ({"test_a": {"skipped"}}, {CODEX: OLD}),
        ({"test_a": {"passed", "failed"}}, {CODEX: OLD._replace(tests=("tests/a.py::test_b",))}),
        ({"test_a": {"failed"}, "test_b": {"failed"}}, {}),
    ],
    ids=["did not run", "skipped", "failed with a parameter", "failed"],
)
def test_failed_tests_are_removed_and_skipped_tests_kept(
    outcomes: dict[str, set[str]], left: dict[Pair, AccessRecord]
) -> None:
    seen = {(CODEX, f"tests/a.py::{test}"): outcome for test, outcome in outcomes.items()}
    assert ran_pairs.merged({CODEX: OLD}, seen) == left
