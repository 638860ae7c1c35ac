"""Outcomes of the tool calls of one response, by tool; counted from the events that the client is sent.

    valid         complete, and matches the tool's schema as the model wrote it
    repaired      matches the schema after a repair (docs/warnings.md, `call_repaired`)
    reasked       matches the schema at the second attempt, repaired or not
    unchecked     complete; its arguments were not, or could not be, validated
    invalid       does not match the schema, after repair and re-ask
    incomplete    truncated, or not JSON
    unknown       of a tool that is not offered, or without a tool's name

Each call has one outcome. The empty name collects calls of tools that are not offered, whose names models invent, and
calls that are not in the response: only a warning reports those, without the tool.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias, TypeVar, get_args

from dragoman.core.events import ToolCallEnd

Outcome: TypeAlias = Literal["valid", "repaired", "reasked", "unchecked", "invalid", "incomplete", "unknown"]
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)

FAILED: Final[frozenset[Outcome]] = frozenset({"invalid", "incomplete", "unknown"})
"""Outcomes of calls that the client cannot run."""

NO_TOOL: Final = ""
T = TypeVar("T")

_DROPPED: Final[Mapping[str, Outcome]] = {
    "truncated_call": "incomplete",
    "incomplete_call": "incomplete",
    "unnamed_call": "unknown",
    "unknown_tool": "unknown",
}
"""Warnings about calls that are not in the response."""


class CallOutcomes:
    """Counts the calls of one response."""

    def __init__(self) -> None:
        self.outcomes: dict[tuple[str, Outcome], int] = {}
        """Number of calls by tool and outcome."""
        self.steps: dict[tuple[str, str], int] = {}
        """Number of repairs by tool and name of the repair."""
        self.kinds: dict[tuple[str, str, tuple[str, ...]], int] = {}
        """Number of calls by tool, outcome and repairs; the outcome of intact calls that were left in the text is
        `recovered`.
        """
        self._open: str | None = None
        self._is_recovered = False
        self._invalid = 0
        """Invalid calls that were sent to the client."""

    def begin(self, tool: str) -> None:
        """A call of this tool begins."""
        self._open = tool

    def recover(self) -> None:
        """The next call was left in the text by the server."""
        self._is_recovered = True

    def end(self, event: ToolCallEnd) -> None:
        """The open call is complete."""
        if self._open is not None:
            outcome = _outcome(self._open, event)
            self._count(outcome, event.repairs)
            self._invalid += event.schema_valid is False
            for step in event.repairs:
                _count(self.steps, (self._open, step))
        self._open = None

    def cut(self) -> None:
        """The open call is broken off."""
        if self._open is not None:
            self._count("incomplete")
        self._open = None

    def close(self, warnings: Sequence[str]) -> None:
        """The response is complete: an open call counts as broken off.

        Args:
            warnings: the codes of the response's warnings.
        """
        self.cut()
        for code in warnings:
            if code in _DROPPED:
                self._count_dropped(_DROPPED[code])
        if (dropped := warnings.count("invalid_call") - self._invalid) > 0:
            self._count_dropped("invalid", dropped)

    def _count(self, outcome: Outcome, repairs: tuple[str, ...] = ()) -> None:
        """Counts the open call."""
        tool = self._open or NO_TOOL
        _count(self.outcomes, (tool, outcome))
        is_recovered, self._is_recovered = self._is_recovered and outcome in ("valid", "unchecked"), False
        _count(self.kinds, (tool, "recovered" if is_recovered else outcome, repairs))

    def _count_dropped(self, outcome: Outcome, number: int = 1) -> None:
        """Counts calls that are not in the response."""
        _count(self.outcomes, (NO_TOOL, outcome), number)
        _count(self.kinds, (NO_TOOL, outcome, ()), number)

    def by_tool(self, limit: int) -> dict[str, dict[str, object]]:
        """Returns, for the log, outcomes and repairs of at most `limit` tools."""
        outcomes: dict[str, dict[str, object]] = {}
        for (tool, what), count in self.outcomes.items():
            if tool in outcomes or len(outcomes) < limit:
                outcomes.setdefault(tool, {})[what] = count
        for tool, counts in outcomes.items():
            if steps := {step: count for (named, step), count in self.steps.items() if named == tool}:
                counts["steps"] = steps
        return outcomes


def _count(counts: dict[T, int], key: T, number: int = 1) -> None:
    counts[key] = counts.get(key, 0) + number


def _outcome(tool: str, end: ToolCallEnd) -> Outcome:
    if end.schema_valid is False:
        return "unknown" if tool == NO_TOOL else "invalid"
    if end.reasked:
        return "reasked"
    if end.repairs:
        return "repaired"
    return "unchecked" if end.schema_valid is None else "valid"
