"""Executes parts of Dragoman by name, under callgrind: each line of standard input is a name and a number, by a tab.

The response is the number of units that it executed: characters of readers, deltas of writers.
"""

import gc
import sys
from collections.abc import Callable
from typing import Final, NamedTuple

from bench.reader import call_text, reader_call
from bench.samples import DIALECTS, arguments, deltas, prose, small_body
from dragoman import dialects, formats
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart

CHARS: Final = 8_000
WRITTEN_CHARS: Final = 2_000
"""Short, as the cost of joining long texts depends on where the allocator puts them."""
STEP: Final = 4


class Work(NamedTuple):
    """Something to execute."""

    call: Callable[[], object]
    units: int


def _readers() -> dict[str, Work]:
    hermes = formats.get("hermes")
    call, text = call_text(hermes, CHARS), prose(CHARS)
    return {
        "reader, character of a tool call": Work(reader_call(hermes, deltas(call, STEP)), len(call)),
        "reader, character of text": Work(reader_call(hermes, deltas(text, STEP)), len(text)),
    }


def _writers(name: str) -> dict[str, Work]:
    dialect = dialects.get(name)
    request = dialect.read_request(small_body(name, stream=True))
    call = [ToolCallDelta(0, part) for part in deltas(arguments(WRITTEN_CHARS), STEP)]
    streams: dict[str, list[AnyEvent]] = {
        "text": [TextDelta(part) for part in deltas(prose(WRITTEN_CHARS), STEP)],
        "arguments": [ToolCallStart(0, "a", "write_file"), *call, ToolCallEnd(0)],
    }

    def writer_call(events: list[AnyEvent]) -> Callable[[], None]:
        def write() -> None:
            writer = dialect.writer(request)
            for event in events:
                writer.feed(event)

        return write

    return {
        f"writer, {name}, delta of {kind}": Work(
            writer_call([Start("a", "m", 0), *middle, Finish("stop")]), len(middle)
        )
        for kind, middle in streams.items()
    }


def work_by_name() -> dict[str, Work]:
    """Returns all work by name."""
    return {**_readers(), **{name: work for dialect in DIALECTS for name, work in _writers(dialect).items()}}


def main() -> None:
    """Serves until the end of standard input."""
    known = work_by_name()
    gc.disable()  # it would begin at another place in each run
    for line in sys.stdin:
        name, times = line.rstrip("\n").split("\t")
        work = known.get(name)
        for _ in range(int(times)):
            assert work, name
            work.call()
        print(work.units * int(times) if work else 0, flush=True)


if __name__ == "__main__":
    main()
