"""The examples of docs/adding-a-….md, copied over the project: they pass the test suite."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dragoman
from support.gateway import DEADLINE_S
from support.paths import ROOT

ADDED = ROOT / "examples" / "added"
PAIR_TESTS = "every_api or vendor_types or round_trips"
"""Tests of each pair of APIs, or with random input, which are skipped here."""


def test_added_format_dialect_and_backend_pass_test_suite(tmp_path: Path) -> None:
    for name in ("src", "tests"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "clients", "accuracy")
        )
    for name in ("bench", "examples", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ADDED, tmp_path, dirs_exist_ok=True)
    contract = [f"tests/contract/test_{name}.py" for name in ("dialects", "upstream_responses", "sent_requests")]
    files = ["tests/formats/test_cases.py", *contract, "tests/test_pipe.py"]
    chosen = f"parcel or pipe or (parley and not ({PAIR_TESTS}))"
    did = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-n", "0", *files, "-k", chosen],
        cwd=tmp_path,
        env={"PATH": str(Path(sys.executable).parent), "PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        timeout=4 * DEADLINE_S,
    )
    assert did.returncode == 0, did.stdout[-3000:] + did.stderr[-1000:]
    passed = re.findall(r"^(\S+).* PASSED", did.stdout, re.M)
    for name, least in (("parcel", 8), ("parley", 8), ("pipe", 3)):
        chosen_for = [test for test in passed if name in test]
        assert len(chosen_for) >= least, f"expected {least} tests of {name}, got {chosen_for}"


@pytest.mark.parametrize("kind", ["format", "dialect", "backend"])
def test_adding_page_names_all_example_files(kind: str) -> None:
    page = (ROOT / "docs" / f"adding-a-{kind}.md").read_text()
    folder = ADDED / "src" / Path(dragoman.__file__).parent.name / f"{kind}s"
    assert all(f"examples/added/src/dragoman/{kind}s/{found.name}" in page for found in folder.iterdir())
