"""Measures Dragoman and other proxies, and prints the tables of docs/performance.md."""

import argparse
import signal
import sys
import time
from pathlib import Path

from bench.proxies import contenders, report, rounds

_PAGE = Path(__file__).parents[2] / "docs/performance.md"


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m bench.proxies", description=__doc__, allow_abbrev=False)
    parser.add_argument("names", nargs="*", metavar="NAME", help="contenders whose name contains this (default: all)")
    parser.add_argument("--rounds", type=int, default=4, help="rounds; slow contenders take part in every third")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: to see that it runs, not to compare")
    parser.add_argument("--write", action="store_true", help="also write the tables to docs/performance.md")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that the proxies are ended, too
    began = time.monotonic()
    chosen = [one for one in contenders.installed() if not args.names or any(name in one.name for name in args.names)]
    results = rounds.measure(chosen, args.rounds, is_quick=args.quick)
    text = report.markdown(results, report.program_versions())
    print(text)
    print(f"measured in {time.monotonic() - began:.0f} s", file=sys.stderr)
    if args.write:
        report.write(_PAGE, text)


if __name__ == "__main__":
    main()
