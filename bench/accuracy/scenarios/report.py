"""Tables and transcripts of recorded runs."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from bench.accuracy.scenarios.arms import ARMS
from bench.accuracy.scenarios.judge import judge
from bench.accuracy.scenarios.recording import ScenarioRun

_Z: Final = 1.96


def wilson(successes: int, count: int) -> tuple[float, float]:
    """Returns the 95 % confidence interval of a share, by Wilson's score."""
    if not count:
        return 0.0, 1.0
    share = successes / count
    middle = share + _Z**2 / (2 * count)
    width = _Z * math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
    scale = 1 + _Z**2 / count
    return (middle - width) / scale, (middle + width) / scale


def markdown(runs: Sequence[ScenarioRun]) -> str:
    """Returns the table of docs/accuracy.md, of the tasks that all these arms ran."""
    arms = [name for name in ARMS if any(run.arm == name for run in runs)]
    common = common_tasks(runs)
    heads = ["right", "95 % interval", "invented facts", "as text", "refused calls"]
    heads += ["turns", "read", "written", "CPU s"]
    lines = [f"| arm | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    if common:
        lines += [
            _line(name, [run for run in runs if run.arm == name and (run.scenario, run.seed) in common])
            for name in arms
        ]
    return "\n".join(lines) + "\n"


def common_tasks(runs: Sequence[ScenarioRun]) -> set[tuple[str, int]]:
    """Returns the names and seeds of the tasks that each arm of these runs has."""
    ran: dict[str, set[tuple[str, int]]] = {}
    for run in runs:
        ran.setdefault(run.arm, set()).add((run.scenario, run.seed))
    return set.intersection(*ran.values()) if ran else set()


def _line(name: str, runs: Sequence[ScenarioRun]) -> str:
    verdicts = [judge(run) for run in runs]
    count = len(runs)
    right = sum(verdict.is_right for verdict in verdicts)
    low, high = wilson(right, count)
    turns = [turn for run in runs for turn in run.turns]
    cells = [
        f"{right} of {count}",
        f"{low:.0%} to {high:.0%}".replace("%", " %"),
        str(sum(bool(verdict.unsupported) for verdict in verdicts)),
        str(sum(verdict.is_leaked for verdict in verdicts)),
        str(sum(verdict.failed_calls for verdict in verdicts)),
        f"{len(turns) / count:.1f}",
        f"{sum(turn.input_tokens for turn in turns) / count:.0f}",
        f"{sum(turn.output_tokens for turn in turns) / count:.0f}",
        f"{sum(turn.cpu_s for turn in turns) / count:.1f}",
    ]
    return f"| {ARMS[name].title} | {' | '.join(cells)} |"


def transcripts(runs: Iterable[ScenarioRun]) -> Iterator[str]:
    """Yields each run as readable text."""
    for run in runs:
        verdict = judge(run)
        yield f"\n== {run.scenario} · {run.arm} · seed {run.seed} · {verdict.problem or 'right'} · ended by {run.end}"
        if verdict.unsupported:
            yield f"   invented: {', '.join(verdict.unsupported)}"
        for turn in run.turns:
            if turn.text:
                yield f"   text    {' '.join(turn.text.split())}"
            for call in turn.calls:
                yield f"   call    {call.name} {call.arguments}"
                yield f"   result  {call.result}"
