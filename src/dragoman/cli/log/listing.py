"""Lists and follows exchanges."""

import argparse
import json
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from dragoman.cli._records.database import open_records
from dragoman.cli._records.time_range import parse_time
from dragoman.cli._terminal import one_line
from dragoman.core.errors import ConfigError
from dragoman.records.reports.exchange_log import ExchangeLog, LogEntry, LogFilter
from dragoman.records.reports.reading import snapshot
from dragoman.records.reports.totals import FAILED_OUTCOMES

_INTERVAL_S: Final = 0.5
"""Time between two looks for new exchanges."""
_LABELS: Final = ("model", "upstream", "agent", "key", "status")
_ID_CHARS: Final = 10
_COLUMNS: Final = (
    ("TIME (UTC)", 19),
    ("ID", _ID_CHARS),
    ("STATUS", -6),
    ("TOTAL", -9),
    ("INPUT", -7),
    ("OUTPUT", -6),
    ("CALLS", -5),
    ("KEY", 10),
    ("AGENT", 12),
    ("MODEL", 24),
    ("UPSTREAM", 10),
    ("PROBLEMS", 0),
)
"""Titles and widths; negative: aligned to the right."""


def run(args: argparse.Namespace) -> int:
    """Prints the last exchanges, and with `--follow` those that end from now on.

    Raises:
        ConfigError: an option is wrong.
        UnreadableRecordsError: the database cannot be read.
    """
    if args.replay:
        raise ConfigError("--replay replays one exchange; name it: dragoman log ID --replay")
    if args.limit < 0:
        raise ConfigError(f"expected a number of exchanges, got {args.limit} - at --limit")
    since_s = None if args.since is None else parse_time(args.since, time.time(), "--since")
    labels = {name: getattr(args, name) for name in _LABELS if getattr(args, name) is not None}
    log = ExchangeLog(LogFilter(labels, args.tool, args.failed, since_s))
    with open_records(args, "reading records") as engine:
        with snapshot(engine) as connection:
            entries = log.read_last(connection, args.limit)
            if args.follow:
                log.read_new(connection, time.time())
        if not args.json:
            print(_row(title for title, _ in _COLUMNS))
        _print(entries, is_json=args.json)
        while args.follow:
            time.sleep(_INTERVAL_S)
            with snapshot(engine) as connection:
                entries = log.read_new(connection, time.time())
            _print(entries, is_json=args.json)
    return 0


def _print(entries: Iterable[LogEntry], *, is_json: bool) -> None:
    for entry in entries:
        print(json.dumps(entry.as_json(), ensure_ascii=True) if is_json else one_line(_line(entry)), flush=True)


def _line(entry: LogEntry) -> str:
    values = entry.values
    return _row(
        [
            datetime.fromtimestamp(entry.ended_s, UTC).strftime("%Y-%m-%d %H:%M:%S"),
            values["id"][:_ID_CHARS],
            str(values["status"] or "-"),
            f"{values['total_ms'] / 1000:,.2f} s",
            *(_number(values[f"{name}_tokens"]) for name in ("input", "output")),
            _number(sum(call.count for call in entry.calls)),
            *(values[name] or "-" for name in ("key", "agent")),
            values["upstream_model"] or values["model"] or "-",
            values["upstream"] or "-",
            ", ".join(_problems(entry)),
        ]
    )


def _problems(entry: LogEntry) -> Iterable[str]:
    """Yields the error, the failed attempts and the failed calls."""
    facts = entry.as_json()
    if values_error := facts.get("error"):
        yield values_error
    for backend, reason in facts.get("failed_attempts", ()):
        yield f"{backend}: {reason}"
    for call in entry.calls:
        if call.outcome in FAILED_OUTCOMES:
            yield f"{call.tool or 'unknown tool'} {call.outcome}{f' x{call.count}' if call.count > 1 else ''}"


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _row(cells: Iterable[str]) -> str:
    pairs = zip(cells, _COLUMNS, strict=True)
    return "  ".join(cell.rjust(-width) if width < 0 else cell.ljust(width) for cell, (_, width) in pairs).rstrip()
