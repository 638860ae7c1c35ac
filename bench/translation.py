"""CPU time of translating between each pair of APIs, without HTTP and through the gateway.

A request is parsed in the client's API and written in the upstream's; a chunk of the response is translated back. The
reference is the same request and response without translation.
"""

import asyncio
import json
import statistics
from collections.abc import Iterator
from functools import partial
from itertools import count

from bench.client import Server, serving
from bench.figures import Figure
from bench.samples import DIALECTS, TOOLS, agent_body, arguments, deltas, prose, small_body
from bench.timing import Timing, compare
from dragoman import dialects
from dragoman.core.backend import ExchangeContext
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
from dragoman.core.messages import Request, Usage
from dragoman.wire.dialect import Dialect

SIZE = 50_000
CHUNKS = 300
STEP = 4
MOST = 2.0
"""Limit of the CPU time with translation, divided by that without."""
_PAIRS = [(front, behind) for front in DIALECTS for behind in DIALECTS]


def measure(quick: bool) -> Iterator[Figure]:
    """Yields figures of requests, streams, and both through the gateway."""
    rounds = 2 if quick else 9
    for front, behind in _PAIRS:
        yield _request(front, behind, rounds, 1 if quick else 10)
    for front, behind in _PAIRS:
        yield _stream(front, behind, rounds, 20 if quick else CHUNKS)
    with serving("floor") as floor, serving("relay", str(floor.port)) as relay:
        times = (2, 1, 10) if quick else (400, 12, CHUNKS)
        yield from asyncio.run(_through(relay, floor, times, 1 if quick else 5))


def _request(front: str, behind: str, rounds: int, calls: int) -> Figure:
    body = agent_body(front, SIZE)
    own = partial(asked, body, front, front) if front != behind else partial(_again, [body])
    timing = compare(partial(asked, body, front, behind), own, rounds, calls=calls)
    return _figure(f"request of {SIZE // 1000} KB, {front} → {behind}", timing, 1, "µs", front == behind)


def asked(body: bytes, front: str, behind: str) -> bytes:
    """Returns the upstream's request body."""
    return dialects.get(behind).write_request(dialects.get(front).read_request(body), "m").body


def _stream(front: str, behind: str, rounds: int, chunks: int) -> Figure:
    pieces = answer(dialects.get(behind), chunks)
    own = partial(answered, pieces, behind, behind) if front != behind else partial(_again, pieces)
    timing = compare(partial(answered, pieces, front, behind), own, rounds)
    return _figure(f"chunk of an answer, {behind} → {front}", timing, len(pieces), "µs/chunk", front == behind)


def answer(dialect: Dialect, chunks: int) -> list[bytes]:
    """Returns the chunks of a stream of this API: text, then a call."""
    half = chunks // 2
    call = deltas(arguments(half * STEP), STEP)[:half]
    call[-1] = '"}'
    events: list[AnyEvent] = [
        Start("1", "m", 7, 20),
        *map(TextDelta, deltas(prose(half * STEP), STEP)),
        ToolCallStart(0, "call_1", "write_file"),
        *(ToolCallDelta(0, text) for text in call),
        ToolCallEnd(0),
        UsageUpdate(Usage(20, chunks)),
        Finish("tool_calls"),
    ]
    writer = dialect.writer(Request("m", (), TOOLS, stream=True, stream_usage=True))
    return [written for event in events if (written := writer.feed(event))]


def answered(pieces: list[bytes], front: str, behind: str) -> list[bytes]:
    """Returns the bytes that the client gets for each of these chunks."""
    numbers = count()
    request = Request("m", (), TOOLS, stream=True, stream_usage=True, dialect=front)
    reader = dialects.get(behind).reader(request, ExchangeContext("1", 7, lambda: str(next(numbers))))
    writer = dialects.get(front).writer(request)
    said = [b"".join(map(writer.feed, reader.feed(piece))) for piece in pieces]
    return [*said, b"".join(map(writer.feed, reader.close()))]


def _again(pieces: list[bytes]) -> None:
    """The minimum work of a proxy that parses JSON: decode and encode it."""
    for piece in pieces:
        for line in piece.split(b"\n"):
            data = line.removeprefix(b"data: ")
            if data.startswith(b"{"):
                json.dumps(json.loads(data))


def _figure(name: str, timing: Timing, count: int, unit: str, same: bool) -> Figure:
    value, best = timing.median / count / 1000, timing.best / count / 1000
    if same:
        return Figure(name, value, unit, best, timing.ratio, "json.loads + dumps")
    return Figure(name, value, unit, best, timing.ratio, "not translated", MOST * value / timing.ratio)


async def _through(relay: Server, floor: Server, times: tuple[int, int, int], rounds: int) -> list[Figure]:
    """Returns figures of requests that are not streamed and of single deltas through the gateway."""
    requests, streams, deltas = times
    whole, delta = [], []
    for front in DIALECTS:
        costs = await _costs(relay, front, 16, False, requests, rounds)
        whole += [_through_figure(f"gateway, whole reply, {front} → {b}", costs, b, front, 1, "µs") for b in DIALECTS]
        costs = await _costs(relay, front, deltas, True, streams, rounds)
        delta += [
            _through_figure(f"gateway, a delta alone, {b} → {front}", costs, b, front, deltas, "µs/delta")
            for b in DIALECTS
        ]
    for server in (relay, floor):
        await server.close()
    return whole + delta


async def _costs(
    relay: Server, front: str, deltas: int, stream: bool, times: int, rounds: int
) -> dict[str, list[float]]:
    """Returns the gateway's CPU nanoseconds of a request, by upstream API and round, measured in turn."""
    spent: dict[str, list[float]] = {behind: [] for behind in DIALECTS}
    path = dialects.get(front).path
    bodies = {b: small_body(front, f"{b}/alone", stream=stream, max_tokens=deltas) for b in DIALECTS}
    for body in bodies.values():
        await relay.load(path, body, max(1, times // 10), 2)
    for _ in range(rounds):
        for behind, body in bodies.items():
            before = (await relay.usage()).cpu_ns
            await relay.load(path, body, times, 4)
            spent[behind].append(max(1, (await relay.usage()).cpu_ns - before) / times)
    return spent


def _through_figure(name: str, costs: dict[str, list[float]], behind: str, front: str, per: int, unit: str) -> Figure:
    value, best = (x / per / 1000 for x in (statistics.median(costs[behind]), min(costs[behind])))
    if behind == front:
        return Figure(name, value, unit, best)
    ratio = statistics.median(mine / own for mine, own in zip(costs[behind], costs[front], strict=True))
    return Figure(name, value, unit, best, ratio, "not translated", MOST * value / ratio)
