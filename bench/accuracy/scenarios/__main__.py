"""Runs the scenarios, stores the runs in .cache/accuracy, and prints the table; runs that are stored are skipped."""

import argparse
import signal
import sys
from pathlib import Path

import msgspec

from bench.accuracy.scenarios import report
from bench.accuracy.scenarios.arms import ARMS, FORGE_PYTHON, running
from bench.accuracy.scenarios.cases import SCENARIOS
from bench.accuracy.scenarios.heads import (
    RECORDED,
    add_head,
    current_head,
    head_lines,
    heads_of,
    read_heads,
    record_heads,
)
from bench.accuracy.scenarios.judge import judge
from bench.accuracy.scenarios.recording import ScenarioRun, read, read_recordings, write_recordings
from bench.accuracy.scenarios.run import post_to, run_scenario

RUNS = Path(".cache/accuracy/scenarios.jsonl")


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy.scenarios", description=__doc__)
    parser.add_argument(
        "--arms",
        nargs="*",
        choices=ARMS,
        default=[],
        help="arms to run, or with --recorded to print (default: run none)",
    )
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--most", type=int, default=100, help="maximum number of new runs for each arm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--runs", type=Path, default=RUNS, help=f"file of the runs (default: {RUNS})")
    parser.add_argument("--forge-python", type=Path, default=FORGE_PYTHON)
    parser.add_argument("--record", action="store_true", help="store the runs for the tests")
    parser.add_argument("--transcripts", action="store_true", help="print each run")
    parser.add_argument(
        "--recorded", action="store_true", help="use the runs that are stored for the tests, and run none"
    )
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the programs are stopped, too
    for arm in () if args.recorded else args.arms:
        _run_arm(arm, args)
    runs = read_recordings() if args.recorded else read(args.runs)
    runs = [run for run in runs if run.scenario in args.scenarios and (not args.arms or run.arm in args.arms)]
    if args.record:
        write_recordings(runs)
        record_heads({run.arm for run in runs}, args.runs)
    if args.transcripts:
        print("\n".join(report.transcripts(runs)))
    print(report.markdown(runs))
    heads = read_heads(RECORDED if args.recorded else heads_of(args.runs))
    print("\n".join(head_lines([*dict.fromkeys(run.arm for run in runs)], heads)))


def _run_arm(name: str, args: argparse.Namespace) -> None:
    stored = {(run.arm, run.scenario, run.seed) for run in read(args.runs)}
    missing = [each for each in args.scenarios if (name, each, args.seed) not in stored][: args.most]
    if not missing:
        return
    sampling = {"model": args.model, "temperature": args.temperature, "seed": args.seed}
    args.runs.parent.mkdir(parents=True, exist_ok=True)
    add_head(name, current_head(name, sampling, args.forge_python), heads_of(args.runs))
    with running(ARMS[name], args.model, args.forge_python) as program, args.runs.open("ab") as file:
        for each in missing:
            run = run_scenario(SCENARIOS[each], name, ARMS[name], post_to(program), program.cpu_s, sampling)
            file.write(msgspec.json.encode(run) + b"\n")
            file.flush()
            _print_run(run)


def _print_run(run: ScenarioRun) -> None:
    verdict = judge(run)
    cpu_s = sum(turn.cpu_s for turn in run.turns)
    print(f"{run.arm} {run.scenario}: {verdict.problem or 'right'} ({run.end}, {cpu_s:.0f} CPU s)", file=sys.stderr)


if __name__ == "__main__":
    main()
