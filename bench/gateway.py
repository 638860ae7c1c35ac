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


class GatewaySizes(NamedTuple):
    """Streams and requests of a round, rounds, open streams."""

    rounds: int = 7
    requests: int = 800
    streams: int = 24
    open_streams: int = 500
    deltas: int = DELTAS


def measure(quick: bool) -> Iterator[Figure]:
    """Yields all figures, for each dialect where they differ."""
    load = GatewaySizes(rounds=1, requests=4, streams=2, open_streams=3, deltas=10) if quick else GatewaySizes()
    with serving("dragoman") as ours, serving("floor") as floor:
        yield from asyncio.run(_all(ours, floor, load))


async def _all(ours: Server, floor: Server, load: GatewaySizes) -> list[Figure]:
    servers = (ours, floor)
    figures = [await _idle(servers)]
    for name in DIALECTS:
        path = dialects.get(name).path
        body = small_body(name, "alone", max_tokens=1)
        cost = await _cpu(servers, path, body, load.requests, load.rounds)
        figures.append(_cpu_figure(f"{name}: request, whole reply", cost, 1, "µs", Goals.REQUEST_US))
        for model, goal in _STREAMS.items():
            body = small_body(name, model, stream=True, max_tokens=load.deltas)
            cost = await _cpu(servers, path, body, load.streams, load.rounds)
            figures.append(_cpu_figure(f"{name}: {_TITLES[model]}", cost, load.deltas, "µs/delta", goal))
    figures += await _delays(servers, load)
    figures.append(await _open_streams(servers, load.open_streams))
    for server in servers:
        await server.close()
    return figures


_STREAMS: Final = {
    "alone": Goals.ALONE_US,
    "burst": Goals.BURST_US,
    "call-alone": Goals.ALONE_US,
    "call-burst": Goals.BURST_US,
}
_TITLES: Final = {
    "alone": "stream, a delta alone",
    "burst": "stream, 8 deltas at once",
    "call-alone": "text to tool call, alone",
    "call-burst": "text to tool call, 8 at once",
}


class Cost(NamedTuple):
    """CPU nanoseconds of a request by round, and ratios to the minimal application."""

    ours: list[float]
    ratios: list[float]


async def _cpu(servers: tuple[Server, Server], path: str, body: bytes, times: int, rounds: int) -> Cost:
    cost = Cost([], [])
    for server in servers:
        await server.load(path, body, max(1, times // 10), 2)
    for _ in range(rounds):
        cpu_ns = []
        for server in servers:
            before = (await server.usage()).cpu_ns
            await server.load(path, body, times, 4)
            cpu_ns.append(((await server.usage()).cpu_ns - before) / times)
        cost.ours.append(cpu_ns[0])
        cost.ratios.append(cpu_ns[0] / cpu_ns[1])
    return cost


def _cpu_figure(name: str, cost: Cost, per: int, unit: str, goal: float | None) -> Figure:
    value, best = (x / per / 1000 for x in (statistics.median(cost.ours), min(cost.ours)))
    return Figure(name, value, unit, best, statistics.median(cost.ratios), FLOOR, goal)


async def _idle(servers: tuple[Server, Server]) -> Figure:
    ours, floor = [(await server.usage()).memory_bytes for server in servers]
    return Figure("idle process", ours / 1e6, "MB", None, ours / floor, FLOOR, Goals.IDLE_MB)


async def _open_streams(servers: tuple[Server, Server], count: int) -> Figure:
    """Returns the memory that each open stream adds after its first delta."""
    name = DIALECTS[0]
    body = small_body(name, "hold", stream=True, max_tokens=1)
    added_bytes = []
    for server in servers:
        before = (await server.usage()).memory_bytes
        connections = [Connection(server.port) for _ in range(count)]
        await asyncio.gather(*(c.request(dialects.get(name).path, body, until_stamp=True) for c in connections))
        added_bytes.append(max(1.0, (await server.usage()).memory_bytes - before) / count)
        for connection in connections:
            await connection.close()
    ratio = added_bytes[0] / added_bytes[1]
    return Figure(f"open stream, {count} at once", added_bytes[0] / 1000, "KB", None, ratio, FLOOR, Goals.STREAM_KB)


async def _delays(servers: tuple[Server, Server], load: GatewaySizes) -> list[Figure]:
    """Returns how much longer the median request waits than with the minimal application."""
    name = DIALECTS[0]
    path, times = dialects.get(name).path, max(3, load.requests // 4)
    body = small_body(name, "alone", max_tokens=1)
    streamed = small_body(name, "alone", stream=True, max_tokens=1)
    paced = small_body(name, "paced", stream=True, max_tokens=load.deltas // 4)

    async def response_times(server: Server) -> list[int]:
        return [a.total_ns for a in await server.load(path, body, times, 1)]

    async def first_byte_times(server: Server) -> list[int]:
        return [a.first_byte_ns for a in await server.load(path, streamed, times, 1)]

    async def delta_delays(server: Server) -> list[int]:
        # The first delta of a stream also waits for the headers and is measured above.
        return [wait for a in await server.load(path, paced, 10, 10) for wait in a.delays_ns[1:]]

    return [
        await _added_delay("added delay, whole reply, p50", servers, response_times, Goals.WHOLE_MS),
        await _added_delay("added delay, first byte, p50", servers, first_byte_times, Goals.FIRST_MS),
        await _added_delay("added delay, delta, 10 streams of 50/s, p50", servers, delta_delays, Goals.DELTA_MS),
    ]


async def _added_delay(
    name: str, servers: tuple[Server, Server], measure_delays: Callable[[Server], Awaitable[list[int]]], goal: float
) -> Figure:
    ours, floor = [statistics.median(await measure_delays(server)) for server in servers]
    return Figure(name, (ours - floor) / 1e6, "ms", None, ours / floor, FLOOR, goal)
