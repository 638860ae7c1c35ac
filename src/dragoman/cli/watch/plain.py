"""One line for each exchange that ends, for pipes and for terminals without a screen of their own."""

import json
import sys
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from dragoman.cli._common import print_status
from dragoman.cli.log.line import exchange_line, head_line
from dragoman.cli.watch.feed import TrafficFeed
from dragoman.cli.watch.traffic_list import TrafficList
from dragoman.console.api import TrafficRow

_REMEMBERED: Final = 2_000
"""Number of rows whose ids are remembered, so that none is printed twice."""


async def print_exchanges(feed: TrafficFeed, query: str, *, only_failed: bool, is_json: bool) -> None:
    """Prints exchanges as they end, without an end.

    Args:
        feed: the exchanges.
        query: words that all must occur in an exchange; "": all exchanges are printed.
        only_failed: whether only failed ones are printed.
        is_json: whether each line is a JSON object.
    """
    rows = EndedRows(query, only_failed=only_failed)
    write: Callable[[TrafficRow], str] = _json_line if is_json else _line
    if not is_json:
        print(head_line(), flush=True)
    is_first, problem = True, ""
    async for update in feed.updates():
        if update.problem:
            if update.problem != problem:
                print_status(f"{update.problem}; connecting again")
            problem = update.problem
            continue
        problem = ""
        if update.state is not None:
            print_status(f"watching the gateway at {feed.address.url}")
        ended = rows.take(update.rows)
        for row in () if is_first else ended:
            print(write(row), flush=True)
        is_first = False


class EndedRows:
    """Selects the rows of exchanges that have ended, each one once."""

    def __init__(self, query: str, *, only_failed: bool) -> None:
        """Args:
        query: words that all must occur in an exchange.
        only_failed: whether only failed ones are selected.
        """
        self._rows = TrafficList(_REMEMBERED)
        self._rows.query, self._rows.only_failed = query, only_failed
        self._ended_ids: dict[str, None] = {}
        """Ids of the rows that were returned."""

    def take(self, rows: Iterable[TrafficRow]) -> list[TrafficRow]:
        """Returns those that have ended since the last call, the oldest first.

        Args:
            rows: the rows that have changed.
        """
        self._rows.add(rows)
        ended = [row for row in self._rows.visible if row.state != "running" and row.id not in self._ended_ids]
        self._ended_ids |= dict.fromkeys(row.id for row in ended)
        for id in list(self._ended_ids)[: -2 * _REMEMBERED]:
            del self._ended_ids[id]
        return ended[::-1]


def _line(row: TrafficRow) -> str:
    values = msgspec.structs.asdict(row) | {"error": row.error.partition(":")[0]}
    ended_s = row.began_s + (row.total_ms or 0) / 1000
    return exchange_line(values, [(call.tool, call.outcome, call.count) for call in row.calls], ended_s)


def _json_line(row: TrafficRow) -> str:
    return json.dumps(msgspec.to_builtins(row))  # ASCII, so that a terminal is safe


def has_screen() -> bool:
    """Whether input and output are a terminal; Textual draws on standard error."""
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
