"""Compares the instruction counts of two commits of Dragoman, in this interpreter and with these benchmarks.

The counts repeat within 1 %. Scenarios that one of the commits cannot run end the command.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.callgrind import unavailable
from bench.instructions import MORE, Sizes, count
from bench.proxies.contenders import ROOT

NOISE_PERCENT = 1.0
"""Smaller changes are not marked."""


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


def counts_of(commit: str, sizes: Sizes) -> dict[str, float]:
    """Returns thousands of instructions by scenario."""
    print(f"counting {commit or 'the worktree'}", file=sys.stderr, flush=True)
    with source_of(commit) as source:
        return dict(count(source, sizes))


def lines(first: dict[str, float], second: dict[str, float]) -> Iterator[str]:
    """Yields the table; changes above the noise are marked."""
    width = max(map(len, first))
    yield f"{'thousands of instructions':{width}} {'first':>10} {'second':>10} {'change':>9}"
    for name in first:
        if name in second:
            percent = 100 * (second[name] / first[name] - 1)
            mark = "" if abs(percent) < NOISE_PERCENT else " more" if percent > 0 else " less"
            yield f"{name:{width}} {first[name]:10.4g} {second[name]:10.4g} {percent:+7.1f} %{mark}"


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__, allow_abbrev=False)
    parser.add_argument("first", metavar="COMMIT_A")
    parser.add_argument("second", metavar="COMMIT_B", nargs="?", default="", help="default: the worktree as it is")
    parser.add_argument("--quick", action="store_true", help="as few requests as `python -m bench.instructions`")
    args = parser.parse_args()
    if reason := unavailable():
        print(f"skipped: {reason}")
        return 0
    sizes = Sizes() if args.quick else MORE
    print("\n".join(lines(*(counts_of(commit, sizes) for commit in (args.first, args.second)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
