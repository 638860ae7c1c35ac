"""CPU time of translating between each pair of APIs, without HTTP and through the gateway.

A request is parsed in the client's API and written in the upstream's; a chunk of the response is translated back. The
reference is the same request and response without translation.
"""

import asyncio
import json
import statistics
from collections.abc import Callable, Iterator
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
MAX_RATIO = 2.0
"""Limit of the CPU time with translation, divided by that without."""
_PAIRS = [(client, upstream) for client in DIALECTS for upstream in DIALECTS]


def measure(quick: bool) -> Iterator[Figure]:
    """Yields figures of requests, streams, and both through the gateway."""
    rounds = 2 if quick else 9
    for client, upstream in _PAIRS:
        yield _request(client, upstream, rounds, 1 if quick else 10)
    for client, upstream in _PAIRS:
        yield _stream(client, upstream, rounds, 20 if quick else CHUNKS)
    with serving("floor") as floor, serving("upstreams", str(floor.port)) as gateway:
        times = (2, 1, 10) if quick else (400, 12, CHUNKS)
        yield from asyncio.run(_gateway_figures(gateway, floor, times, 1 if quick else 5))


def _request(client: str, upstream: str, rounds: int, calls: int) -> Figure:
    body = agent_body(client, SIZE)
    reference: Callable[[], object] = partial(translate_request, body, client, client)
    if client == upstream:
        reference = partial(_json_round_trip, [body])
    timing = compare(partial(translate_request, body, client, upstream), reference, rounds, calls=calls)
    return _figure(f"request of {SIZE // 1000} KB, {client} → {upstream}", timing, 1, "µs", client == upstream)


def translate_request(body: bytes, client: str, upstream: str) -> bytes:
    """Returns the upstream's request body."""
    return dialects.get(upstream).write_request(dialects.get(client).read_request(body), "m").body


def _stream(client: str, upstream: str, rounds: int, chunks: int) -> Figure:
    pieces = stream_chunks(dialects.get(upstream), chunks)
    reference: Callable[[], object] = partial(translate_stream, pieces, upstream, upstream)
    if client == upstream:
        reference = partial(_json_round_trip, pieces)
    timing = compare(partial(translate_stream, pieces, client, upstream), reference, rounds)
    return _figure(f"chunk of an answer, {upstream} → {client}", timing, len(pieces), "µs/chunk", client == upstream)


def stream_chunks(dialect: Dialect, chunks: int) -> list[bytes]:
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
    return [data for event in events if (data := writer.feed(event))]


def translate_stream(pieces: list[bytes], client: str, upstream: str) -> list[bytes]:
    """Returns the bytes that the client gets for each of these chunks."""
    numbers = count()
    request = Request("m", (), TOOLS, stream=True, stream_usage=True, dialect=client)
    reader = dialects.get(upstream).reader(request, ExchangeContext("1", 7, lambda: str(next(numbers))))
    writer = dialects.get(client).writer(request)
    output = [b"".join(map(writer.feed, reader.feed(piece))) for piece in pieces]
    return [*output, b"".join(map(writer.feed, reader.close()))]


def _json_round_trip(pieces: list[bytes]) -> None:
    """The minimum work of a proxy that parses JSON: decode and encode it."""
    for piece in pieces:
        for line in piece.split(b"\n"):
            data = line.removeprefix(b"data: ")
            if data.startswith(b"{"):
                json.dumps(json.loads(data))


def _figure(name: str, timing: Timing, count: int, unit: str, is_same_api: bool) -> Figure:
    value, best = timing.median / count / 1000, timing.best / count / 1000
    if is_same_api:
        return Figure(name, value, unit, best, timing.ratio, "json.loads + dumps")
    return Figure(name, value, unit, best, timing.ratio, "not translated", MAX_RATIO * value / timing.ratio)


async def _gateway_figures(gateway: Server, floor: Server, times: tuple[int, int, int], rounds: int) -> list[Figure]:
    """Returns figures of requests that are not streamed and of single deltas through the gateway."""
    requests, streams, deltas = times
    figures = []
    for client in DIALECTS:
        costs = await _costs(gateway, client, 16, False, requests, rounds)
        for upstream in DIALECTS:
            name = f"gateway, whole reply, {client} → {upstream}"
            figures.append(_gateway_figure(name, costs[upstream], costs[client], 1, "µs"))
    for client in DIALECTS:
        costs = await _costs(gateway, client, deltas, True, streams, rounds)
        for upstream in DIALECTS:
            name = f"gateway, a delta alone, {upstream} → {client}"
            figures.append(_gateway_figure(name, costs[upstream], costs[client], deltas, "µs/delta"))
    for server in (gateway, floor):
        await server.close()
    return figures


async def _costs(
    gateway: Server, client: str, deltas: int, stream: bool, times: int, rounds: int
) -> dict[str, list[float]]:
    """Returns the gateway's CPU nanoseconds of a request, by upstream API and round, measured in turn."""
    costs: dict[str, list[float]] = {upstream: [] for upstream in DIALECTS}
    path = dialects.get(client).path
    bodies = {b: small_body(client, f"{b}/alone", stream=stream, max_tokens=deltas) for b in DIALECTS}
    for body in bodies.values():
        await gateway.load(path, body, max(1, times // 10), 2)
    for _ in range(rounds):
        for upstream, body in bodies.items():
            before = (await gateway.usage()).cpu_ns
            await gateway.load(path, body, times, 4)
            costs[upstream].append(max(1, (await gateway.usage()).cpu_ns - before) / times)
    return costs


def _gateway_figure(name: str, costs: list[float], untranslated: list[float], per: int, unit: str) -> Figure:
    value, best = (x / per / 1000 for x in (statistics.median(costs), min(costs)))
    if costs is untranslated:
        return Figure(name, value, unit, best)
    ratio = statistics.median(cost / base for cost, base in zip(costs, untranslated, strict=True))
    return Figure(name, value, unit, best, ratio, "not translated", MAX_RATIO * value / ratio)
