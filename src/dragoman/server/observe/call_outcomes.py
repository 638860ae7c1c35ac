"""What became of the calls of one answer, by tool: counted of the events that its client is sent.

    valid         whole, and of the tool's schema as the model wrote it
    mended        of the schema once something was set right (docs/warnings.md, `call_repaired`)
    reasked       of the schema at the second try, mended or not
    unchecked     whole; its arguments were not, or could not be, held against the schema
    invalid       not of the schema, also after all that
    incomplete    cut off, or no JSON
    unknown       of a tool that is not offered, or of none

Each call has one of these. Under the empty name stand calls of what is not offered, whose names models make up, and
those that did not become a call in the answer, of which only a warning tells, without the tool.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias, get_args

from dragoman.core.events import ToolCallEnd

Outcome: TypeAlias = Literal["valid", "mended", "reasked", "unchecked", "invalid", "incomplete", "unknown"]
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)

FAILED: Final[frozenset[Outcome]] = frozenset({"invalid", "incomplete", "unknown"})
"""Nobody can run these."""

NO_TOOL: Final = ""

_DROPPED: Final[Mapping[str, Outcome]] = {
    "truncated_call": "incomplete",
    "incomplete_call": "incomplete",
    "unnamed_call": "unknown",
    "unknown_tool": "unknown",
}
"""Warnings of calls that are not in the answer."""


class Tally:
    """Of one answer."""

    def __init__(self) -> None:
        self.outcomes: Counter[tuple[str, Outcome]] = Counter()
        """By tool and outcome."""
        self.steps: Counter[tuple[str, str]] = Counter()
        """What was set right, by tool and step."""
        self._open: str | None = None
        self._invalid = 0
        """Calls that went out all the same."""

    def begin(self, tool: str) -> None:
        """A call of it begins."""
        self._open = tool

    def end(self, event: ToolCallEnd) -> None:
        """The open call is whole."""
        if self._open is not None:
            self.outcomes[self._open, _outcome(self._open, event)] += 1
            self._invalid += event.valid is False
            for step in event.mended:
                self.steps[self._open, step] += 1
        self._open = None

    def cut(self) -> None:
        """The open call is broken."""
        if self._open is not None:
            self.outcomes[self._open, "incomplete"] += 1
        self._open = None

    def close(self, warnings: Sequence[str]) -> None:
        """The answer is over; an open call is broken, and these were its warnings."""
        self.cut()
        for code in warnings:
            if code in _DROPPED:
                self.outcomes[NO_TOOL, _DROPPED[code]] += 1
        if (dropped := warnings.count("invalid_call") - self._invalid) > 0:
            self.outcomes[NO_TOOL, "invalid"] += dropped

    def by_tool(self, limit: int) -> dict[str, dict[str, object]]:
        """For the log: of each tool how many calls came to what, and which steps were taken; of so many tools."""
        told: dict[str, dict[str, object]] = {}
        for (tool, what), count in self.outcomes.items():
            if tool in told or len(told) < limit:
                told.setdefault(tool, {})[what] = count
        for tool, of in told.items():
            if steps := {step: count for (named, step), count in self.steps.items() if named == tool}:
                of["steps"] = steps
        return told


def _outcome(tool: str, end: ToolCallEnd) -> Outcome:
    if end.valid is False:
        return "unknown" if tool == NO_TOOL else "invalid"
    if end.reasked:
        return "reasked"
    if end.mended:
        return "mended"
    return "unchecked" if end.valid is None else "valid"
