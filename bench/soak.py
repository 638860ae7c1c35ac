"""A long run of 200 clients: most read to the end, some disconnect, never read, or send half a request.

    python -m bench.soak --minutes 10
    python -m bench.soak --minutes 30 --workers 2

Required: each stream that is read to its end is complete, `/health` responds within 100 ms, no round of the event loop
takes 100 ms of CPU time (a request that arrives meanwhile waits as long), memory of no process grows after the first
third (of runs of at least two minutes; of at least twenty also by less than 1 MB in ten minutes), and the gateway
closes all descriptors and ends all requests, tasks and processes. The exit status is 1 if one of these fails.

The gateway is pinned to one core, and the clients, the upstream server and this program to the others, so that the
clients take none of its time. `--no-pin` disables that. `/health` is measured by wall time from another process, the
event loop by CPU time from inside (`loop`). Both limits require an otherwise idle machine. Several workers are neither
pinned nor measured from inside.
"""

import argparse
import asyncio
import contextlib
import http.client
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from fuzz.served import WAYS, Gateway, running

from bench.loop import Held

CLIENTS: Final = 200
PIECES: Final = 60
PAUSE_S: Final = 0.07
HEALTH_S: Final = 0.1
HELD_S: Final = HEALTH_S
"""Limit of the CPU time of one round of the event loop: a request that arrives meanwhile waits as long."""
GROWS: Final = 1.15
"""Limit of the memory after the first third, divided by that of the first third."""
PATHS: Final = {
    "/v1/chat/completions": b"data: [DONE]",
    "/v1/responses": b"event: response.completed",
    "/v1/messages": b"event: message_stop",
}
SLOPE_MB: Final = 1.0
"""Limit of the growth after the first third, in MB per ten minutes, by least squares."""
SLOPE_JUDGED_S: Final = 1200.0
"""In a shorter run, the noise of the memory is more than this limit."""
DRAIN_S: Final = 90.0
SPARE: Final = 8
"""Descriptors above the starting count that do not count as leaked."""
JUDGED_S: Final = 120.0
"""In a shorter run, a third is over before all clients have connected."""
COME_S: Final = 10.0
"""Time in which all clients connect."""
WAITS_S: Final = 5.0
"""Time that a silent client stays connected."""


@dataclass
class Found:
    """Results of the clients."""

    whole: int = 0
    left: int = 0
    lost: list[str] = field(default_factory=list)


class Seen(NamedTuple):
    """Samples of the process."""

    health_s: list[float]
    memory_mb: dict[int, list[tuple[float, float]]]
    """Of each process: times in seconds, and its memory."""


class Left(NamedTuple):
    """What the gateway has after the clients have left."""

    descriptors: Mapping[int, tuple[int, int]]
    """Of each process: before the clients, and after them."""
    requests: int
    tasks: int
    processes: Sequence[int]


def _request(chance: random.Random) -> tuple[str, bytes]:
    path = chance.choice(list(PATHS))
    tools = chance.random() < 0.5
    said = [{"role": "user", "content": "word " * chance.choice((5, 50, 2000))}]
    body: dict[str, object] = {"model": chance.choice(list(WAYS)), "stream": True, "store": False}
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    if path == "/v1/responses":
        body |= {"input": said}
        body |= {"tools": [{"type": "function", "name": "f0", "parameters": schema}]} if tools else {}
    else:
        body |= {"messages": said, "max_tokens": 999}
        chat = {"type": "function", "function": {"name": "f0", "parameters": schema}}
        one = chat if "chat" in path else {"name": "f0", "input_schema": schema}
        body |= {"tools": [one]} if tools else {}
        if "chat" not in path:
            del body["store"]
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\nconnection: close\r\n\r\n"
    return path, head.encode() + data


async def _client(port: int, until: float, found: Found, chance: random.Random) -> None:
    await asyncio.sleep(chance.random() * COME_S)
    while time.monotonic() < until:
        path, request = _request(chance)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
        except OSError as error:
            found.lost.append(f"no connection: {error}")
            await asyncio.sleep(1)
            continue
        try:
            await _exchange(reader, writer, path, request, found, chance)
        except (OSError, TimeoutError) as error:
            found.lost.append(f"{path}: {type(error).__name__} {error}")
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def _exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    path: str,
    request: bytes,
    found: Found,
    chance: random.Random,
) -> None:
    kind = chance.choices(("whole", "leaves", "never reads", "half"), (80, 14, 3, 3))[0]
    if kind == "half":
        writer.write(request[: chance.randrange(len(request))])
        await asyncio.sleep(chance.random() * WAITS_S)
        found.left += 1
        return
    writer.write(request)
    await writer.drain()
    if kind == "whole":
        async with asyncio.timeout(120):
            answer = await reader.read(-1)
        last = PATHS[path] in answer[-4000:]
        if answer.startswith(b"HTTP/1.1 200") and last:
            found.whole += 1
        else:
            found.lost.append(f"{path}: {answer[:60]!r} … {answer[-120:]!r}")
        return
    if kind == "leaves":
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(chance.random() * PIECES * PAUSE_S):
                await reader.read(-1)
    else:
        await asyncio.sleep(chance.random() * WAITS_S)
    found.left += 1


def _clients(port: int, minutes: float, clients: int, seed: int, told: "Connection") -> None:
    """Runs all clients, in a separate process."""

    async def run() -> Found:
        found, until = Found(), time.monotonic() + 60 * minutes
        await asyncio.gather(*(_client(port, until, found, random.Random(seed + n)) for n in range(clients)))
        return found

    told.send(asyncio.run(run()))


def _look(gateway: Gateway, done: Callable[[], bool]) -> Seen:
    """Samples health and memory four times a second."""
    seen, began_s = Seen([], {}), time.monotonic()
    while not done():
        asked_s = time.monotonic()
        _health(gateway)
        seen.health_s.append(time.monotonic() - asked_s)
        for pid, memory_mb in gateway.memory_mb().items():
            seen.memory_mb.setdefault(pid, []).append((asked_s - began_s, memory_mb))
        time.sleep(0.25)
    return seen


def _health(gateway: Gateway) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    try:
        connection.request("GET", "/health")
        health: dict[str, Any] = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return health


def _requests(gateway: Gateway) -> int:
    """Returns how many requests are running and waiting."""
    return sum(each["active"] + each["waiting"] for each in _health(gateway)["backends"])


def _descriptors(gateway: Gateway) -> dict[int, int]:
    return {process.pid: int(process.num_fds()) for process in gateway.processes()}


def _after(gateway: Gateway, before: Mapping[int, int]) -> tuple[dict[int, int], int]:
    """Returns open descriptors and requests after abandoned requests and idle upstream connections have timed out."""
    until = time.monotonic() + DRAIN_S
    while True:
        after, requests = _descriptors(gateway), _requests(gateway)
        closed = all(count <= before.get(pid, 0) + SPARE for pid, count in after.items())
        if (closed and not requests) or time.monotonic() > until:
            return after, requests
        time.sleep(1)


def _growth(samples: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Returns the maximum in the first third, after it, and the slope after it in MB per ten minutes."""
    third = len(samples) // 3
    early, late = ([mb for _, mb in part] for part in (samples[:third], samples[third:]))
    times = [at_s for at_s, _ in samples[third:]]
    slope = 600 * statistics.linear_regression(times, late).slope if len(late) > 1 else 0.0
    return max(early or [0]), max(late or [0]), slope


def _grown(seen: Seen, run_s: float) -> list[str]:
    """Returns the processes whose memory has grown."""
    wrong = []
    for pid, samples in seen.memory_mb.items():
        early, late, slope = _growth(samples)
        if run_s >= JUDGED_S and late > GROWS * early:
            wrong.append(f"memory of process {pid} grew from {early:.0f} to {late:.0f} MB")
        if run_s >= SLOPE_JUDGED_S and slope >= SLOPE_MB:
            wrong.append(f"memory of process {pid} grows by {slope:.2f} MB in ten minutes")
    return wrong


def _wrong(found: Found, seen: Seen, held: Held, left: Left, health_s: float, run_s: float) -> list[str]:
    """Returns the violated limits."""
    slow = sum(each > health_s for each in seen.health_s)
    return [
        *(f"lost: {each}" for each in found.lost[:5]),
        *([] if found.whole else ["no stream was read to its end"]),
        *([f"/health took over {1000 * health_s:g} ms {slow} times"] if slow else []),
        *([f"the event loop was held for {1000 * held.loop_s:.0f} ms"] if held.loop_s > HELD_S else []),
        *_grown(seen, run_s),
        *(
            f"descriptors of process {pid}: {before} before, {after} after"
            for pid, (before, after) in left.descriptors.items()
            if after > before + SPARE
        ),
        *([f"{left.requests} requests still run or wait"] if left.requests else []),
        *([f"{left.tasks} tasks are left"] if left.tasks else []),
        *([f"processes {left.processes} are left"] if left.processes else []),
    ]


def _pinned() -> str:
    """Pins this process and its children to all cores but one; returns that core, empty if there is only one."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return ""
    os.sched_setaffinity(0, cores[1:])
    return str(cores[0])


def main() -> int:
    """Runs the test and prints results and verdict; the exit status is 1 if a limit is violated."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--health-ms", type=float, default=1000 * HEALTH_S, help="limit of the time of /health")
    parser.add_argument("--no-pin", action="store_true", help="do not pin processes to cores")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, help="gateway processes")
    args = parser.parse_args()
    core = "" if args.no_pin or args.workers > 1 else _pinned()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with tempfile.TemporaryDirectory(prefix="dragoman-") as folder:
        file = Path(folder) / "held.json"
        program = ("bench.loop", str(file), core) if args.workers == 1 else ("dragoman",)
        settings = {"body_timeout_s": "10", "workers": str(args.workers)}
        with running(PAUSE_S, PIECES, program, **settings) as gateway:
            before, began_s = _descriptors(gateway), time.monotonic()
            given = (gateway.port, args.minutes, args.clients, args.seed, theirs)
            (clients := context.Process(target=_clients, args=given, daemon=True)).start()
            seen = _look(gateway, ours.poll)
            found: Found = ours.recv()
            clients.join()
            run_s = time.monotonic() - began_s
            after, requests = _after(gateway, before)
            processes = gateway.processes()
            gateway.close()
            faults = gateway.faults()
        held = msgspec.json.decode(file.read_bytes(), type=Held) if args.workers == 1 else Held()
    descriptors = {pid: (before.get(pid, 0), count) for pid, count in after.items()}
    left = Left(descriptors, requests, held.tasks, [each.pid for each in processes if each.is_running()])
    _print(found, seen, held, left, core)
    wrong = _wrong(found, seen, held, left, args.health_ms / 1000, run_s) + ([faults] if faults else [])
    for each in wrong:
        print(f"  {each}")
    print("FAILED" if wrong else "PASSED")
    return 1 if wrong else 0


def _print(found: Found, seen: Seen, held: Held, left: Left, core: str) -> None:
    """Prints the results."""
    looks = sorted(seen.health_s)
    p50, p99, most = (1000 * looks[min(len(looks) - 1, int(len(looks) * part))] for part in (0.5, 0.99, 1))
    print(f"{found.whole} streams whole, {found.left} clients left, {len(found.lost)} lost")
    print(f"/health: p50 {p50:.1f} ms, p99 {p99:.1f} ms, max {most:.1f} ms, of {len(looks)}")
    if held.ticks:
        rounds = ", ".join(f"{count} over {ms} ms" for ms, count in held.over.items())
        longest = f"longest hold {1000 * held.loop_s:.1f} ms of CPU time, {1000 * held.lag_s:.1f} ms late"
        print(f"event loop: {longest}; {rounds}; {held.tasks} tasks left")
        print(f"gateway: {held.cpu_s / held.wall_s:.0%} of {f'core {core}' if core else 'a core'}")
    for pid, samples in seen.memory_mb.items():
        early, late, slope = _growth(samples)
        grows = f"{late:.0f} MB after it, at the end {samples[-1][1]:.0f} MB, slope {slope:+.2f} MB per ten minutes"
        print(f"memory of process {pid}: {early:.0f} MB in the first third, {grows}")
    for pid, (before, after) in left.descriptors.items():
        print(f"descriptors of process {pid}: {before} before, {after} after")
    print(f"left: {left.requests} requests, {len(left.processes)} processes")


if __name__ == "__main__":
    sys.exit(main())
