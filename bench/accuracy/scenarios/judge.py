"""Judges recorded runs without a model: their calls are run again on a new state."""

import json
from dataclasses import dataclass

from bench.accuracy.scenarios import facts
from bench.accuracy.scenarios.cases import SCENARIOS
from bench.accuracy.scenarios.episode import Episode
from bench.accuracy.scenarios.recording import ScenarioRun
from bench.accuracy.scenarios.scenario import CHANGES


@dataclass(frozen=True)
class RunVerdict:
    """What a run achieved."""

    problem: str
    """What is wrong; empty: it went right."""
    unsupported: tuple[str, ...]
    """Facts in the text, or in a call that changed something, that neither the user nor a tool stated; and
    `reported success` if the task was not done."""
    is_leaked: bool
    """Whether a text contains a call."""
    failed_calls: int

    @property
    def is_right(self) -> bool:
        """Returns whether the run went right."""
        return not self.problem


def judge(run: ScenarioRun) -> RunVerdict:
    """Returns the verdict.

    Raises:
        ValueError: a result differs from the recorded one: the scenario was changed after the recording.
    """
    scenario = SCENARIOS[run.scenario]
    episode = Episode(scenario)
    sources = [scenario.prompt, *scenario.derived]
    found: list[str] = []
    answer = ""
    for turn in run.turns:
        found += facts.unsupported(turn.text, sources)
        answer = turn.text
        for call in turn.calls:
            changes = len(episode.state[CHANGES])
            result = episode.call(call.name, call.arguments)
            if result != call.result:
                raise ValueError(f"expected the recorded result {call.result}, got {result} - in {run.scenario}")
            if len(episode.state[CHANGES]) > changes:
                found += facts.unsupported(_values(call.arguments), sources)
            sources.append(facts.without_echo(result, call.arguments))
    problem = episode.problem(answer if run.end == "text" else "")
    if not problem and run.end not in ("text", "terminal"):
        problem = f"ended by {run.end}"
    if run.end == "text" and facts.reports_success(answer) and not episode.is_changed_as_expected():
        found.append("reported success")
    is_leaked = any(facts.is_leak(turn.text) for turn in run.turns)
    return RunVerdict(problem, tuple(dict.fromkeys(found)), is_leaked, episode.failed)


def _values(arguments: str) -> str:
    return " ".join(map(str, json.loads(arguments or "{}").values()))
