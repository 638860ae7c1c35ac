"""With what the runs of the scenarios were made, stored next to them."""

from pathlib import Path

import pytest
from bench.accuracy.scenarios import heads
from bench.accuracy.scenarios.arms import ARMS
from bench.accuracy.scenarios.heads import add_head, current_head, head_lines, heads_of, read_heads, record_heads
from bench.accuracy.scenarios.recording import read_recordings

from dragoman import __version__

SAMPLING = {"model": "qwen2.5-coder-1.5b", "temperature": 0.0, "seed": 0}
NO_PYTHON = Path("no-such-python")


def head(temperature: float = 0.0) -> heads.Head:
    return current_head("bare", {**SAMPLING, "temperature": temperature}, NO_PYTHON)


def test_head_has_versions_and_settings() -> None:
    found = head(0.7)
    assert found["dragoman"] == __version__
    assert found["engine"].startswith("xllamacpp 2")
    assert found["settings"].startswith("temperature 0.7, seed 0, at most 400 tokens, context of 8192, threads: ")
    assert "forge" not in found


def test_head_of_forge_has_its_version(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 1.2.3\n")
    python.chmod(0o755)
    assert current_head("forge", SAMPLING, python)["forge"] == "forge-guardrails 1.2.3"


def test_each_head_is_stored_once(tmp_path: Path) -> None:
    path = heads_of(tmp_path / "runs.jsonl")
    assert read_heads(path) == {}
    for each in (head(), head(), head(0.7)):
        add_head("bare", each, path)
    assert read_heads(path) == {"bare": [head(), head(0.7)]}


def test_recorded_arms_have_the_heads_of_their_runs_only(tmp_path: Path) -> None:
    runs, recorded = tmp_path / "runs.jsonl", tmp_path / "heads.json"
    for arm in ("bare", "steps", "forge"):
        add_head(arm, head(0.1), recorded)
    add_head("bare", head(0.2), heads_of(runs))
    add_head("dragoman", head(0.2), heads_of(runs))
    record_heads({"bare", "steps"}, runs, recorded)
    assert read_heads(recorded) == {"bare": [head(0.2)], "forge": [head(0.1)]}


def test_lines_of_arms_with_and_without_a_head() -> None:
    first, second = head_lines(["bare", "steps"], {"bare": [head()]})
    assert first.startswith(f"bare: {head()['date']}, dragoman {__version__}, xllamacpp 2")
    assert "qwen2.5-coder-1.5b; temperature 0, seed 0, " in first
    assert second == "steps: neither versions nor settings were stored"


@pytest.mark.skipif(not heads.RECORDED.exists(), reason="no heads have been recorded")
def test_recorded_heads_are_those_of_recorded_arms() -> None:
    assert read_heads(heads.RECORDED).keys() <= {run.arm for run in read_recordings()} <= ARMS.keys()
