"""The installed Claude Code CLI as a model: the time that it adds to a request, and the memory of its processes.

client → gateway → claude → the floor of `bench.server`, which replaces the vendor's API and responds at once. The
reference is the same request to the floor. The CLI is the real one, with a home and a key for this run only.

Wall time is measured too, as requests wait for processes to start: on a shared machine, compare figures of one run. CPU
time is that of the gateway and of all processes that it started.
"""

import asyncio
import json
import statistics
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

import psutil

from bench.client import Connection, Response, Server, serving
from bench.figures import Figure
from bench.samples import agent_body, small_body
from bench.server import PACE_S, SLOW
from dragoman import dialects
from dragoman.backends.claude_cli.models import PREFIX

API: Final = "anthropic_messages"
PATH: Final = dialects.get(API).path
MODEL: Final = PREFIX + "claude-alone"
DIRECT: Final = "straight to the upstream"
DELTAS: Final = 16
PARALLEL: Final = 4
HISTORIES: Final = (1, 10, 100, 400)
"""Messages of a request."""
_MESSAGE_CHARS: Final = 1000
"""Characters of each of them, and of the description of each of 20 tools."""
_POLL_S: Final = 0.1
_IDLE_S: Final = 0.4
"""Seconds that a started process is idle."""


class CliSizes(NamedTuple):
    """Number of requests of each kind."""

    times: int = 9
    histories: tuple[int, ...] = HISTORIES
    turns: int = 6
    clients: int = 20
    idle_s: float = 300.0


class RequestCost(NamedTuple):
    """One request: time to its first event, and CPU time of all processes until they are idle."""

    first_ms: float
    cpu_ms: float = 0.0


def measure(quick: bool) -> Iterator[Figure]:
    """Yields all figures."""
    sizes = CliSizes(1, (1, 4), 2, 3, 0.0) if quick else CliSizes()
    with serving("floor") as floor:
        port = str(floor.port)
        with serving("claude", port, "1") as warm, serving("claude", port, "0") as cold:
            yield from asyncio.run(_requests(Servers(floor, warm, cold), sizes))
        with serving("claude", port, "1") as warm, serving("claude", port, "0") as cold:
            yield from asyncio.run(_turns(Servers(floor, warm, cold), sizes))
        with serving("claude", port, str(PARALLEL)) as server:
            yield from asyncio.run(_concurrent(server, floor, sizes))
        with serving("claude", port, "1") as server:
            yield from asyncio.run(_memory(server, sizes))


class Servers(NamedTuple):
    """The servers that get requests in turn."""

    floor: Server
    warm: Server
    cold: Server


def request_body(model: str, messages: int, deltas: int = DELTAS) -> bytes:
    """Returns an agent's request with this many messages; with one: a question with one tool."""
    if messages == 1:
        return small_body(API, model, stream=True, max_tokens=deltas)
    fields = json.loads(agent_body(API, _MESSAGE_CHARS * (20 + messages), messages=messages))
    return json.dumps({**fields, "model": model, "max_tokens": deltas}).encode()


async def _requests(servers: Servers, sizes: CliSizes) -> list[Figure]:
    """Yields figures of single requests, by length of the conversation."""
    for server in servers[1:]:
        await _measure_request(server, request_body(MODEL, 1))  # then a warm process waits, if configured
    figures = []
    for messages in sizes.histories:
        direct, warm, cold = await _measure_in_turn(servers, messages, sizes.times)
        title = f"{messages} messages" if messages > 1 else "1 message"
        for name, costs in (("a process waits", warm), ("none waits", cold)):
            pairs = [(mine.first_ms, base.first_ms) for mine, base in zip(costs, direct, strict=True)]
            added = [mine - base for mine, base in pairs]
            ratio = statistics.median(mine / base for mine, base in pairs)
            figures.append(
                Figure(f"{title}, {name}: first event", statistics.median(added), "ms added", min(added), ratio, DIRECT)
            )
            cpu_ms = [cost.cpu_ms for cost in costs]
            figures.append(Figure(f"{title}, {name}: CPU time", statistics.median(cpu_ms), "ms", min(cpu_ms)))
    return figures


class CostsInTurn(NamedTuple):
    """Costs of the same request, measured in turn, by round."""

    direct: list[RequestCost]
    warm: list[RequestCost]
    cold: list[RequestCost]


async def _measure_in_turn(servers: Servers, messages: int, times: int) -> CostsInTurn:
    costs = CostsInTurn([], [], [])
    for _ in range(times):
        costs.direct.append(_cost(await _send(servers.floor, request_body("alone", messages))))
        costs.warm.append(await _measure_request(servers.warm, request_body(MODEL, messages)))
        costs.cold.append(await _measure_request(servers.cold, request_body(MODEL, messages)))
    return costs


async def _measure_request(server: Server, data: bytes) -> RequestCost:
    """Measures one request; a warm process, if configured, has been started before."""
    before = cpu_s(server.pid)
    cost = _cost(await _send(server, data))
    await _wait_idle(server)
    return cost._replace(cpu_ms=(cpu_s(server.pid) - before) * 1000)


async def _send(server: Server, data: bytes) -> Response:
    connection = Connection(server.port)
    try:
        response = await connection.request(PATH, data)
    finally:
        await connection.close()
    if b"message_stop" not in response.body:
        raise RuntimeError(f"expected a whole answer, got {response.body[-500:]!r}")
    return response


def _cost(response: Response) -> RequestCost:
    return RequestCost(response.first_byte_ns / 1e6)


async def _turns(servers: Servers, sizes: CliSizes) -> list[Figure]:
    """Yields figures of an agent that sends its next request right after a response of one second."""
    data = request_body(PREFIX + SLOW, 10, round(1 / PACE_S))
    for server in servers[1:]:
        await _measure_request(server, data)
    first_ms: dict[str, list[float]] = {"warm": [], "cold": []}
    for _ in range(sizes.turns):
        for name, server in (("warm", servers.warm), ("cold", servers.cold)):
            await _wait_idle(server)
            await _send(server, data)
            first_ms[name].append((await _send(server, data)).first_byte_ns / 1e6)
    ratio = statistics.median(a / b for a, b in zip(first_ms["warm"], first_ms["cold"], strict=True))
    name = "back at once after a second, 10 messages"
    warm, cold = (statistics.median(times) for times in first_ms.values())
    return [
        Figure(f"{name}, none was started: first event", cold, "ms", min(first_ms["cold"])),
        Figure(f"{name}, one was started: first event", warm, "ms", min(first_ms["warm"]), ratio, "none was started"),
    ]


async def _concurrent(server: Server, floor: Server, sizes: CliSizes) -> list[Figure]:
    """Yields figures of more clients than concurrent processes."""
    data = request_body(MODEL, 10)
    await _measure_request(server, data)
    before, began, peak = cpu_s(server.pid), time.monotonic(), PeakMemory()
    sampler = asyncio.ensure_future(peak.sample(server.pid))
    responses = await asyncio.gather(*(_send(server, data) for _ in range(sizes.clients)))
    total_ms = (time.monotonic() - began) * 1000
    sampler.cancel()
    await _wait_idle(server)
    spent_ms = (cpu_s(server.pid) - before) * 1000
    first_event_ms = sorted(a.first_byte_ns / 1e6 for a in responses)
    name = f"{sizes.clients} at once, {PARALLEL} processes"
    direct_ns = [(await _send(floor, request_body("alone", 10))).total_ns for _ in range(sizes.times)]
    direct_ms = statistics.median(direct_ns) / 1e6
    return [
        Figure(f"{name}: all", total_ms, "ms", None, total_ms / direct_ms, DIRECT),
        Figure(f"{name}: first event, median", statistics.median(first_event_ms), "ms", first_event_ms[0]),
        Figure(f"{name}: first event, last", first_event_ms[-1], "ms"),
        Figure(f"{name}: CPU time, each", spent_ms / sizes.clients, "ms"),
        Figure(f"{name}: memory, most", peak.bytes / 1e6, "MB"),
        Figure(f"{name}: processes, most", peak.processes, "processes"),
    ]


class PeakMemory:
    """Maximum memory of a process's children; the program's file counts once."""

    def __init__(self) -> None:
        self.bytes, self.processes = 0, 0

    async def sample(self, pid: int) -> None:
        """Samples until cancelled; each sample takes CPU time."""
        while True:
            found = children(pid)
            memories = [memory_of(child) for child in found]
            program = max((one.rss - one.own for one in memories), default=0)
            self.bytes = max(self.bytes, program + sum(one.own for one in memories))
            self.processes = max(self.processes, len(found))
            await asyncio.sleep(2 * _POLL_S)


async def _memory(server: Server, sizes: CliSizes) -> list[Figure]:
    """Yields the memory of an idle process; `_concurrent` has that of a busy one."""
    await _measure_request(server, request_body(MODEL, 10))
    (waiting,) = children(server.pid)
    fresh = memory_of(waiting)
    began = cpu_s(waiting.pid)
    await asyncio.sleep(sizes.idle_s * 0.9)  # later it would be ended
    idle = memory_of(waiting)
    minutes = f"{sizes.idle_s * 0.9 / 60:.1f} minutes"
    return [
        Figure("a process that waits: RSS", fresh.rss / 1e6, "MB"),
        Figure("a process that waits: without the program's file", fresh.own / 1e6, "MB"),
        Figure(f"the same after {minutes}: RSS", idle.rss / 1e6, "MB", None, idle.rss / fresh.rss, "fresh"),
        Figure(f"the same after {minutes}: without it", idle.own / 1e6, "MB", None, idle.own / fresh.own, "fresh"),
        Figure("CPU time of that", (cpu_s(waiting.pid) - began) * 1000, "ms"),
    ]


def children(pid: int) -> list[psutil.Process]:
    """Returns the CLI's processes of this gateway."""
    return [child for child in psutil.Process(pid).children() if _name(child).startswith("claude")]


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return ""


class ProcessMemory(NamedTuple):
    """Memory of a process, in bytes."""

    rss: int = 0
    own: int = 0
    """Memory without mapped files such as the program, which all processes share."""


def memory_of(process: psutil.Process) -> ProcessMemory:
    """Returns the memory of a process; 0 if it has ended."""
    try:
        info = process.memory_info()
    except psutil.Error:
        return ProcessMemory()
    return ProcessMemory(info.rss, info.rss - getattr(info, "shared", 0))


def cpu_s(pid: int) -> float:
    """Returns the CPU time of a process and its descendants, running or ended."""
    total = 0.0
    try:
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            times = one.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    except psutil.Error:
        pass
    return total


async def _wait_idle(server: Server) -> None:
    """Waits until processes have ended and started."""
    before, since = cpu_s(server.pid), time.monotonic()
    while time.monotonic() - since < _IDLE_S:
        await asyncio.sleep(_POLL_S)
        if (now := cpu_s(server.pid)) - before > 0.02:
            before, since = now, time.monotonic()
