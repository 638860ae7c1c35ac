"""The stored runs of tasks with several turns, and their table."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from bench.accuracy import texts
from bench.accuracy.multi_turn.tasks import CLASSES, EACH, Call, tasks

RECORDING = texts.FOLDER / "multi_turn.jsonl"
TEXT_CHARS = 300
"""Length up to which a final text is stored in the recording."""


class TaskRun(msgspec.Struct, frozen=True):
    """One run of a task: the calls, the last text of each turn, and the verdict."""

    id: str
    arm: str
    seed: int
    input_tokens: int
    output_tokens: int
    cpu_s: float
    turns: list[list[list[Call]]]
    texts: list[str]
    problem: str
    """Empty: the checker accepts it."""


def read(path: Path) -> list[TaskRun]:
    """Returns the runs of a file; none if it does not exist."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=TaskRun) for line in lines]


def record(runs: Sequence[TaskRun], path: Path) -> None:
    """Stores the runs for the tests, with shortened texts."""
    order = [task.id for task in tasks()]
    rows = sorted(runs, key=lambda run: (run.arm, run.seed, order.index(run.id)))
    short = (msgspec.structs.replace(row, texts=[text[:TEXT_CHARS] for text in row.texts]) for row in rows)
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in short))


def markdown(runs: Iterable[TaskRun]) -> str:
    """Returns the table of docs/accuracy.md."""
    heads = (f"BFCL multi-turn ({EACH} each of {len(CLASSES)} systems)", "accepted", "turns with calls", "calls")
    lines = [f"| {' | '.join((*heads, 'tokens', 'CPU s'))} |", "|---|---:|---:|---:|---:|---:|"]
    by_arm: dict[str, list[TaskRun]] = {}
    for run in runs:
        by_arm.setdefault(run.arm, []).append(run)
    for arm, its in by_arm.items():
        turns = [turn for run in its for turn in run.turns]
        calls = sum(len(step) for turn in turns for step in turn)
        each = f"{sum(r.output_tokens for r in its) / len(its):.0f} | {sum(r.cpu_s for r in its) / len(its):.0f}"
        accepted = sum(not run.problem for run in its)
        lines.append(
            f"| {arm} | {accepted} of {len(its)} | {sum(map(bool, turns))} of {len(turns)} | {calls} | {each} |"
        )
    return "\n".join([*lines, ""])
