"""The examples of docs/adding-a-….md, laid over a copy of the project: what the suite asks of them, they have."""

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
OF_PAIRS = "every_api or vendors or by_way or written_is"
"""What the suite tries of each API with each, or draws at random: a page's reader does that once."""


def test_a_format_a_dialect_and_a_backend_are_added_and_the_suite_takes_them(tmp_path: Path) -> None:
    for name in ("src", "tests"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "clients", "accuracy")
        )
    for name in ("bench", "examples", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ADDED, tmp_path, dirs_exist_ok=True)
    contract = [f"tests/contract/test_{name}.py" for name in ("dialects", "upstream_responses", "sent_requests")]
    files = ["tests/formats/test_cases.py", *contract, "tests/test_pipe.py"]
    chosen = f"parcel or pipe or (parley and not ({OF_PAIRS}))"
    did = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *files, "-k", chosen],
        cwd=tmp_path,
        env={"PATH": str(Path(sys.executable).parent), "PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        timeout=4 * DEADLINE_S,
    )
    assert did.returncode == 0, did.stdout[-3000:] + did.stderr[-1000:]
    (passed,) = re.findall(r"(\d+) passed", did.stdout)
    assert int(passed) > 40


@pytest.mark.parametrize("kind", ["format", "dialect", "backend"])
def test_the_page_names_what_was_added(kind: str) -> None:
    page = (ROOT / "docs" / f"adding-a-{kind}.md").read_text()
    folder = ADDED / "src" / Path(dragoman.__file__).parent.name / f"{kind}s"
    assert all(f"examples/added/src/dragoman/{kind}s/{found.name}" in page for found in folder.iterdir())
