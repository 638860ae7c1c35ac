"""Requests per second of two gateway processes, compared with one, on requests that are not streamed.

    python -m bench.workers --rounds 5 [--pin]

Client and upstream server (`proxies/load.c`) take a part of the cores, and so do other programs. So three figures of
each run are compared, in pairs one after the other:

    requests/s    as measured
    CPU           time of all gateway processes for a request
    free cores    requests/s if each worker has a core of its own: requests per CPU second of the busiest worker

A core that several programs share makes each of them slower, as they replace each other's data in its caches. With
`--pin` all gateway processes run on one core, also the only one, so CPU times differ only by what they do.
"""

import argparse
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.proxies import contenders
from bench.proxies.load import LoadProgram, load_program
from bench.proxies.processes import ServerProcess, cpu_ns, free_port, raise_descriptor_limit, running
from bench.proxies.scenarios import PATHS, request_body, request_bytes

MODELS: Final = ("passthrough", "parsed")
CONNECTIONS: Final = (16, 32, 64)
MILLIS: Final = 2000
_GATEWAY: Final = "gateway_worker"


class LoadResult(NamedTuple):
    """Result of one run of load."""

    per_s: float
    cpu_us: float
    """Of one request."""
    free_per_s: float
    """Requests per CPU second of the busiest worker."""
    share: float
    """Share of the busiest worker in the CPU time of all workers."""


Results = dict[tuple[str, int], list[tuple[LoadResult, LoadResult]]]
"""Pairs of one and of two workers, by model and number of connections."""


@contextmanager
def _gateway(workers: int, upstream: int, *, pin: bool) -> Iterator[ServerProcess]:
    with tempfile.TemporaryDirectory(prefix="dragoman-") as name:
        folder, port = Path(name), free_port()
        start = contenders.dragoman(folder, port, upstream)
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "DRAGOMAN_"))}
        environ |= {**start.environ, "DRAGOMAN_SERVER_WORKERS": str(workers), "DRAGOMAN_HOME": name}
        with running(start.command, {**environ, "DRAGOMAN_EMBEDDED_ENABLED": "false"}, port, folder, pin=pin) as server:
            yield server


def _workers(server: ServerProcess) -> list[int]:
    """Returns the processes that answer: those of the gateway, or the only one."""
    tasks = Path(f"/proc/{server.pid}/task").glob("*/children")
    children = [int(pid) for task in tasks for pid in task.read_text().split()]
    return [pid for pid in children if _GATEWAY in Path(f"/proc/{pid}/cmdline").read_text()] or [server.pid]


def _run(load: LoadProgram, server: ServerProcess, model: str, connections: int, millis: int) -> LoadResult:
    """Sends requests for some milliseconds.

    Raises: RuntimeError: a response is wrong.
    """
    body = request_body("chat", f"{model}/bench", "bench-n1", stream=False)
    workers, before = _workers(server), cpu_ns(server.pid)
    each_before = {pid: cpu_ns(pid) for pid in workers}
    outcome = load.run(server.port, request_bytes(PATHS["chat"], body), conns=connections, millis=millis)
    if outcome.failed or outcome.short or not outcome.done:
        raise RuntimeError(f"{model}: {outcome.failed} requests failed (status {outcome.status})")
    spent = [cpu_ns(pid) - each_before[pid] for pid in workers]
    return LoadResult(
        outcome.done / outcome.seconds,
        (cpu_ns(server.pid) - before) / outcome.done / 1000,
        outcome.done / max(spent) * 1e9,
        max(spent) / sum(spent),
    )


def measure(rounds: int, millis: int = MILLIS, *, pin: bool = False) -> Results:
    """Returns the results of all rounds."""
    raise_descriptor_limit()
    found: Results = {}
    with load_program() as load, _gateway(1, load.port, pin=pin) as one, _gateway(2, load.port, pin=pin) as two:
        servers = {1: one, 2: two}
        for model in MODELS:
            for server in servers.values():
                _run(load, server, model, CONNECTIONS[0], millis // 4)
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            for model in MODELS:
                for connections in CONNECTIONS:
                    order = random.sample((1, 2), 2)
                    runs = {count: _run(load, servers[count], model, connections, millis) for count in order}
                    found.setdefault((model, connections), []).append((runs[1], runs[2]))
    return found


def table(found: Results) -> str:
    """Returns medians of the runs, and of the ratios of each pair, with the best ratio."""
    lines = ["| requests | connections | requests/s | ratio | CPU | ratio | free cores, ratio | busiest worker |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for (model, connections), pairs in found.items():
        per_s = [statistics.median(run.per_s for run in runs) for runs in zip(*pairs, strict=True)]
        cpu = [statistics.median(run.cpu_us for run in runs) for runs in zip(*pairs, strict=True)]
        ratios = [two.per_s / one.per_s for one, two in pairs]
        cpu_ratio = statistics.median(two.cpu_us / one.cpu_us for one, two in pairs)
        free = [two.free_per_s / one.free_per_s for one, two in pairs]
        share = statistics.median(two.share for _, two in pairs)
        cells = [
            *(model, str(connections), f"{per_s[0]:.0f} / {per_s[1]:.0f}"),
            f"{statistics.median(ratios):.2f}, best {max(ratios):.2f}",
            f"{cpu[0]:.0f} / {cpu[1]:.0f} µs",
            *(f"{cpu_ratio:.2f}", f"{statistics.median(free):.2f}, best {max(free):.2f}", f"{share:.0%}"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m bench.workers", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--millis", type=int, default=MILLIS, help="duration of a run")
    parser.add_argument("--pin", action="store_true", help="run all gateway processes on one core")
    args = parser.parse_args()
    print(table(measure(args.rounds, args.millis, pin=args.pin)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
