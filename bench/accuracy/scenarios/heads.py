"""With what the runs of each arm were made: versions, model and settings, in a file of their own next to the runs.

An arm has several heads if its runs were made with several versions, settings or on several days. Runs from before this
file existed have none.
"""

import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from bench.accuracy.scenarios.arms import ARMS, CONTEXT, THREADS
from bench.accuracy.scenarios.recording import FOLDER
from bench.accuracy.scenarios.run import REPLY_TOKENS
from bench.accuracy.texts import recording_head

RECORDED = FOLDER / "heads.json"

Head: TypeAlias = Mapping[str, str]
Heads: TypeAlias = dict[str, list[Head]]
"""Heads by arm."""

_VERSION_OF_FORGE = "from importlib.metadata import version; print(version('forge-guardrails'))"


def heads_of(runs: Path) -> Path:
    """Returns the file of the heads of a file of runs."""
    return runs.with_suffix(".heads.json")


def current_head(arm: str, sampling: Mapping[str, Any], forge_python: Path) -> Head:
    """Returns the head of runs that are made now.

    Args:
        arm: name of the arm.
        sampling: `model`, `temperature` and `seed` of each request.
        forge_python: Python of the environment of forge's proxy.
    """
    settings = (
        f"temperature {sampling['temperature']:g}, seed {sampling['seed']}, at most {REPLY_TOKENS} tokens, "
        f"context of {CONTEXT}, threads: {THREADS}"
    )
    head = recording_head("python -m bench.accuracy.scenarios --record", sampling["model"], settings)
    if ARMS[arm].program == "forge":
        found = subprocess.run([forge_python, "-c", _VERSION_OF_FORGE], capture_output=True, text=True, check=True)
        head["forge"] = f"forge-guardrails {found.stdout.strip()}"
    return head


def read_heads(path: Path) -> Heads:
    """Returns the heads of a file; none if it does not exist."""
    return msgspec.json.decode(path.read_bytes(), type=Heads) if path.exists() else {}


def write_heads(heads: Heads, path: Path) -> None:
    """Stores heads, with indentation."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(heads), indent=2) + b"\n")


def add_head(arm: str, head: Head, path: Path) -> None:
    """Adds the head of an arm to a file, unless it has it."""
    heads = read_heads(path)
    if head not in heads.setdefault(arm, []):
        heads[arm].append(head)
        write_heads(heads, path)


def record_heads(arms: Iterable[str], runs: Path, recorded: Path = RECORDED) -> None:
    """Stores the heads of these arms for the tests; arms whose runs have none lose those of earlier runs.

    Args:
        arms: names of the arms whose runs are stored.
        runs: the file of the runs.
        recorded: the file of the heads for the tests.
    """
    made = read_heads(heads_of(runs))
    found = read_heads(recorded) | {arm: made.get(arm, []) for arm in arms}
    write_heads({arm: found[arm] for arm in sorted(found) if found[arm]}, recorded)


def head_lines(arms: Sequence[str], heads: Heads) -> Iterator[str]:
    """Yields lines about how the runs of these arms were made."""
    for arm in arms:
        for head in heads.get(arm, ()):
            versions = ", ".join(
                filter(None, (f"dragoman {head['dragoman']}", head["engine"], head.get("forge", ""), head["model"]))
            )
            yield f"{arm}: {head['date']}, {versions}; {head['settings']}"
        if not heads.get(arm):
            yield f"{arm}: neither versions nor settings were stored"
