"""Asks the models, and keeps what they write in .cache/accuracy."""

import argparse
import asyncio
import os

from bench.accuracy import bfcl, generate
from bench.accuracy.cases import own

MODELS = ("smollm2-135m", "qwen2.5-coder-1.5b")


def main() -> None:
    """One model or more, one rung or more."""
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy", description=__doc__)
    parser.add_argument("--model", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--rungs", nargs="+", choices=generate.RUNGS, default=generate.RUNGS)
    parser.add_argument("--sets", nargs="+", choices=("own", "bfcl"), default=["own", "bfcl"])
    parser.add_argument("--each", type=int, default=30, metavar="N", help="prompts of each category of BFCL")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    cases = [*(own() if "own" in args.sets else ()), *(bfcl.cases(args.each) if "bfcl" in args.sets else ())]
    os.nice(5)  # for hours
    for model in args.model:
        asyncio.run(generate.run(model, cases, args.rungs, threads=args.threads))


if __name__ == "__main__":
    main()
