"""Asks the models, stores their texts in .cache/accuracy, and prints the ladder as a table."""

import argparse
import asyncio
import os

from bench.accuracy import MODELS, bfcl, generate, report, texts
from bench.accuracy.cases import REPLY_TOKENS, own


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy", description=__doc__)
    parser.add_argument("--model", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--rungs", nargs="+", choices=texts.RUNGS, default=texts.RUNGS)
    parser.add_argument("--sets", nargs="+", choices=("own", "bfcl"), default=["own", "bfcl"])
    parser.add_argument("--each", type=int, default=30, metavar="N", help="prompts of each category of BFCL")
    parser.add_argument("--all-rungs", action="store_true", help="print also the rungs that the docs leave out")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--record", action="store_true", help="store the texts for the tests, without asking the models"
    )
    parser.add_argument(
        "--inputs", action="store_true", help="print digests of the engine's inputs, without the models"
    )
    args = parser.parse_args()
    cases = [*(own() if "own" in args.sets else ()), *(bfcl.cases(args.each) if "bfcl" in args.sets else ())]
    if args.inputs:
        print(*(line for model in args.model for line in generate.inputs(model, cases, args.rungs)), sep="\n")
        return
    if not args.record:
        os.nice(5)  # for hours
        for model in args.model:
            asyncio.run(generate.run(model, cases, args.rungs, threads=args.threads))
    texts_by_model = {model: texts.read(generate.TEXTS / f"{model}.jsonl") for model in args.model}
    if args.record:
        for model, model_texts in texts_by_model.items():
            texts.write_recording(
                model, model_texts, f"temperature 0, at most {REPLY_TOKENS} tokens, tool_choice auto, one thread"
            )
    rows = report.rows(each for model_texts in texts_by_model.values() for each in model_texts)
    print(report.markdown(rows if args.all_rungs else report.published(rows)))


if __name__ == "__main__":
    main()
