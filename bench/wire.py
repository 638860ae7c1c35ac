"""CPU time of writing events and reading requests for each API, and of logging and metrics."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from bench.figures import Figure
from bench.samples import DIALECTS, agent_body, arguments, deltas, prose, small_body
from bench.server import MODELS, ScriptedBackend
from bench.timing import Timing, compare
from dragoman import dialects
from dragoman.core.collect import collect
from dragoman.core.events import (
    AnyEvent,
    Finish,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageUpdate,
)
from dragoman.core.messages import Usage
from dragoman.gateway.gateway import Gateway
from dragoman.server.base_exchange import Route
from dragoman.server.observe.access_log import AccessRecord
from dragoman.server.observe.metrics import Metrics
from dragoman.wire.dialect import Dialect

STEP: Final = 4
ENCODE = "msgspec + join"
LOADS = "json.loads"


def measure(quick: bool) -> Iterator[Figure]:
    """Yields figures of writers per event, of request readers per body, and of the log."""
    events, rounds = (50, 2) if quick else (5_000, 7)
    for name in DIALECTS:
        dialect = dialects.get(name)
        yield from _writer_figures(dialect, events, rounds)
        yield from _reader_figures(dialect, rounds, 1 if quick else 10)
    yield from _log_figures(dialect, events, rounds)


def _writer_figures(dialect: Dialect, events: int, rounds: int) -> Iterator[Figure]:
    request = dialect.read_request(small_body(dialect.name))
    texts = deltas(prose(events * STEP), STEP)
    call = deltas(arguments(events * STEP), STEP)
    streams: dict[str, list[AnyEvent]] = {
        "text": [TextDelta(t) for t in texts],
        "arguments": [ToolCallStart(0, "a", "write_file"), *(ToolCallDelta(0, t) for t in call), ToolCallEnd(0)],
    }
    for kind, middle in streams.items():
        stream = [Start("a", "m", 0), *middle, Finish("stop")]
        send = partial(_write_stream, dialect, stream)
        timing = compare(send, partial(_encode, texts if kind == "text" else call), rounds)
        yield _figure(f"{dialect.name}: write {kind} delta", timing, len(stream), "µs/event", ENCODE)
    reply = collect(stream)
    timing = compare(lambda: dialect.write_reply(reply, request), partial(json.dumps, "".join(call)), rounds, calls=5)
    yield _figure(f"{dialect.name}: write whole reply, {len(call) * STEP // 1000} KB", timing, 1, "µs", "json.dumps")


def _reader_figures(dialect: Dialect, rounds: int, calls: int) -> Iterator[Figure]:
    for title, body in (("small", small_body(dialect.name)), ("agent's", agent_body(dialect.name))):
        total_calls = calls * max(1, 10_000 // len(body))
        timing = compare(partial(dialect.read_request, body), partial(json.loads, body), rounds, calls=total_calls)
        yield _figure(f"{dialect.name}: read {title} request, {len(body) / 1000:.3g} KB", timing, 1, "µs", LOADS)


def _log_figures(dialect: Dialect, events: int, rounds: int) -> Iterator[Figure]:
    """Yields the cost of log and metrics for a request with a call, and for each delta."""
    request = replace(dialect.read_request(small_body(dialect.name)), model=MODELS[0])
    metrics, route = Metrics(Gateway([ScriptedBackend()])), Route(dialect)
    call: list[AnyEvent] = [ToolCallStart(0, "a", "write_file"), ToolCallEnd(0, ("to_number",), True)]
    response: list[AnyEvent] = [Start("a", "m", 0), *call, UsageUpdate(Usage(30, 12)), Finish("stop")]

    def log_request() -> None:
        record = AccessRecord("POST", dialect.path)
        metrics.begin()
        record.on_request(dialect.name, request)
        _observe(record, response)
        record.close()
        metrics.finish(route, record)

    record, texts = AccessRecord("POST", dialect.path), deltas(prose(events * STEP), STEP)
    stream: list[AnyEvent] = [TextDelta(text) for text in texts]
    encode = partial(_encode, texts)
    timing = compare(log_request, partial(_encode, texts[:1]), rounds, calls=events)
    yield _figure("account: a request with a call", timing, 1, "µs", ENCODE)
    timing = compare(partial(_observe, record, stream), encode, rounds)
    yield _figure("account: a delta", timing, len(stream), "µs/event", ENCODE)


def _observe(record: AccessRecord, events: list[AnyEvent]) -> None:
    for event in events:
        record.observe(event)


def _figure(name: str, timing: Timing, count: int, unit: str, reference: str) -> Figure:
    return Figure(name, timing.median / count / 1000, unit, timing.best / count / 1000, timing.ratio, reference)


def _write_stream(dialect: Dialect, stream: list[AnyEvent]) -> None:
    writer = dialect.writer(dialect.read_request(_SMALL[dialect.name]))
    for event in stream:
        writer.feed(event)


_SMALL = {name: small_body(name) for name in DIALECTS}
_encode_json: Callable[[object], bytes] = msgspec.json.Encoder().encode


def _encode(texts: list[str]) -> None:
    """The minimum work for a streamed delta: its text as JSON between two constants."""
    for text in texts:
        b'data: {"choices":[{"index":0,"delta":{"content":' + _encode_json(text) + b"}}]}\n\n"
