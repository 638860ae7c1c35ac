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

from bench.client import Answer, Connection, Server, serving
from bench.figures import Figure
from bench.samples import agent_body, small_body
from bench.server import PACE_S, SLOW
from dragoman import dialects
from dragoman.backends.claude_cli.models import PREFIX

API: Final = "anthropic_messages"
PATH: Final = dialects.get(API).path
MODEL: Final = PREFIX + "claude-alone"
STRAIGHT: Final = "straight to the upstream"
DELTAS: Final = 16
PARALLEL: Final = 4
HISTORIES: Final = (1, 10, 100, 400)
"""Messages of a request."""
_SHARE: Final = 1000
"""Characters of each of them, and of the description of each of 20 tools."""
_LOOK_S: Final = 0.1
_STILL_S: Final = 0.4
"""Seconds that a started process is idle."""


class Load(NamedTuple):
    """Number of requests of each kind."""

    times: int = 9
    histories: tuple[int, ...] = HISTORIES
    turns: int = 6
    clients: int = 20
    idle_s: float = 300.0


class Took(NamedTuple):
    """One request: time to its first event, and CPU time of all processes until they are idle."""

    first_ms: float
    cpu_ms: float = 0.0


def measure(quick: bool) -> Iterator[Figure]:
    """Yields all figures."""
    load = Load(1, (1, 4), 2, 3, 0.0) if quick else Load()
    with serving("floor") as floor:
        port = str(floor.port)
        with serving("claude", port, "1") as warm, serving("claude", port, "0") as cold:
            yield from asyncio.run(_requests(Beside(floor, warm, cold), load))
        with serving("claude", port, "1") as warm, serving("claude", port, "0") as cold:
            yield from asyncio.run(_turns(Beside(floor, warm, cold), load))
        with serving("claude", port, str(PARALLEL)) as server:
            yield from asyncio.run(_at_once(server, floor, load))
        with serving("claude", port, "1") as server:
            yield from asyncio.run(_memory(server, load))


class Beside(NamedTuple):
    """The servers that get requests in turn."""

    floor: Server
    warm: Server
    cold: Server


def body(model: str, messages: int, deltas: int = DELTAS) -> bytes:
    """Returns an agent's request with this many messages; with one: a question with one tool."""
    if messages == 1:
        return small_body(API, model, stream=True, max_tokens=deltas)
    made = json.loads(agent_body(API, _SHARE * (20 + messages), messages=messages))
    return json.dumps({**made, "model": model, "max_tokens": deltas}).encode()


async def _requests(servers: Beside, load: Load) -> list[Figure]:
    """Yields figures of single requests, by length of the conversation."""
    for server in servers[1:]:
        await _measured(server, body(MODEL, 1))  # then a warm process waits, if configured
    figures = []
    for messages in load.histories:
        straight, warm, cold = await _by_turns(servers, messages, load.times)
        said = f"{messages} messages" if messages > 1 else "1 message"
        for name, took in (("a process waits", warm), ("none waits", cold)):
            pairs = [(mine.first_ms, base.first_ms) for mine, base in zip(took, straight, strict=True)]
            added = [mine - base for mine, base in pairs]
            ratio = statistics.median(mine / base for mine, base in pairs)
            figures.append(
                Figure(
                    f"{said}, {name}: first event", statistics.median(added), "ms added", min(added), ratio, STRAIGHT
                )
            )
            spent = [t.cpu_ms for t in took]
            figures.append(Figure(f"{said}, {name}: CPU time", statistics.median(spent), "ms", min(spent)))
    return figures


async def _by_turns(servers: Beside, messages: int, times: int) -> tuple[list[Took], list[Took], list[Took]]:
    took: tuple[list[Took], list[Took], list[Took]] = ([], [], [])
    for _ in range(times):
        took[0].append(_took(await _asked(servers.floor, body("alone", messages))))
        for server, list_ in ((servers.warm, took[1]), (servers.cold, took[2])):
            list_.append(await _measured(server, body(MODEL, messages)))
    return took


async def _measured(server: Server, asked: bytes) -> Took:
    """Measures one request; a warm process, if configured, has been started before."""
    before = cpu_s(server.pid)
    took = _took(await _asked(server, asked))
    await _still(server)
    return took._replace(cpu_ms=(cpu_s(server.pid) - before) * 1000)


async def _asked(server: Server, asked: bytes) -> Answer:
    connection = Connection(server.port)
    try:
        answer = await connection.ask(PATH, asked)
    finally:
        await connection.close()
    if b"message_stop" not in answer.body:
        raise RuntimeError(f"expected a whole answer, got {answer.body[-500:]!r}")
    return answer


def _took(answer: Answer) -> Took:
    return Took(answer.first_ns / 1e6)


async def _turns(servers: Beside, load: Load) -> list[Figure]:
    """Yields figures of an agent that sends its next request right after a response of one second."""
    asked = body(PREFIX + SLOW, 10, round(1 / PACE_S))
    for server in servers[1:]:
        await _measured(server, asked)
    spent: dict[str, list[float]] = {"warm": [], "cold": []}
    for _ in range(load.turns):
        for name, server in (("warm", servers.warm), ("cold", servers.cold)):
            await _still(server)
            await _asked(server, asked)
            spent[name].append((await _asked(server, asked)).first_ns / 1e6)
    ratio = statistics.median(a / b for a, b in zip(spent["warm"], spent["cold"], strict=True))
    name = "back at once after a second, 10 messages"
    warm, cold = (statistics.median(times) for times in spent.values())
    return [
        Figure(f"{name}, none was started: first event", cold, "ms", min(spent["cold"])),
        Figure(f"{name}, one was started: first event", warm, "ms", min(spent["warm"]), ratio, "none was started"),
    ]


async def _at_once(server: Server, floor: Server, load: Load) -> list[Figure]:
    """Yields figures of more clients than concurrent processes."""
    asked = body(MODEL, 10)
    await _measured(server, asked)
    before, began, most = cpu_s(server.pid), time.monotonic(), Most()
    watching = asyncio.ensure_future(most.watch(server.pid))
    answers = await asyncio.gather(*(_asked(server, asked) for _ in range(load.clients)))
    total_ms = (time.monotonic() - began) * 1000
    watching.cancel()
    await _still(server)
    spent_ms = (cpu_s(server.pid) - before) * 1000
    firsts = sorted(a.first_ns / 1e6 for a in answers)
    name = f"{load.clients} at once, {PARALLEL} processes"
    straight = statistics.median([(await _asked(floor, body("alone", 10))).whole_ns / 1e6 for _ in range(load.times)])
    return [
        Figure(f"{name}: all", total_ms, "ms", None, total_ms / straight, STRAIGHT),
        Figure(f"{name}: first event, median", statistics.median(firsts), "ms", firsts[0]),
        Figure(f"{name}: first event, last", firsts[-1], "ms"),
        Figure(f"{name}: CPU time, each", spent_ms / load.clients, "ms"),
        Figure(f"{name}: memory, most", most.bytes / 1e6, "MB"),
        Figure(f"{name}: processes, most", most.processes, "processes"),
    ]


class Most:
    """Maximum memory of a process's children; the program's file counts once."""

    def __init__(self) -> None:
        self.bytes, self.processes = 0, 0

    async def watch(self, pid: int) -> None:
        """Samples until cancelled; each sample takes CPU time."""
        while True:
            found = children(pid)
            took = [of(child) for child in found]
            program = max((one.rss - one.own for one in took), default=0)
            self.bytes = max(self.bytes, program + sum(one.own for one in took))
            self.processes = max(self.processes, len(found))
            await asyncio.sleep(2 * _LOOK_S)


async def _memory(server: Server, load: Load) -> list[Figure]:
    """Yields the memory of an idle process; `_at_once` has that of a busy one."""
    await _measured(server, body(MODEL, 10))
    (waiting,) = children(server.pid)
    fresh = of(waiting)
    began = cpu_s(waiting.pid)
    await asyncio.sleep(load.idle_s * 0.9)  # later it would be ended
    idle = of(waiting)
    minutes = f"{load.idle_s * 0.9 / 60:.1f} minutes"
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


class Memory(NamedTuple):
    """Returns bytes."""

    rss: int = 0
    own: int = 0
    """Memory without mapped files such as the program, which all processes share."""


def of(process: psutil.Process) -> Memory:
    """Returns the memory of a process; 0 if it has ended."""
    try:
        info = process.memory_info()
    except psutil.Error:
        return Memory()
    return Memory(info.rss, info.rss - getattr(info, "shared", 0))


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


async def _still(server: Server) -> None:
    """Waits until processes have ended and started."""
    before, since = cpu_s(server.pid), time.monotonic()
    while time.monotonic() - since < _STILL_S:
        await asyncio.sleep(_LOOK_S)
        if (now := cpu_s(server.pid)) - before > 0.02:
            before, since = now, time.monotonic()
