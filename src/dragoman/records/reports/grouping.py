"""Into which groups a report divides the exchanges: by which labels, and with which filters."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from dragoman.records.record import COARSE_LABELS

LABELS: Final[Mapping[str, str]] = {
    "model": "upstream_model",
    "requested": "model",
    "upstream": "upstream",
    "mode": "tool_mode",
    "format": "format",
    "agent": "agent",
    "role": "role",
    "key": "key",
    "api": "dialect",
    "version": "version",
    "status": "status",
    "error": "error",
}
"""Columns of the table `series` by the names of the labels."""

TIMES: Final = ("day", "hour")
"""Dimensions that divide the period."""

DIMENSIONS: Final = (*LABELS, "tool", *TIMES)
"""By what a report can divide."""

Group = tuple[str, ...]
"""Values of the dimensions of a report."""


class Grouping(msgspec.Struct, frozen=True):
    """Dimensions and filters of a report."""

    by: tuple[str, ...] = ("model",)
    """Some of `DIMENSIONS`."""
    only: Mapping[str, str] = {}
    """Patterns such as `qwen*` by label, which the exchanges match."""
    tool: str = "*"
    """Pattern of the tools whose calls count."""

    @property
    def has_tool(self) -> bool:
        """Whether only calls are counted, as tokens and time belong to no single tool."""
        return "tool" in self.by

    @property
    def is_coarse(self) -> bool:
        """Whether the sums by day have all the labels."""
        return not self.has_hour and all(
            name in ("tool", "day") or LABELS[name] in COARSE_LABELS for name in (*self.by, *self.only)
        )

    @property
    def has_day(self) -> bool:
        """Whether each day is a group of its own."""
        return "day" in self.by

    @property
    def has_hour(self) -> bool:
        """Whether each hour is a group of its own; no sums by hour are stored."""
        return "hour" in self.by

    @property
    def has_times(self) -> bool:
        """Whether each day or each hour is a group of its own."""
        return self.has_day or self.has_hour

    def select(self, series: Mapping[str, Any]) -> Group | None:
        """Returns the group of exchanges with the labels of this row, "" for tool, day and hour.

        Returns:
            None if the filters leave the exchanges out.
        """
        if not all(matches(label_of(series, name), pattern) for name, pattern in self.only.items()):
            return None
        return tuple(label_of(series, name) if name in LABELS else "" for name in self.by)

    def complete(self, group: Group, *, day: str = "", hour: str = "", tool: str = "") -> Group:
        """Returns the group with day, hour and tool, if they are among the dimensions.

        Args:
            group: the group, with "" in their place.
            day: such as `2026-11-20`.
            hour: such as `2026-11-20T10:00Z`.
            tool: the name of the tool.
        """
        values = {"day": day, "hour": hour, "tool": tool}
        return tuple(values.get(name, value) for name, value in zip(self.by, group, strict=True))


def label_of(series: Mapping[str, Any], name: str) -> str:
    """Returns a label of a row of `series`; the model is named as its upstream does, if that is known."""
    value = series[LABELS[name]]
    return str(value or series["model"] if name == "model" else value)


def matches(value: str, pattern: str) -> bool:
    """Whether the value is the pattern, in which `*` and `?` stand for any characters."""
    return value == pattern or fnmatchcase(value, pattern)


def describe(by: Sequence[str], group: Group) -> dict[str, str]:
    """Returns the values of a group by dimension."""
    return dict(zip(by, group, strict=True))
