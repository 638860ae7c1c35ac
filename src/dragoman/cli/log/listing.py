"""Lists and follows exchanges."""

import argparse
import json
import time
from collections.abc import Iterable
from typing import Final

from dragoman.cli._records.database import open_records
from dragoman.cli._records.time_range import parse_time
from dragoman.cli.log.line import exchange_line, head_line
from dragoman.core.errors import ConfigError
from dragoman.records.reports.exchange_log import ExchangeLog, LogEntry, LogFilter
from dragoman.records.reports.reading import snapshot

_INTERVAL_S: Final = 0.5
"""Time between two looks for new exchanges."""
_LABELS: Final = ("model", "upstream", "agent", "key", "status")


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
            print(head_line())
        _print(entries, is_json=args.json)
        while args.follow:
            time.sleep(_INTERVAL_S)
            with snapshot(engine) as connection:
                entries = log.read_new(connection, time.time())
            _print(entries, is_json=args.json)
    return 0


def _print(entries: Iterable[LogEntry], *, is_json: bool) -> None:
    for entry in entries:
        print(json.dumps(entry.as_json(), ensure_ascii=True) if is_json else _line(entry), flush=True)


def _line(entry: LogEntry) -> str:
    facts = entry.as_json()
    values = {**entry.values, "failed_attempts": facts.get("failed_attempts")}
    return exchange_line(values, [(call.tool, call.outcome, call.count) for call in entry.calls], entry.ended_s)
