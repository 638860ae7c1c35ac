"""Tasks of `multi_turn_base`: what the user asks in each turn, the tools, their execution, and the verdict.

Source: https://pypi.org/project/bfcl-eval/ 2026.3.23, `data/`, `eval_checker/multi_turn_eval/`.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from bench.accuracy import bfcl
from dragoman.core.messages import Tool

CATEGORY = "multi_turn_base"
CLASSES: Mapping[str, str] = {
    "GorillaFileSystem": "gorilla_file_system",
    "VehicleControlAPI": "vehicle_control",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
}
"""Simulated systems that a task can use alone, and the files with their tools; others need packages that it lacks."""
EACH = 3
"""Tasks of each system: the first that offer all of its tools, so that the prompts begin equally."""

Call: TypeAlias = tuple[str, str]
"""Name of a tool, and its arguments as JSON."""
Steps: TypeAlias = Sequence[Sequence[Call]]
"""The calls of one turn, by answer of the model."""
_runs = itertools.count()


@dataclass(frozen=True)
class Task:
    """A conversation that the user leads through several turns."""

    id: str
    turns: tuple[str, ...]
    """What the user writes."""
    tools: tuple[Tool, ...]


@cache
def tasks() -> tuple[Task, ...]:
    """Returns the first tasks of each system."""
    return tuple(task for name in CLASSES for task in itertools.islice(_tasks_of(name), EACH))


def _tasks_of(name: str) -> Iterator[Task]:
    for row in bfcl.rows(f"{CATEGORY}.json"):
        if row["involved_classes"] == [name] and not row.get("excluded_function"):
            turns = tuple("\n".join(message["content"] for message in turn) for turn in row["question"])
            yield Task(row["id"], turns, tuple(map(bfcl.tool_of, _functions(CLASSES[name]))))


@cache
def _functions(file: str) -> list[dict[str, Any]]:
    path = bfcl.folder() / "data" / "multi_turn_func_doc" / f"{file}.json"
    return [json.loads(line) for line in path.read_text().splitlines()]


class SimulatedSystem:
    """The simulated system of one run of a task."""

    def __init__(self, task: Task) -> None:
        self._row = next(row for row in bfcl.rows(f"{CATEGORY}.json") if row["id"] == task.id)
        self._names = {tool.name for tool in task.tools}
        self._run = f"run{next(_runs)}"  # the package keeps the systems by this name

    def execute(self, call: Call) -> str:
        """Runs a call and returns its result, or an error, for the model."""
        source = as_source(call, self._names)
        if not source:
            return json.dumps({"error": f"expected a call of one of the tools with named arguments, got {call[0]}"})
        from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call

        results, _ = execute_multi_turn_func_call(
            [source], self._row["initial_config"], self._row["involved_classes"], self._run, self._row["id"]
        )
        return str(results[0])


def as_source(call: Call, names: set[str]) -> str:
    """Returns a call in the form of the package, which evaluates it; empty: it is not a call of these tools."""
    name, arguments = call
    try:
        values = json.loads(arguments or "{}")
    except ValueError:
        return ""
    if name not in names or not isinstance(values, dict) or not all(key.isidentifier() for key in values):
        return ""
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in values.items())})"


def problem(task: Task, turns: Sequence[Steps]) -> str:
    """Returns why the checker rejects the calls of a task; empty: it accepts them.

    Args:
        task: the task.
        turns: the calls of each turn.
    """
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

    row = next(row for row in bfcl.rows(f"{CATEGORY}.json") if row["id"] == task.id)
    names = {tool.name for tool in task.tools}
    sources = [[[s for call in step if (s := as_source(call, names))] for step in turn] for turn in turns]
    verdict = multi_turn_checker(sources, truth(task), row, CATEGORY, f"check{next(_runs)}")
    return "" if verdict["valid"] else str(verdict["error_type"]).removeprefix("multi_turn:")


def truth(task: Task) -> list[list[str]]:
    """Returns the right calls of each turn, as source."""
    right: list[list[str]] = bfcl.answers(CATEGORY)[task.id]
    return right
