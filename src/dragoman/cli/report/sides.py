"""The period of a report, and what it is compared with."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from dragoman.cli._records.time_range import format_time, parse_time
from dragoman.core.errors import ConfigError, quote
from dragoman.records.reports.grouping import Grouping
from dragoman.records.reports.period import Period

_EXPECTED: Final = "expected `previous`, BEGIN..END, or `version A B`"


class ComparedSide(NamedTuple):
    """The exchanges of one side of a comparison."""

    period: Period
    version: str = ""
    """Only exchanges of this version; "": of all versions."""

    @property
    def name(self) -> str:
        """The side, for people."""
        return f"version {self.version}" if self.version else format_period(self.period)

    def select(self, grouping: Grouping) -> Grouping:
        """Returns the grouping, for the exchanges of this side."""
        if not self.version:
            return grouping
        return Grouping(grouping.by, {**grouping.only, "version": self.version}, grouping.tool)


class Comparison(NamedTuple):
    """What is compared: the earlier or older exchanges, and the later ones."""

    before: ComparedSide
    after: ComparedSide


def parse_period(since: str, until: str, now_s: float) -> Period:
    """Returns the period of the options `--since` and `--until`.

    Raises: ConfigError: one of them is not a time, or the period ends before it begins.
    """
    return _period(parse_time(since, now_s, "--since"), parse_time(until, now_s, "--until"), "--since")


def parse_comparison(values: Sequence[str], period: Period, now_s: float) -> Comparison:
    """Returns the sides of the option `--compare`; the later one has the options' own period.

    Raises: ConfigError: the option is wrong.
    """
    match values:
        case ["previous"]:
            length_s = period.end_s - period.begin_s
            return Comparison(ComparedSide(Period(period.begin_s - length_s, period.begin_s)), ComparedSide(period))
        case ["version", before, after]:
            return Comparison(ComparedSide(period, before), ComparedSide(period, after))
        case [text] if ".." in text:
            begin, _, end = text.partition("..")
            begin_s, end_s = (parse_time(each, now_s, "--compare") for each in (begin, end))
            return Comparison(ComparedSide(_period(begin_s, end_s, "--compare")), ComparedSide(period))
        case _:
            raise ConfigError(f"{_EXPECTED}; got {quote(' '.join(values))} - at --compare")


def format_period(period: Period) -> str:
    """Returns begin and end, for people."""
    return f"{format_time(period.begin_s)} to {format_time(period.end_s)}"


def _period(begin_s: float, end_s: float, option: str) -> Period:
    if begin_s >= end_s:
        raise ConfigError(
            f"expected a begin before the end, got {format_time(begin_s)} to {format_time(end_s)} (UTC) - at {option}"
        )
    return Period(begin_s, end_s)
