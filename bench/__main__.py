"""Runs benchmarks and prints one table; the exit status is 0 whatever the figures: a benchmark is not a test."""

import argparse
import importlib
import sys
from pathlib import Path

from bench.figures import Figure, machine, save, table

BENCHMARKS = (
    "reader",
    "field",
    "wire",
    "translation",
    "guard",
    "gateway",
    "proxies",
    "tokens",
    "accuracy",
    "claude_cli",
)

ALONE = ("proxies", "claude_cli")
"""Benchmarks that need third-party programs and run only if named."""


def main() -> None:
    """Runs the named benchmarks, or all."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    known = f"one of {', '.join(BENCHMARKS)}; default: all but {', '.join(ALONE)}"
    parser.add_argument("names", nargs="*", metavar="name", help=known)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: to see that it runs, not to compare")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    args = parser.parse_args()
    for name in args.names:
        if name not in BENCHMARKS:
            parser.error(f"unknown benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    sections: list[tuple[str, list[Figure]]] = []
    for name in args.names or [one for one in BENCHMARKS if one not in ALONE]:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        sections.append((name, list(importlib.import_module(f"bench.{name}").measure(args.quick))))
    print(f"{machine()}\n\n{table(sections)}")
    if args.json:
        save(args.json, sections)


if __name__ == "__main__":
    main()
