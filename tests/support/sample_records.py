"""Records of a small team, and the totals that a report of them must contain."""

import random
from collections.abc import Iterable, Iterator

from sqlalchemy import Engine

from dragoman.records import schema
from dragoman.records.batch import Batch
from dragoman.records.database import locate, open_for_writing
from dragoman.records.record import CallKind, ExchangeRecord, Series, bucket
from dragoman.records.reports.grouping import Group, Grouping, matches
from dragoman.records.reports.period import Period
from dragoman.records.reports.totals import ExchangeTotals

DAY_S = schema.DAY_S
START_S = 20_000 * DAY_S
"""2024-10-04, 00:00 UTC."""

MODELS = ("claude", "qwen", "tiny")
AGENTS = {"claude-code": ("Read", "Bash"), "codex": ("shell",)}
OUTCOMES = ("valid",) * 6 + ("repaired", "reasked", "recovered", "unchecked", "invalid", "incomplete", "unknown")


def sample_records(count: int, days: int = 4, seed: int = 1) -> Iterator[ExchangeRecord]:
    """Yields records that are spread over the days from `START_S`."""
    chance = random.Random(seed)
    for number in range(count):
        model, agent = chance.choice(MODELS), chance.choice(list(AGENTS))
        broken = chance.random() < 0.1
        series = Series(
            version="1.2.0" if number < count / 2 else "1.3.0",
            dialect="openai_chat",
            key=chance.choice(("alice", "bob")),
            agent=agent,
            role=chance.choice(("main", "title")),
            model="default" if chance.random() < 0.3 else model,
            alias="default",
            upstream=chance.choice(("a", "b")),
            upstream_model=model if chance.random() < 0.9 else "",
            tool_mode="prompt" if model == "tiny" else "native",
            format="hermes" if model == "tiny" else "",
            status=502 if broken else 200,
            error="UpstreamError" if broken else "",
            finish="" if broken else "stop",
        )
        tools = AGENTS[agent] if not broken else ()
        yield ExchangeRecord(
            START_S + days * DAY_S * number / count,
            f"{number:024x}",
            series,
            [(CallKind(tool, chance.choice(OUTCOMES)), chance.randrange(1, 4)) for tool in tools],
            attempts=1 + broken,
            input_tokens=None if broken else chance.randrange(100_000),
            cached_tokens=chance.choice((None, 0, 50)),
            output_tokens=None if broken else chance.randrange(1_000),
            reasoning_tokens=chance.choice((None, 7)),
            first_ms=None if broken else chance.randrange(3_000),
            total_ms=chance.randrange(60_000),
            cost_usd=chance.choice((None, 0.25, 0.5)),
        )


def write_records(engine: Engine, records: Iterable[ExchangeRecord]) -> None:
    """Writes records as the gateway does."""
    batch = Batch()
    for number, record in enumerate(records):
        batch.add(record, schema.first_number(record.ended_s) + number % 1024)
    with engine.begin() as connection:
        batch.write(connection)


def totals_of(records: Iterable[ExchangeRecord], period: Period, grouping: Grouping) -> dict[Group, ExchangeTotals]:
    """Returns the totals of records, added up one by one."""
    result: dict[Group, ExchangeTotals] = {}
    for record in records:
        group = grouping.select({name: getattr(record.series, name) for name in Series.__struct_fields__})
        if group is None or not period.begin_s <= record.ended_s < period.end_s:
            continue
        day = f"2024-10-{4 + int(record.ended_s - START_S) // DAY_S:02}"
        hour = f"{day}T{int(record.ended_s - START_S) % DAY_S // 3600:02}:00Z"
        if not grouping.has_tool:
            _add_exchange(result.setdefault(grouping.complete(group, day=day, hour=hour), ExchangeTotals()), record)
        for kind, count in record.calls:
            if matches(kind.tool, grouping.tool):
                complete = grouping.complete(group, day=day, hour=hour, tool=kind.tool)
                totals = result.setdefault(complete, ExchangeTotals())
                totals.outcomes[kind.outcome] = totals.outcomes.get(kind.outcome, 0) + count
    return result


def _add_exchange(totals: ExchangeTotals, record: ExchangeRecord) -> None:
    totals.exchanges += 1
    totals.attempts += record.attempts
    totals.input_tokens += record.input_tokens or 0
    totals.cached_tokens += record.cached_tokens or 0
    totals.output_tokens += record.output_tokens or 0
    totals.reasoning_tokens += record.reasoning_tokens or 0
    totals.cost_usd += record.cost_usd or 0
    if record.series.error:
        totals.errors += 1
        return
    for histogram, ms in ((totals.first_ms, record.first_ms), (totals.total_ms, record.total_ms)):
        if ms is not None:
            histogram[bucket(ms)] = histogram.get(bucket(ms), 0) + 1


def fill(url: str, records: Iterable[ExchangeRecord]) -> None:
    """Writes the records into the database at this URL."""
    engine = open_for_writing(locate(url))
    write_records(engine, records)
    engine.dispose()
