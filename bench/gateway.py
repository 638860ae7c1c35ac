"""CPU time, memory and delay of the gateway in a process of its own, compared with a minimal ASGI application.

Both get the same requests in turn. CPU time is that of the server process, without the load client.
"""

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NamedTuple

from bench.client import Connection, Server, serving
from bench.figures import Figure
from bench.samples import DIALECTS, small_body
from dragoman import dialects

FLOOR: Final = "raw ASGI"
DELTAS: Final = 300


class Goals:
    """Limits from measurements of a minimal Python gateway; most include parsing an upstream's bytes."""

    REQUEST_US = 100.0
    BURST_US = 3.5
    ALONE_US = 10.0
    IDLE_MB = 70.0
    STREAM_KB = 25.0
    WHOLE_MS = 1.2
    FIRST_MS = 1.0
    DELTA_MS = 0.4


class Load(NamedTuple):
    """Streams and requests of a round, rounds, open streams."""

    rounds: int = 7
    requests: int = 800
    streams: int = 24
    held: int = 500
    deltas: int = DELTAS


def measure(quick: bool) -> Iterator[Figure]:
    """Yields all figures, for each dialect where they differ."""
    load = Load(rounds=1, requests=4, streams=2, held=3, deltas=10) if quick else Load()
    with serving("dragoman") as ours, serving("floor") as floor:
        yield from asyncio.run(_all(ours, floor, load))


async def _all(ours: Server, floor: Server, load: Load) -> list[Figure]:
    both = (ours, floor)
    figures = [await _idle(both)]
    for name in DIALECTS:
        path = dialects.get(name).path
        body = small_body(name, "alone", max_tokens=1)
        cost = await _cpu(both, path, body, load.requests, load.rounds)
        figures.append(_cpu_figure(f"{name}: request, whole reply", cost, 1, "µs", Goals.REQUEST_US))
        for model, goal in _STREAMS.items():
            body = small_body(name, model, stream=True, max_tokens=load.deltas)
            cost = await _cpu(both, path, body, load.streams, load.rounds)
            figures.append(_cpu_figure(f"{name}: {_SAID[model]}", cost, load.deltas, "µs/delta", goal))
    figures += await _delays(both, load)
    figures.append(await _open_streams(both, load.held))
    for server in both:
        await server.close()
    return figures


_STREAMS: Final = {
    "alone": Goals.ALONE_US,
    "burst": Goals.BURST_US,
    "call-alone": Goals.ALONE_US,
    "call-burst": Goals.BURST_US,
}
_SAID: Final = {
    "alone": "stream, a delta alone",
    "burst": "stream, 8 deltas at once",
    "call-alone": "text to tool call, alone",
    "call-burst": "text to tool call, 8 at once",
}


class Cost(NamedTuple):
    """CPU nanoseconds of a request by round, and ratios to the minimal application."""

    ours: list[float]
    ratios: list[float]


async def _cpu(both: tuple[Server, Server], path: str, body: bytes, times: int, rounds: int) -> Cost:
    cost = Cost([], [])
    for server in both:
        await server.load(path, body, max(1, times // 10), 2)
    for _ in range(rounds):
        spent = []
        for server in both:
            before = (await server.usage()).cpu_ns
            await server.load(path, body, times, 4)
            spent.append(((await server.usage()).cpu_ns - before) / times)
        cost.ours.append(spent[0])
        cost.ratios.append(spent[0] / spent[1])
    return cost


def _cpu_figure(name: str, cost: Cost, per: int, unit: str, goal: float | None) -> Figure:
    value, best = (x / per / 1000 for x in (statistics.median(cost.ours), min(cost.ours)))
    return Figure(name, value, unit, best, statistics.median(cost.ratios), FLOOR, goal)


async def _idle(both: tuple[Server, Server]) -> Figure:
    ours, floor = [(await server.usage()).memory_bytes for server in both]
    return Figure("idle process", ours / 1e6, "MB", None, ours / floor, FLOOR, Goals.IDLE_MB)


async def _open_streams(both: tuple[Server, Server], count: int) -> Figure:
    """Returns the memory that each open stream adds after its first delta."""
    name = DIALECTS[0]
    body = small_body(name, "hold", stream=True, max_tokens=1)
    grown = []
    for server in both:
        before = (await server.usage()).memory_bytes
        open_ = [Connection(server.port) for _ in range(count)]
        await asyncio.gather(*(c.ask(dialects.get(name).path, body, until_stamp=True) for c in open_))
        grown.append(max(1.0, (await server.usage()).memory_bytes - before) / count)
        for connection in open_:
            await connection.close()
    ratio = grown[0] / grown[1]
    return Figure(f"open stream, {count} at once", grown[0] / 1000, "KB", None, ratio, FLOOR, Goals.STREAM_KB)


async def _delays(both: tuple[Server, Server], load: Load) -> list[Figure]:
    """Returns how much longer the median request waits than with the minimal application."""
    name = DIALECTS[0]
    path, times = dialects.get(name).path, max(3, load.requests // 4)
    whole = small_body(name, "alone", max_tokens=1)
    streamed = small_body(name, "alone", stream=True, max_tokens=1)
    paced = small_body(name, "paced", stream=True, max_tokens=load.deltas // 4)

    async def to_whole(server: Server) -> list[int]:
        return [a.whole_ns for a in await server.load(path, whole, times, 1)]

    async def to_first(server: Server) -> list[int]:
        return [a.first_ns for a in await server.load(path, streamed, times, 1)]

    async def to_delta(server: Server) -> list[int]:
        # The first delta of a stream also waits for the headers and is measured above.
        return [wait for a in await server.load(path, paced, 10, 10) for wait in a.waits_ns[1:]]

    return [
        await _added("added delay, whole reply, p50", both, to_whole, Goals.WHOLE_MS),
        await _added("added delay, first byte, p50", both, to_first, Goals.FIRST_MS),
        await _added("added delay, delta, 10 streams of 50/s, p50", both, to_delta, Goals.DELTA_MS),
    ]


async def _added(
    name: str, both: tuple[Server, Server], waits: Callable[[Server], Awaitable[list[int]]], goal: float
) -> Figure:
    ours, floor = [statistics.median(await waits(server)) for server in both]
    return Figure(name, (ours - floor) / 1e6, "ms", None, ours / floor, FLOOR, goal)
