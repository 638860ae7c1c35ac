"""Recorded runs: what the model wrote in each turn, and what the tools returned."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

FOLDER = Path(__file__).parents[3] / "tests" / "data" / "accuracy" / "scenarios"


class RecordedCall(msgspec.Struct, frozen=True, array_like=True):
    """A call and its result."""

    name: str
    arguments: str
    result: str


class RecordedTurn(msgspec.Struct, frozen=True, omit_defaults=True):
    """One response of the model."""

    request: str
    """Digest of the request."""
    text: str = ""
    calls: Sequence[RecordedCall] = ()
    finish: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cpu_s: float = 0.0


class ScenarioRun(msgspec.Struct, frozen=True):
    """One run of a scenario."""

    arm: str
    scenario: str
    seed: int
    turns: Sequence[RecordedTurn]
    end: str
    """Why it ended: `text`, `terminal`, `loop`, `turns`, `cpu`, or `error: …`."""


def digest(body: Any) -> str:
    """Returns a short digest of a request."""
    return hashlib.sha256(msgspec.json.encode(body, order="sorted")).hexdigest()[:12]


def read(path: Path) -> list[ScenarioRun]:
    """Returns the runs of a file; none if it does not exist."""
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=ScenarioRun) for line in path.read_bytes().splitlines()]


def read_recordings() -> list[ScenarioRun]:
    """Returns all runs that are stored for the tests."""
    return [run for path in sorted(FOLDER.glob("*.jsonl")) for run in read(path)]


def write_recordings(runs: Iterable[ScenarioRun]) -> None:
    """Stores runs for the tests, a file for each arm."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    by_arm: dict[str, list[ScenarioRun]] = {}
    for run in runs:
        by_arm.setdefault(run.arm, []).append(run)
    for arm, its_runs in by_arm.items():
        its_runs.sort(key=lambda run: (run.seed, run.scenario))
        lines = b"".join(msgspec.json.encode(run) + b"\n" for run in its_runs)
        (FOLDER / f"{arm}.jsonl").write_bytes(lines)
