"""Reports over 10^6 records: how long the usual ones take, and how large the database is.

    python -m bench.report                              an SQLite file, deleted at the end
    python -m bench.report --records 100000 --keep FILE
    python -m bench.report --url postgresql://…/empty

The records are those of a team for thirty days: 20 people with three agents that have several roles, six models on four
upstreams, a tool call in most responses. They are written by the code that the gateway uses.
"""

import argparse
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from dragoman.records import schema
from dragoman.records.batch import Batch
from dragoman.records.database import locate, open_for_writing
from dragoman.records.record import CallKind, ExchangeRecord, Series

DAYS: Final = 30
BATCH: Final = 500
KEYS: Final = [f"person-{number}" for number in range(20)]
MODELS: Final = (
    ("claude-sonnet-5", "anthropic", "native", "", 0.001),
    ("gpt-6", "openai", "native", "", 0.002),
    ("gpt-6-mini", "openai", "native", "", 0.004),
    ("qwen3-coder-30b", "vllm", "native", "", 0.01),
    ("qwen2.5-coder-7b", "vllm", "prompt", "hermes", 0.03),
    ("small-model", "laptop", "prompt", "hermes", 0.25),
)
"""Name, upstream, tool mode, format, failed share of the calls."""
AGENTS: Final = (
    ("claude-code", "anthropic_messages", ("Bash", "Read", "Edit", "Grep", "Write", "Task")),
    ("codex", "openai_responses", ("shell", "apply_patch", "update_plan")),
    ("opencode", "openai_chat", ("bash", "read", "edit", "glob")),
)
ROLES: Final = ("main", "main", "main", "subagent", "subagent", "title")


def records(count: int, end_s: float) -> Iterator[ExchangeRecord]:
    """Yields records that end before `end_s`, in the order of time; always the same ones."""
    chance = random.Random(23)
    for number in range(count):
        model, upstream, mode, format, failed = chance.choice(MODELS)
        agent, dialect, tools = chance.choice(AGENTS)
        broken = chance.random() < 0.01
        calls = 0 if broken else chance.choice((0, 1, 1, 1, 2))
        total_ms = int(chance.lognormvariate(8, 1))
        input_tokens = chance.randrange(1_000, 80_000)
        series = Series(
            version="1.2.0" if number * 2 < count else "1.3.0",
            dialect=dialect,
            key=chance.choice(KEYS),
            agent=agent,
            role=chance.choice(ROLES),
            model=model,
            upstream=upstream,
            upstream_model=model,
            tool_mode=mode,
            format=format,
            stream=True,
            finish="" if broken else "tool_use" if calls else "stop",
            status=502 if broken else 200,
            error="UpstreamError" if broken else "",
        )
        yield ExchangeRecord(
            end_s - DAYS * schema.DAY_S * (count - number) / count,
            f"{number:024x}",
            series,
            tuple((_call(chance, tools, failed), 1) for _ in range(calls)),
            session=f"session-{number // 40}",
            attempts=2 if broken else 1,
            failed_attempts=[(upstream, "502")] if broken else None,
            input_tokens=input_tokens,
            cached_tokens=int(input_tokens * chance.random()),
            output_tokens=chance.randrange(10, 2_000),
            tools_offered=len(tools),
            first_ms=None if broken else int(total_ms * chance.random() / 2),
            total_ms=total_ms,
            cost_usd=chance.random() / 50,
        )


def _call(chance: random.Random, tools: tuple[str, ...], failed: float) -> CallKind:
    outcome = "valid" if chance.random() >= failed else chance.choice(("invalid", "incomplete", "repaired", "reasked"))
    return CallKind(chance.choice(tools), outcome, "trailing_comma" if outcome == "repaired" else "")


def fill(url: str, count: int) -> float:
    """Creates the tables, writes the records, and returns the CPU time of this process in seconds."""
    engine = open_for_writing(locate(url))
    begin_s = time.process_time()
    batch = Batch()
    for number, record in enumerate(records(count, time.time()), 1):
        batch.add(record, schema.first_number(record.ended_s) + number % 1024)
        if number % BATCH == 0 or number == count:
            with engine.begin() as connection:
                batch.write(connection)
            batch = Batch()
    engine.dispose()
    return time.process_time() - begin_s


USUAL: Final = (
    (),
    ("--by", "model"),
    ("--by", "model,tool"),
    ("--by", "day,model"),
    ("--by", "key"),
    ("--by", "role,agent"),
    ("--compare", "version", "1.2.0", "1.3.0"),
    ("--json", "--by", "model,upstream,tool,format,agent,day"),
    ("--since", "7d"),
)
"""Options of reports; without `--since`, of all days."""


def measure(url: str) -> None:
    """Prints the time of usual reports, each in a process of its own, as users start them: the better of two."""
    for options in USUAL:
        since = () if "--since" in options else ("--since", f"{DAYS + 2}d")
        command = [sys.executable, "-m", "dragoman", "report", "--records", url, *since, *options]
        times = []
        for _ in range(2):
            before, begin_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.count("\n")
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            times.append((cpu_s, time.perf_counter() - begin_s))
        cpu_s, wall_s = min(times)
        print(f"report {' '.join((*since, *options)):70} {wall_s:5.2f} s, {cpu_s:5.2f} s of CPU, {lines} lines")


def main() -> None:
    """Fills a database, and prints the times."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--url")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="an SQLite file that remains")
    parser.add_argument("--measure-only", action="store_true", help="use the records of --keep or --url")
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        file = args.keep or Path(folder, "records.sqlite")
        url = args.url or f"sqlite:///{file.absolute()}"
        if not args.measure_only:
            print(f"{args.records:,} records written in {fill(url, args.records):.0f} s of CPU", flush=True)
        if not args.url:
            print(f"{file.stat().st_size / 1e6:.0f} MB", flush=True)
        measure(url)


if __name__ == "__main__":
    main()
