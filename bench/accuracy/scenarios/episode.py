"""Runs the calls of one scenario on its state, and decides whether it went right."""

import json
from collections import Counter
from typing import Any

from jsonschema import Draft202012Validator

from bench.accuracy.scenarios.scenario import CHANGES, ToolError, ToolScenario


class Episode:
    """One run of a scenario: its state, and what its tools returned."""

    def __init__(self, scenario: ToolScenario) -> None:
        self.scenario = scenario
        self.state = scenario.state()
        self.succeeded: list[str] = []
        """Names of the tools that succeeded, in order."""
        self.failed = 0
        """Number of calls that got an error."""
        self._tools = {tool.name: tool for tool in scenario.tools}

    def call(self, name: str, arguments: str) -> str:
        """Runs a call and returns its result for the model, as JSON.

        Args:
            name: name of the tool, as the model wrote it.
            arguments: its arguments, as the model wrote them.
        """
        try:
            result = self._run(name, arguments)
        except ToolError as error:
            self.failed += 1
            return json.dumps({"error": str(error)})
        self.succeeded.append(name)
        return json.dumps(result)

    @property
    def is_over(self) -> bool:
        """Returns whether a terminal tool succeeded."""
        return any(name in self.scenario.terminal for name in self.succeeded)

    def is_changed_as_expected(self) -> bool:
        """Returns whether each step succeeded, and the state has exactly the expected changes."""
        return not self._missing_steps() and Counter(self.state[CHANGES]) == Counter(self.scenario.changes)

    def problem(self, answer: str) -> str:
        """Returns what is wrong after the run; empty: it went right.

        Args:
            answer: the final text.
        """
        if missing := self._missing_steps():
            return f"without {', '.join(missing)}"
        if not self.scenario.steps and (self.succeeded or self.failed):
            return "a call where no tool fits"
        if Counter(self.state[CHANGES]) != Counter(self.scenario.changes):
            return f"changes {self.state[CHANGES]}"
        text = answer.lower()
        for fact in self.scenario.facts:
            texts = (fact,) if isinstance(fact, str) else fact
            if not any(each.lower() in text for each in texts):
                return f"does not report {texts[0]!r}"
        excess = [each for each in self.scenario.forbidden_facts if each.lower() in text]
        if excess:
            return f"reports {excess[0]!r}"
        if not self.scenario.terminal and not text.strip():
            return "an empty answer"
        return ""

    def _missing_steps(self) -> Counter[str]:
        return Counter(self.scenario.steps) - Counter(self.succeeded)

    def _run(self, name: str, arguments: str) -> Any:
        if name not in self._tools:
            raise ToolError(f"The tool {name!r} does not exist. Tools: {', '.join(self._tools)}.")
        try:
            values = json.loads(arguments or "{}")
        except ValueError as error:
            raise ToolError(f"The arguments are not valid JSON: {error}.") from None
        tool = self._tools[name]
        for problem in Draft202012Validator(tool.parameters).iter_errors(values):
            raise ToolError(f"Invalid arguments of {name}: {problem.message}.")
        return tool.run(self.state, **values)
