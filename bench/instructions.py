"""Counts Dragoman's instructions for a request and a delta, and compares them with the recorded ones.

Thousands of instructions, counted by callgrind, so other programs on the machine do not change them. A delta is the
difference of long and short streams: the request is not in it.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

from bench.callgrind import Counter, environment, micro_worker, unavailable, under_callgrind
from bench.figures import Figure, machine, table
from bench.proxies.contenders import CONTENDERS, OURS, ROOT, Contender, dragoman
from bench.proxies.load import LoadProgram, load_program
from bench.proxies.processes import ServerProcess, free_port, running
from bench.proxies.scenarios import PATHS, request_body, request_bytes

RECORDED: Final = Path(__file__).with_name("instructions.toml")
_ALLOWED: Final = 1.05
_PACKAGES: Final = ("aiohttp", "httptools", "msgspec", "uvicorn", "uvloop")
_SHORT, _LONG = 24, 224
"""Deltas of a stream."""


class Sizes(NamedTuple):
    """How much is counted."""

    requests: int = 40
    streams: int = 3
    micro: int = 3
    workers: int = 3
    warm_up: int = 3


def count(source: Path, sizes: Sizes) -> Iterator[tuple[str, float]]:
    """Yields name and thousands of instructions of each scenario.

    Args:
        source: folder that contains the package `dragoman`.
        sizes: how much is counted.
    """
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(source / "dragoman")], check=True)
    with load_program() as load, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder, port = Path(name), free_port()
        start = dragoman(folder, port, load.port, source)
        command = under_callgrind(start.command, folder)
        with running(command, environment(**start.environ), port, folder, pin=False) as server:
            counts = _ServerCounts(load, server, Counter(server.pid, folder), sizes)
            for contender in CONTENDERS:
                if contender.name in OURS:
                    yield from counts.measure(contender)
    yield from _micro(source, sizes).items()


class _ServerCounts:
    def __init__(self, load: LoadProgram, server: ServerProcess, counter: Counter, sizes: Sizes) -> None:
        self._load = load
        self._server = server
        self._counter = counter
        self._sizes = sizes

    def measure(self, contender: Contender) -> Iterator[tuple[str, float]]:
        """Yields name and thousands of instructions of each scenario of this configuration."""
        sizes, name = self._sizes, contender.name
        self._run(contender, sizes.warm_up, 0)
        spent = self._counter.count(lambda: self._run(contender, sizes.requests, 0))
        yield f"{name}: request", spent / 1000 / sizes.requests
        for per_write, title in ((1, "delta alone"), (8, "8 deltas per write")):
            self._run(contender, 1, _SHORT, per_write)
            many = max(1, sizes.streams * (per_write + 1) // 2)  # bursts take less for each delta
            short, long = (self._streams(contender, many, deltas, per_write) for deltas in (_SHORT, _LONG))
            yield f"{name}: {title}", (long - short) / 1000 / many / (_LONG - _SHORT)

    def _streams(self, contender: Contender, times: int, deltas: int, per_write: int) -> int:
        return self._counter.count(lambda: self._run(contender, times, deltas, per_write))

    def _run(self, contender: Contender, times: int, deltas: int, per_write: int = 1) -> None:
        """Sends requests one after the other; a write of the upstream waits until the client has the previous one."""
        script = f"bench-n{deltas or 1}-k{per_write}-l1"
        body = request_body(contender.api, contender.model, script, stream=deltas > 0)
        request = request_bytes(PATHS[contender.api], body)
        outcome = self._load.run(self._server.port, request, conns=1, requests=times, marks=deltas)
        if outcome.done < times or outcome.short:
            raise RuntimeError(f"{contender.name}: {times - outcome.done} of {times} requests failed")


def _micro(source: Path, sizes: Sizes) -> dict[str, float]:
    """Returns the smallest count of several processes.

    Python's method cache uses memory addresses, which differ from process to process; collisions cost up to 3 %.
    """
    from bench import micro  # not above, as its names come from the Dragoman of this worktree

    counts: dict[str, float] = {}
    for seed in map(str, range(sizes.workers)):
        environ = environment(PYTHONPATH=f"{source}:{ROOT}", PYTHONHASHSEED=seed)
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name,
            micro_worker(environ, Path(name)) as worker,
        ):
            for work_name, work in micro.work_by_name().items():
                worker.run(work_name, 2)
                spent = worker.counter.count(partial(worker.run, work_name, sizes.micro))
                value = spent / 1000 / work.units / sizes.micro
                counts[work_name] = min(value, counts.get(work_name, value))
    return counts


def versions() -> dict[str, str]:
    """Returns what the counts depend on besides Dragoman."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python, "compiler": platform.python_compiler(), **{name: version(name) for name in _PACKAGES}}


def record(counts: dict[str, float], path: Path = RECORDED) -> None:
    """Writes the counts and versions to the file."""
    lines = ["# Written by `python -m bench.instructions --record`.", "[versions]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in versions().items()]
    lines += ["", "# Thousands of instructions.", "[counts]"]
    lines += [f"{json.dumps(name, ensure_ascii=False)} = {value:.4g}" for name, value in counts.items()]
    path.write_text("\n".join(lines) + "\n")


def compare(counts: dict[str, float], path: Path = RECORDED) -> tuple[str, bool]:
    """Returns a table next to the recorded counts, and whether a count is more than 5 % above its recorded one.

    Counts that were recorded with other versions are only reported.
    """
    recorded = tomllib.loads(path.read_text())
    known = recorded["counts"]
    lines = [f"{'scenario':70} {'recorded':>10} {'now':>10} {'change':>8}"]
    lines += [_line(name, known.get(name), value) for name, value in counts.items()]
    worse = [name for name, value in counts.items() if name in known and value > known[name] * _ALLOWED]
    missing = sorted(counts.keys() ^ known.keys())
    others = {name: text for name, text in recorded["versions"].items() if versions().get(name) != text}
    if others:
        lines.append(f"only reported: the counts were recorded with other versions: {others}")
        return "\n".join(lines), False
    if worse:
        lines.append(f"more than 5 % above the recorded count: {worse}; if intended, run with --record")
    if missing:
        lines.append(f"recorded and counted scenarios differ: {missing}; run with --record")
    return "\n".join(lines), bool(worse or missing)


def _line(name: str, recorded: float | None, value: float) -> str:
    change = f"{100 * (value / recorded - 1):+.1f} %" if recorded else "new"
    return f"{name:70} {recorded or 0:10.4g} {value:10.4g} {change:>8}"


def main() -> int:
    """Runs the command; the exit status is 1 if `--check` fails."""
    parser = argparse.ArgumentParser(prog="python -m bench.instructions", description=__doc__, allow_abbrev=False)
    parser.add_argument("--check", action="store_true", help="compare with bench/instructions.toml; status 1: above it")
    parser.add_argument("--record", action="store_true", help="write bench/instructions.toml")
    args = parser.parse_args()
    if reason := unavailable():
        print(f"skipped: {reason}")
        return 0
    counts = dict(count(ROOT / "src", Sizes()))
    if args.record:
        record(counts)
    if args.check:
        text, failed = compare(counts)
        print(text)
        return int(failed)
    figures = [Figure(name, value, "k instructions") for name, value in counts.items()]
    print(f"{machine()}\n\n{table([('instructions', figures)])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
