"""Shows one exchange, and opens its capture."""

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote as quote_for_shell
from typing import Any, Final

from dragoman import cli, compose
from dragoman import config as settings
from dragoman.cli._records.database import open_records
from dragoman.cli._terminal import one_line
from dragoman.core.errors import ConfigError, quote
from dragoman.records.reports.exchange_log import LogCall, LogEntry, find_exchanges
from dragoman.records.reports.reading import UnreadableRecordsError, snapshot

_GROUPS: Final[Mapping[str, str]] = {
    "client": "key agent role session dialect stream",
    "model": "model alias upstream upstream_model tool_mode format passthrough",
    "result": "status finish error error_message warnings attempts failed_attempts",
    "tokens": "input_tokens cached_tokens output_tokens reasoning_tokens cost_usd tools_offered",
    "time": "queue_ms prompt_ms first_ms total_ms",
}
"""Columns by the group under which they are printed."""


def run(args: argparse.Namespace) -> int:
    """Prints one exchange, or replays its capture.

    Raises:
        ConfigError: the options contradict each other, or the capture does not exist.
        UnreadableRecordsError: the database cannot be read, or there is no such exchange.
    """
    if args.follow:
        raise ConfigError("--follow is for the list of exchanges; leave out ID")
    with open_records(args, "reading records") as engine, snapshot(engine) as connection:
        entries = find_exchanges(connection, args.id)
    if not entries:
        raise UnreadableRecordsError(f"expected the id of a recorded exchange, got {quote(args.id)}; see: dragoman log")
    if len(entries) > 1:
        ids = ", ".join(entry.values["id"] for entry in entries)
        raise UnreadableRecordsError(f"{quote(args.id)} is the beginning of several ids: {ids}")
    (entry,) = entries
    captured = entry.values["captured"]
    path = _capture_path(args, captured) if captured else None
    if args.replay:
        if path is None or not path.is_dir():
            raise ConfigError(_missing_capture(captured, path))
        return cli.main(["replay", str(path)])
    if args.json:
        print(json.dumps(entry.as_json(), indent=2))
    else:
        print("\n".join(one_line(line) for line in _lines(entry, path)))
    return 0


def _lines(entry: LogEntry, capture: Path | None) -> Iterator[str]:
    facts = entry.as_json()
    ended = datetime.fromtimestamp(entry.ended_s, UTC).isoformat(" ", "milliseconds")
    yield f"{facts['id']}, ended {ended}, Dragoman {facts.get('version', '-')}"
    for title, names in _GROUPS.items():
        found = [(name, facts[name]) for name in names.split() if facts.get(name) not in (None, "", False, [])]
        if found:
            yield f"  {title:<8}{', '.join(f'{name} {_text(value)}' for name, value in found)}"
    for title, call in zip(("calls", *("",) * len(entry.calls)), entry.calls, strict=False):
        yield f"  {title:<8}{_call(call)}"
    if capture is not None:
        yield f"  {'replay':<8}dragoman replay {quote_for_shell(str(capture))}"


def _call(call: LogCall) -> str:
    repairs = f" ({', '.join(call.repairs)})" if call.repairs else ""
    return (
        f"{call.tool or '(a tool that was not offered)'}: {call.outcome}{repairs}{f' x{call.count}' * (call.count > 1)}"
    )


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(": ".join(each) if isinstance(each, list) else str(each) for each in value)
    return f"{value:,}" if isinstance(value, int) and value is not True else str(value)


def _capture_path(args: argparse.Namespace, name: str) -> Path | None:
    """Returns the folder of a capture; None: the folder of the captures is not known."""
    folder = args.captures
    if folder is None:
        config, _ = settings.load(compose.settings_path(args.config), os.environ, {})
        folder = Path(config.capture.dir).expanduser() if config.capture.dir else None
    return None if folder is None else folder / name


def _missing_capture(name: str | None, path: Path | None) -> str:
    if not name:
        return "this exchange was not captured; `dragoman serve --capture DIR` captures all that follow"
    if path is None:
        return f"the exchange was captured as {name}; name the folder of the captures: --captures DIR"
    return f"expected the capture of this exchange in {path}, got no such folder: captures are deleted after some time"
