"""Compares two recordings of the accuracy benchmark, group by group.

    python -m bench.accuracy.compare OLD NEW [--below 2]

Each is a file, or `REVISION:PATH` of this repository, of the ladder (tests/data/accuracy/MODEL.jsonl) or of the fresh
prompts. This version judges both, over the prompts that both have. The exit status is 1 if a group of NEW has more than
`--below` right answers fewer.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.accuracy import fresh, report, texts


class GroupChange(NamedTuple):
    """The right answers of one group in both recordings."""

    group: str
    old: int
    new: int
    answers: int


def changes(old: Path, new: Path) -> list[GroupChange]:
    """Returns the groups that both recordings have."""
    if _is_fresh(old) != _is_fresh(new):
        raise SystemExit(f"expected two recordings of one kind, got {old} and {new}")
    compare = _changes_of_fresh if _is_fresh(old) else _changes_of_ladder
    return list(compare(old, new))


def _is_fresh(path: Path) -> bool:
    return b'"arm"' in path.read_bytes().split(b"\n", 2)[1]


def _changes_of_fresh(old: Path, new: Path) -> Iterator[GroupChange]:
    answers = [{each.key: each for each in fresh.read(path)} for path in (old, new)]
    common = answers[0].keys() & answers[1].keys()
    before, now = (
        {group.title: group for group in fresh.groups(answer for key, answer in recording.items() if key in common)}
        for recording in answers
    )
    for title, group in before.items():
        yield GroupChange(title, group.right, now[title].right, group.answers)


def _changes_of_ladder(old: Path, new: Path) -> Iterator[GroupChange]:
    recordings = [texts.read_recording(path) for path in (old, new)]
    common = set.intersection(*({(each.id, each.rung) for each in recording} for recording in recordings))
    before, now = (
        [row for row in report.rows(text for text in recording if (text.id, text.rung) in common)]
        for recording in recordings
    )
    rights: Mapping[str, report.Row] = {row.rung.title: row for row in now}
    for row in before:
        for category in filter(row.prompts.get, report.COLUMNS):
            title = f"{row.rung.title}: {report.COLUMNS[category]}"
            yield GroupChange(title, row.right[category], rights[row.rung.title].right[category], row.prompts[category])


def _file(name: str, folder: Path) -> Path:
    if Path(name).exists():
        return Path(name)
    done = subprocess.run(["git", "show", name], capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"expected a file or REVISION:PATH, got {name!r}: {done.stderr.decode().strip()}")
    path = folder / f"{len(list(folder.iterdir()))}.jsonl"
    path.write_bytes(done.stdout)
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command with these arguments, by default those of the process; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy.compare", description=__doc__)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--below", type=int, default=2, metavar="N", help="right answers that a group may lose")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        found = changes(*(_file(name, Path(folder)) for name in (args.old, args.new)))
    for change in found:
        mark = "  BELOW" if change.new < change.old - args.below else ""
        print(f"{change.new - change.old:+4d}  {change.old} -> {change.new} of {change.answers}  {change.group}{mark}")
    return int(any(change.new < change.old - args.below for change in found))


if __name__ == "__main__":
    sys.exit(main())
