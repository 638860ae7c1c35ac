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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from fuzz.served import WAYS, Gateway, running

from bench.loop import LoopTimes

CLIENTS: Final = 200
DELTAS: Final = 60
PAUSE_S: Final = 0.07
MAX_HEALTH_S: Final = 0.1
MAX_ROUND_S: Final = MAX_HEALTH_S
"""Limit of the CPU time of one round of the event loop: a request that arrives meanwhile waits as long."""
MAX_GROWTH: Final = 1.15
"""Limit of the memory after the first third, divided by that of the first third."""
PATHS: Final = {
    "/v1/chat/completions": b"data: [DONE]",
    "/v1/responses": b"event: response.completed",
    "/v1/messages": b"event: message_stop",
}
MAX_SLOPE_MB: Final = 1.0
"""Limit of the growth after the first third, in MB per ten minutes, by least squares."""
MIN_SLOPE_RUN_S: Final = 1200.0
"""In a shorter run, the noise of the memory is more than this limit."""
DRAIN_S: Final = 90.0
SPARE_DESCRIPTORS: Final = 8
"""Descriptors above the starting count that do not count as leaked."""
MIN_MEMORY_RUN_S: Final = 120.0
"""In a shorter run, a third is over before all clients have connected."""
CONNECT_S: Final = 10.0
"""Time in which all clients connect."""
SILENT_S: Final = 5.0
"""Time that a silent client stays connected."""


@dataclass
class ClientResults:
    """Results of the clients."""

    complete: int = 0
    disconnected: int = 0
    errors: list[str] = field(default_factory=list)


class Samples(NamedTuple):
    """Samples of the process."""

    health_s: list[float]
    memory_mb: dict[int, list[tuple[float, float]]]
    """Of each process: times in seconds, and its memory."""


class Remains(NamedTuple):
    """What the gateway has after the clients have disconnected."""

    descriptors: Mapping[int, tuple[int, int]]
    """Open descriptors of each process: before the clients, and after them."""
    requests: int
    """Requests that still run or wait."""
    processes: Sequence[int]
    """Processes that are running after the gateway's end."""


class Measurement(NamedTuple):
    """What is judged at the end of the run."""

    results: ClientResults
    samples: Samples
    loop: LoopTimes
    """Zero with several workers."""
    remains: Remains
    run_s: float
    faults: str
    """End of the gateway's log if it has a traceback; otherwise empty."""


def _request(rng: random.Random) -> tuple[str, bytes]:
    path = rng.choice(list(PATHS))
    tools = rng.random() < 0.5
    messages = [{"role": "user", "content": "word " * rng.choice((5, 50, 2000))}]
    body: dict[str, object] = {"model": rng.choice(list(WAYS)), "stream": True, "store": False}
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    if path == "/v1/responses":
        body |= {"input": messages}
        body |= {"tools": [{"type": "function", "name": "f0", "parameters": schema}]} if tools else {}
    else:
        body |= {"messages": messages, "max_tokens": 999}
        chat = {"type": "function", "function": {"name": "f0", "parameters": schema}}
        one = chat if "chat" in path else {"name": "f0", "input_schema": schema}
        body |= {"tools": [one]} if tools else {}
        if "chat" not in path:
            del body["store"]
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\nconnection: close\r\n\r\n"
    return path, head.encode() + data


async def _client(port: int, until: float, results: ClientResults, rng: random.Random) -> None:
    await asyncio.sleep(rng.random() * CONNECT_S)
    while time.monotonic() < until:
        path, request = _request(rng)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
        except OSError as error:
            results.errors.append(f"no connection: {error}")
            await asyncio.sleep(1)
            continue
        try:
            await _exchange(reader, writer, path, request, results, rng)
        except (OSError, TimeoutError) as error:
            results.errors.append(f"{path}: {type(error).__name__} {error}")
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def _exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    path: str,
    request: bytes,
    results: ClientResults,
    rng: random.Random,
) -> None:
    behaviour = rng.choices(("complete", "disconnects", "never reads", "half"), (80, 14, 3, 3))[0]
    if behaviour == "half":
        writer.write(request[: rng.randrange(len(request))])
        await asyncio.sleep(rng.random() * SILENT_S)
        results.disconnected += 1
        return
    writer.write(request)
    await writer.drain()
    if behaviour == "complete":
        async with asyncio.timeout(120):
            answer = await reader.read(-1)
        last = PATHS[path] in answer[-4000:]
        if answer.startswith(b"HTTP/1.1 200") and last:
            results.complete += 1
        else:
            results.errors.append(f"{path}: {answer[:60]!r} … {answer[-120:]!r}")
        return
    if behaviour == "disconnects":
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(rng.random() * DELTAS * PAUSE_S):
                await reader.read(-1)
    else:
        await asyncio.sleep(rng.random() * SILENT_S)
    results.disconnected += 1


def _clients(port: int, minutes: float, clients: int, seed: int, channel: "Connection") -> None:
    """Runs all clients, in a separate process."""

    async def run() -> ClientResults:
        results, until = ClientResults(), time.monotonic() + 60 * minutes
        await asyncio.gather(*(_client(port, until, results, random.Random(seed + n)) for n in range(clients)))
        return results

    channel.send(asyncio.run(run()))


def _sample(gateway: Gateway, done: Callable[[], bool]) -> Samples:
    """Samples health and memory four times a second."""
    samples, began_s = Samples([], {}), time.monotonic()
    while not done():
        requested_s = time.monotonic()
        _health(gateway)
        samples.health_s.append(time.monotonic() - requested_s)
        for pid, memory_mb in gateway.memory_mb().items():
            samples.memory_mb.setdefault(pid, []).append((requested_s - began_s, memory_mb))
        time.sleep(0.25)
    return samples


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


def _drain(gateway: Gateway, before: Mapping[int, int]) -> tuple[dict[int, int], int]:
    """Returns open descriptors and requests after abandoned requests and idle upstream connections have timed out."""
    until = time.monotonic() + DRAIN_S
    while True:
        after, requests = _descriptors(gateway), _requests(gateway)
        closed = all(count <= before.get(pid, 0) + SPARE_DESCRIPTORS for pid, count in after.items())
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


def _memory_violations(samples: Samples, run_s: float) -> Iterator[str]:
    for pid, memory_mb in samples.memory_mb.items():
        early, late, slope = _growth(memory_mb)
        if run_s >= MIN_MEMORY_RUN_S and late > MAX_GROWTH * early:
            yield f"memory of process {pid} grew from {early:.0f} to {late:.0f} MB"
        if run_s >= MIN_SLOPE_RUN_S and slope >= MAX_SLOPE_MB:
            yield f"memory of process {pid} grows by {slope:.2f} MB in ten minutes"


def _violations(run: Measurement, health_s: float) -> list[str]:
    """Returns the violated limits."""
    remains, loop_s = run.remains, run.loop.loop_s
    slow = sum(each > health_s for each in run.samples.health_s)
    return [
        *(f"failed: {each}" for each in run.results.errors[:5]),
        *([] if run.results.complete else ["no stream was read to its end"]),
        *([f"/health took over {1000 * health_s:g} ms {slow} times"] if slow else []),
        *([f"a round of the event loop took {1000 * loop_s:.0f} ms of CPU time"] if loop_s > MAX_ROUND_S else []),
        *_memory_violations(run.samples, run.run_s),
        *(
            f"descriptors of process {pid}: {before} before, {after} after"
            for pid, (before, after) in remains.descriptors.items()
            if after > before + SPARE_DESCRIPTORS
        ),
        *([f"{remains.requests} requests still run or wait"] if remains.requests else []),
        *([f"{run.loop.tasks} tasks have not ended"] if run.loop.tasks else []),
        *([f"processes {remains.processes} have not ended"] if remains.processes else []),
        *([run.faults] if run.faults else []),
    ]


def _pin_to_other_cores() -> str:
    """Pins this process and its children to all cores but one; returns that core, empty if there is only one."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return ""
    os.sched_setaffinity(0, cores[1:])
    return str(cores[0])


def _measure(core: str, minutes: float, clients: int, seed: int, workers: int) -> Measurement:
    """Runs gateway and clients; `core`: the gateway's, empty: any."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe()
    with tempfile.TemporaryDirectory(prefix="dragoman-") as folder:
        file = Path(folder) / "loop.json"
        program = ("bench.loop", str(file), core) if workers == 1 else ("dragoman",)
        with running(PAUSE_S, DELTAS, program, body_timeout_s="10", workers=str(workers)) as gateway:
            before, began_s = _descriptors(gateway), time.monotonic()
            arguments = (gateway.port, minutes, clients, seed, sender)
            process = context.Process(target=_clients, args=arguments, daemon=True)
            process.start()
            samples = _sample(gateway, receiver.poll)
            results: ClientResults = receiver.recv()
            process.join()
            run_s = time.monotonic() - began_s
            after, requests = _drain(gateway, before)
            processes = gateway.processes()
            gateway.close()
            faults = gateway.faults()
        loop = msgspec.json.decode(file.read_bytes(), type=LoopTimes) if workers == 1 else LoopTimes()
    descriptors = {pid: (before.get(pid, 0), count) for pid, count in after.items()}
    remains = Remains(descriptors, requests, [each.pid for each in processes if each.is_running()])
    return Measurement(results, samples, loop, remains, run_s, faults)


def _report(run: Measurement, core: str) -> Iterator[str]:
    results, samples, loop, remains = run.results, run.samples, run.loop, run.remains
    failed = len(results.errors)
    yield f"clients: {results.complete} complete streams, {results.disconnected} disconnected, {failed} failed"
    health = sorted(1000 * each for each in samples.health_s)
    p50, p99 = (health[int(len(health) * part)] for part in (0.5, 0.99))
    yield f"/health: p50 {p50:.1f} ms, p99 {p99:.1f} ms, max {health[-1]:.1f} ms, of {len(health)}"
    if loop.ticks:
        rounds = ", ".join(f"{count} over {ms} ms" for ms, count in loop.long_rounds.items())
        yield f"event loop: at most {1000 * loop.loop_s:.1f} ms of CPU time, {1000 * loop.lag_s:.1f} ms late; {rounds}"
        yield f"gateway: {loop.cpu_s / loop.wall_s:.0%} of {f'core {core}' if core else 'a core'}"
    for pid, memory_mb in samples.memory_mb.items():
        early, late, slope = _growth(memory_mb)
        end = f"{late:.0f} MB after it, at the end {memory_mb[-1][1]:.0f} MB, slope {slope:+.2f} MB per ten minutes"
        yield f"memory of process {pid}: {early:.0f} MB in the first third, {end}"
    for pid, (before, after) in remains.descriptors.items():
        yield f"descriptors of process {pid}: {before} before, {after} after"
    running_processes = len(remains.processes)
    yield f"after it: {remains.requests} requests, {loop.tasks} tasks, {running_processes} processes"


def main() -> int:
    """Runs the test and prints results and verdict; the exit status is 1 if a limit is violated."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--health-ms", type=float, default=1000 * MAX_HEALTH_S, help="limit of the time of /health")
    parser.add_argument("--no-pin", action="store_true", help="do not pin processes to cores")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, help="gateway processes")
    args = parser.parse_args()
    core = "" if args.no_pin or args.workers > 1 else _pin_to_other_cores()
    run = _measure(core, args.minutes, args.clients, args.seed, args.workers)
    violations = _violations(run, args.health_ms / 1000)
    print("\n".join([*_report(run, core), *(f"  {each}" for each in violations)]))
    print("FAILED" if violations else "PASSED")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
