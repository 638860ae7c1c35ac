"""What records cost: CPU time of a request and of writing, and the size of the database.

    python -m bench.records                      10^6 records in an SQLite file, deleted at the end
    python -m bench.records --records 20000

Requests are measured in pairs: blocks with records and without follow each other, in one process.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Iterator, MutableMapping
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.report import records
from bench.samples import small_body
from bench.server import UNBUFFERED, ScriptedBackend
from dragoman import dialects
from dragoman.config.server import ServerConfig
from dragoman.gateway.gateway import Gateway
from dragoman.records import schema
from dragoman.records.batch import Batch
from dragoman.records.config import RecordsConfig
from dragoman.records.database import locate, open_for_writing
from dragoman.records.writer import RecordWriter
from dragoman.server.app import App

BLOCKS: Final = 40
BLOCK: Final = 250
"""Requests of a block; with records, it is followed by writing them, in one batch."""


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description="Measure what records cost.")
    parser.add_argument("--records", type=int, default=1_000_000, help="number of records (default: a million)")
    count = parser.parse_args().records
    with TemporaryDirectory() as folder:
        for line in (
            *requests(Path(folder)),
            *writing(Path(folder), min(count, 50_000)),
            *filling(Path(folder), count),
        ):
            print(line, flush=True)


def requests(folder: Path) -> Iterator[str]:
    """Yields the CPU time that records add to a request: in the event loop, and in the whole process."""
    pairs = asyncio.run(_pairs(folder))
    loop, total = (statistics.median(on[n] - off[n] for on, off in pairs) / BLOCK * 1e6 for n in (0, 1))
    without = statistics.median(off[1] for _, off in pairs) / BLOCK * 1e6
    yield f"request without records        {without:7.0f} µs of CPU"
    yield f"records add, event loop        {loop:7.1f} µs"
    yield f"records add, with writing      {total:7.1f} µs (batches of {BLOCK})"


async def _pairs(folder: Path) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Returns, with records and without, the CPU time of the loop's thread and of the process for each block."""
    dialect = dialects.get("openai_chat")
    body = small_body(dialect.name, "call-burst", stream=True, max_tokens=40)
    writer = RecordWriter(RecordsConfig(url=f"sqlite:///{folder}/requests.sqlite"), batch_delay_s=3600)
    gateways = [Gateway([ScriptedBackend()], policy=UNBUFFERED) for _ in range(2)]
    with_records = App(gateways[0], ServerConfig(), records=writer)
    without = App(gateways[1], ServerConfig())
    pairs = []
    for number in range(BLOCKS + 2):
        spent = {}
        for app in (with_records, without) if number % 2 else (without, with_records):
            began = time.thread_time(), time.process_time()
            for _ in range(BLOCK):
                await _send(app, dialect.path, body)
            loop_s = time.thread_time() - began[0]
            if app is with_records:
                await asyncio.to_thread(writer._write_all)
            spent[app] = loop_s, time.process_time() - began[1]
        pairs.append((spent[with_records], spent[without]))
    await asyncio.to_thread(writer.close)
    return pairs[2:]  # the first ones import packages


async def _send(app: App, path: str, body: bytes) -> None:
    parts = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> MutableMapping[str, Any]:
        if (part := next(parts, None)) is not None:
            return part
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: MutableMapping[str, Any]) -> None:
        """Discards the response."""

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    await app({"type": "http", "method": "POST", "path": path, "headers": headers}, receive, send)


def writing(folder: Path, count: int) -> Iterator[str]:
    """Yields the CPU time of writing a record, by the size of the batches."""
    for size in (1, 10, 100, 1000):
        spent_s, _ = _fill(folder / f"batches{size}.sqlite", min(count, size * 200), size)
        yield f"writing, batches of {size:<4}       {spent_s * 1e6:7.1f} µs of CPU for each record"


def filling(folder: Path, count: int) -> Iterator[str]:
    """Yields time and size of a database with so many records."""
    path = folder / "all.sqlite"
    spent_s, passed_s = _fill(path, count, 1000)
    size = path.stat().st_size
    each = f"{spent_s * 1e6:.1f} µs of CPU and {size / count:.0f} bytes for each record"
    yield f"{count} records: {passed_s:.0f} s, {size / 1e6:.0f} MB; {each}"


def _fill(path: Path, count: int, size: int) -> tuple[float, float]:
    """Writes records; returns the CPU seconds for each, and the seconds in total."""
    engine = open_for_writing(locate(f"sqlite:///{path}"))
    cpu_s = passed_s = 0.0
    source = records(count, 1_790_000_000)
    while rows := list(islice(source, size)):
        began = time.process_time(), time.perf_counter()
        batch = Batch()
        for row in rows:
            batch.add(row, schema.first_number(row.ended_s))
        with engine.begin() as connection:
            batch.write(connection)
        cpu_s += time.process_time() - began[0]
        passed_s += time.perf_counter() - began[1]
    engine.dispose()
    return cpu_s / count, passed_s


if __name__ == "__main__":
    main()
