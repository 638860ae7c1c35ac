"""What `dragoman report` reads, and how it prints it."""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from shutil import get_terminal_size
from typing import Any, Final

from dragoman.cli._common import print_status
from dragoman.cli._records.database import open_records
from dragoman.cli._terminal import printable
from dragoman.cli.report.export import write_csv, write_parquet
from dragoman.cli.report.labels import DIMENSIONS, FILTERS
from dragoman.cli.report.rows import RowSet, read_rows
from dragoman.cli.report.sides import Comparison, parse_comparison, parse_period
from dragoman.cli.report.tables import format_rows, format_sides, format_summary
from dragoman.core.errors import ConfigError, nearest
from dragoman.records.reports.grouping import Group, Grouping
from dragoman.records.reports.period import Period
from dragoman.records.reports.reading import snapshot
from dragoman.records.reports.report import BY_TOOL, Worst, find_worst_calls, read_table
from dragoman.records.reports.significance import Outlier
from dragoman.records.reports.source import RecordSource
from dragoman.records.reports.totals import ExchangeTotals
from dragoman.records.reports.worst_text import format_worst

_USUAL: Final = (("model", "upstream", "format", "agent"), ("model", "tool"))
"""Dimensions of the tables that are printed without `--by`."""


class _Report:
    """What was read."""

    def __init__(self, args: argparse.Namespace, now_s: float) -> None:
        """Raises: ConfigError: an option is wrong."""
        if args.limit < 0:
            raise ConfigError(f"expected a number of rows, got {args.limit} - at --limit")
        only = {name: getattr(args, name) for name in FILTERS if getattr(args, name) is not None}
        usual = _USUAL if not (args.csv or args.parquet) else _USUAL[:1]
        self.groupings = [Grouping(by, only, args.tool) for by in ((_dimensions(args.by),) if args.by else usual)]
        self.period: Period = parse_period(args.since, args.until, now_s)
        self.comparison: Comparison | None = None
        if args.compare:
            self.comparison = parse_comparison(args.compare, self.period, now_s)
        self.row_sets: list[RowSet] = []
        self.worst: Worst | None = None
        self.everything: ExchangeTotals | None = None

    def read(self, args: argparse.Namespace) -> None:
        """Reads the records."""
        with open_records(args, "reporting") as engine, snapshot(engine) as connection:
            source = RecordSource(connection)
            for grouping in self.groupings:
                self.row_sets.append(read_rows(source, self.period, grouping, self.comparison))
            self.worst = find_worst_calls(self._read(source, BY_TOOL))
            undivided = next((each for each in self.row_sets if self._is_all(each)), None)
            groups = self._read(source, ()) if undivided is None else undivided.groups
        for totals in groups.values():
            self.everything = self.everything or ExchangeTotals()
            self.everything.add(totals)

    def _read(self, source: RecordSource, by: tuple[str, ...]) -> Mapping[Group, ExchangeTotals]:
        """Returns the totals by these dimensions, of the period and with the filters of the report."""
        for row_set in self.row_sets:
            if row_set.grouping.by == by and not self.comparison:
                return row_set.groups
        first = self.groupings[0]
        return read_table(source, self.period, Grouping(by, first.only, first.tool)).groups

    def _is_all(self, row_set: RowSet) -> bool:
        """Whether the groups of these rows contain all numbers of the period."""
        return not row_set.grouping.has_tool and not self.comparison

    def as_json(self) -> dict[str, Any]:
        """Returns the report as values for JSON."""
        report: dict[str, Any] = _times(self.period)
        if self.comparison:
            report["compare"] = {
                name: {**_times(side.period), "version": side.version or None}
                for name, side in self.comparison._asdict().items()
            }
        report["tables"] = [{"by": each.grouping.by, "rows": each.rows} for each in self.row_sets]
        if self.worst:
            found = {"model": self.worst.model, "tool": self.worst.tool}
            report["worst"] = {name: _outlier(outlier) for name, outlier in found.items()}
        return {**report, "notes": list(self.notes())}

    def as_text(self, limit: int, width: int | None) -> str:
        """Returns the report as text.

        Args:
            limit: maximum number of groups in a table; 0: all.
            width: columns of the terminal; None: there is none.
        """
        sides = format_sides(self.comparison) if self.comparison else ""
        tables = [format_rows(row_set, limit, width) for row_set in self.row_sets]
        notes = "\n".join(f"Note: {note}" for note in self.notes())
        worst = "\n".join(format_worst(self.worst)) if self.worst else ""
        changes = "*: a significant change (Fisher's exact test, p < 0.01)" if self.comparison else ""
        parts = [format_summary(self.period, self.everything), sides, *tables, changes, notes, worst]
        return printable("\n\n".join(filter(None, parts)))

    def notes(self) -> Iterator[str]:
        """Yields what to know about the numbers."""
        yield from dict.fromkeys(note for row_set in self.row_sets for note in row_set.notes)


def run(args: argparse.Namespace) -> int:
    """Prints or writes the report.

    Raises:
        ConfigError: an option is wrong, or an extra is missing.
        UnreadableRecordsError: the database cannot be read.
    """
    report = _Report(args, time.time())
    report.read(args)
    if args.csv:
        write_csv(report.row_sets[0])
    elif args.parquet:
        write_parquet(args.parquet, report.row_sets[0])
        print_status(f"{len(report.row_sets[0].rows)} rows in {args.parquet}")
    elif args.json:
        print(json.dumps(report.as_json(), indent=2, ensure_ascii=False))
    else:
        print(report.as_text(args.limit, get_terminal_size().columns if sys.stdout.isatty() else None))
    return 0


def _times(period: Period) -> dict[str, str]:
    begin, end = (datetime.fromtimestamp(time_s, UTC).isoformat() for time_s in (period.begin_s, period.end_s))
    return {"since": begin, "until": end}


def _outlier(outlier: Outlier[str] | None) -> dict[str, Any] | None:
    if outlier is None:
        return None
    return {
        "name": outlier.name,
        "calls": outlier.counts.calls,
        "failed": outlier.counts.failed,
        "failed_share": round(outlier.counts.share, 6),
        "failed_share_of_others": round(outlier.others.share, 6),
        "probability": outlier.probability,
    }


def _dimensions(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in DIMENSIONS:
            known = ", ".join(DIMENSIONS)
            raise ConfigError(f"expected labels ({known}), got {name!r}{nearest(name, DIMENSIONS)} - at --by")
    return names
