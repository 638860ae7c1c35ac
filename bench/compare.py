"""Compares the instruction counts of two commits of Dragoman, in this interpreter and with these benchmarks.

Each round counts both commits, in alternating order, and yields one change in percent per scenario. A scenario is
reported as changed if all rounds changed it in the same direction by at least `NOISE_PERCENT`. A scenario that one of
the commits cannot run ends the command with an error.
"""

import argparse
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.callgrind import unavailable
from bench.instructions import Sizes, count
from bench.proxies.contenders import ROOT

NOISE_PERCENT = 1.0
"""Smaller changes are noise: two equal commits differ by less."""
ROUNDS = 2

Counts = dict[str, float]
"""Thousands of instructions by scenario."""


class Change(NamedTuple):
    """The counts of one scenario, by round."""

    scenario: str
    first: list[float]
    second: list[float]

    @property
    def percents(self) -> list[float]:
        """Returns the change of each round."""
        return [100 * (second / first - 1) for first, second in zip(self.first, self.second, strict=True)]

    @property
    def percent(self) -> float:
        """Returns the median change."""
        return statistics.median(self.percents)

    @property
    def verdict(self) -> str:
        """Returns `more` or `less` if all rounds agree and exceed the noise; otherwise empty."""
        if min(self.percents) >= NOISE_PERCENT:
            return "more"
        return "less" if max(self.percents) <= -NOISE_PERCENT else ""


def changes(rounds: Sequence[tuple[Counts, Counts]]) -> list[Change]:
    """Returns the change of each scenario over the rounds, each of which has the counts of both commits."""
    return [
        Change(scenario, [first[scenario] for first, _ in rounds], [second[scenario] for _, second in rounds])
        for scenario in rounds[0][0]
    ]


def report(rows: Sequence[Change]) -> Iterator[str]:
    """Yields the lines of the table, then what changed."""
    width = max(len(row.scenario) for row in rows)
    yield f"{'thousands of instructions':{width}} {'first':>10} {'second':>10} {'change':>9}  by round"
    for row in rows:
        first, second = statistics.median(row.first), statistics.median(row.second)
        by_round = " ".join(f"{percent:+.1f}" for percent in row.percents)
        line = f"{row.scenario:{width}} {first:10.4g} {second:10.4g} {row.percent:+7.1f} %  {by_round} {row.verdict}"
        yield line.rstrip()
    yield ""
    for verdict in ("more", "less"):
        names = [f"{row.scenario} ({row.percent:+.1f} %)" for row in rows if row.verdict == verdict]
        if names:
            yield f"{verdict}: {', '.join(names)}"
    if not any(row.verdict for row in rows):
        yield f"no difference of {NOISE_PERCENT:g} % or more"


@contextmanager
def source_of(commit: str) -> Iterator[Path]:
    """Checks the commit out into a temporary folder and returns its `src`; empty: the `src` of this worktree."""
    if not commit:
        yield ROOT / "src"
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "worktree")
        _git("worktree", "add", "--quiet", "--detach", str(folder), commit)
        try:
            yield folder / "src"
        finally:
            _git("worktree", "remove", "--force", str(folder))


def _git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(ROOT), *arguments], check=True)


def measure_rounds(commits: tuple[str, str], number: int) -> Iterator[tuple[Counts, Counts]]:
    """Yields the counts of both commits for each of so many rounds."""
    with ExitStack() as stack:
        sources = [stack.enter_context(source_of(commit)) for commit in commits]
        for i in range(number):
            counts: dict[int, Counts] = {}
            for index in (0, 1) if i % 2 == 0 else (1, 0):
                print(f"round {i + 1} of {number}: {commits[index] or 'the worktree'}", file=sys.stderr, flush=True)
                counts[index] = dict(count(sources[index], Sizes()))
            yield counts[0], counts[1]


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__, allow_abbrev=False)
    parser.add_argument("first", metavar="COMMIT_A")
    parser.add_argument("second", metavar="COMMIT_B", nargs="?", default="", help="default: the worktree as it is")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"at least 1 (default: {ROUNDS})")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error(f"expected --rounds of at least 1, got {args.rounds}")
    if reason := unavailable():
        print(f"skipped: {reason}")
        return 0
    # Without this, SIGTERM would leave the checked out commits and the gateway under callgrind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    print("\n".join(report(changes(list(measure_rounds((args.first, args.second), args.rounds))))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
