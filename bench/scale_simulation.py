"""What 10,000 model replicas need, and what happens when some of them are lost: arithmetic and a simulation.

    python -m bench.scale_simulation
    python -m bench.scale_simulation --replicas 2000 --failing 0.2 --seed 2

The capacity model multiplies costs that were measured on one machine (docs/performance.md, docs/scale.md) with a
workload. The simulation has sessions with growing prompts, replicas that read prompts one after the other, and the
choice of `affinity`: the replica that has read the prompt, unless it is that much busier. In the middle of a run, some
replicas are lost; their running streams are continued elsewhere, where the whole prompt is read again. It simulates no
network, no batching of decoding, and no retries of clients.
"""

import argparse
import heapq
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dragoman.affinity.prefix_affinity import EXCESS, EXCESS_RATIO, PrefixAffinity
from dragoman.affinity.prompt_blocks import PromptBlocks


class Workload(NamedTuple):
    """What each model replica does."""

    streams: float = 32.0
    """Running responses."""
    tokens_per_s: float = 40.0
    """Of one stream."""
    output_tokens: float = 400.0
    sessions_per_stream: float = 4.0
    """Conversations for each running response: the others wait for a user or a tool."""
    deltas_per_write: float = 1.0


class Costs(NamedTuple):
    """What one gateway process needs; CPU times in microseconds."""

    request_us: float = 640.0
    delta_us: float = 90.0
    batched_delta_us: float = 23.0
    """Of a delta, if the upstream server sends eight at once."""
    idle_mb: float = 47.0
    stream_kb: float = 49.0
    core_share: float = 0.7
    """Share of a core that is used, so that one gateway in three may fail."""
    state_ops: float = 13.0
    """Commands at Redis for a request of a key with limits."""
    state_writes: float = 2.5
    """Transactions at PostgreSQL for such a request, its record included (`bench.replicas --traffic`)."""
    blocks: float = 100.0
    """Of a conversation, in the prefix map."""
    block_bytes: float = 300.0


class Limits(NamedTuple):
    """What single servers reach, in operations per second."""

    redis: float = 100_000.0
    postgresql: float = 3_800.0


ZIPF: Final = 1.1
KEYS: Final = 100_000
PREFILL_TOKENS_PER_S: Final = 8_000.0
NEW_TOKENS: Final = 500.0
"""Tokens of a turn that no replica has read."""
PROMPT_TOKENS: Final = (2_000, 14_000)
DECODE_S: Final = 10.0
DETECT_S: Final = 0.5
"""Time until gateways notice that a replica is gone."""
SESSIONS: Final = 20
"""Of each simulated replica."""
LOAD: Final = 0.56
"""Requests per second and replica: it reads prompts in 4 % of its time if all are cached, in 56 % if none is."""
LOST_AT_S: Final = 60.0
END_S: Final = 120.0


def capacity(replicas: int, work: Workload, costs: Costs, limits: Limits) -> list[tuple[str, str]]:
    """Returns what so many model replicas need.

    Args:
        replicas: number of model replicas.
        work: what each of them does.
        costs: what gateways need.
        limits: what single stores reach.
    """
    streams = replicas * work.streams
    requests = streams * work.tokens_per_s / work.output_tokens
    delta_us = costs.delta_us if work.deltas_per_write < 8 else costs.batched_delta_us
    cores = requests * (costs.request_us + work.output_tokens * delta_us) / 1e6 / costs.core_share
    gateways = max(2, round(cores + 0.5))
    memory_mb = costs.idle_mb + streams / gateways * costs.stream_kb / 1000
    sessions = streams * work.sessions_per_stream
    map_gb = sessions * costs.blocks * costs.block_bytes / 1e9
    hot = requests * costs.state_ops * zipf_share()
    return [
        ("requests/s", f"{requests:,.0f}"),
        ("streams", f"{streams:,.0f}"),
        ("gateway processes, a core each", f"{gateways:,}"),
        ("memory of a gateway", f"{memory_mb:,.0f} MB"),
        ("Redis commands/s", _share_text(requests * costs.state_ops, limits.redis)),
        ("Redis commands/s of the busiest key", _share_text(hot, limits.redis)),
        ("PostgreSQL transactions/s", _share_text(requests * costs.state_writes, limits.postgresql)),
        ("connections from gateways to replicas, at most", f"{gateways * replicas:,}"),
        ("prefix map for all sessions, in each gateway", f"{map_gb:,.2f} GB"),
    ]


def _share_text(needed: float, limit: float) -> str:
    return f"{needed:,.0f} ({needed / limit:.0%} of one server)"


def zipf_share() -> float:
    """Returns the share of the busiest API key in all requests."""
    total: float = sum(rank**-ZIPF for rank in range(1, KEYS + 1))
    return 1 / total


def choice_us(replicas: int, rounds: int = 20) -> float:
    """Returns the CPU time of one choice among so many replicas of one model, in microseconds.

    Args:
        replicas: number of replicas.
        rounds: number of choices.
    """
    affinity, loads = PrefixAffinity(), {f"r{number}": float(number % 7) for number in range(replicas)}
    blocks = PromptBlocks(tuple(range(100)), tuple(range(256, 25_601, 256)), 25_900, 1)
    affinity.note(blocks, "r0")
    began_ns = time.process_time_ns()
    for _ in range(rounds):
        affinity.choose(blocks, loads)
    return (time.process_time_ns() - began_ns) / rounds / 1000


@dataclass
class Window:
    """One second of the simulation."""

    first_token_s: list[float] = field(default_factory=list)
    hits: int = 0
    read_tokens: float = 0.0


class Simulation:
    """Sessions, replicas, and the requests between them."""

    def __init__(self, replicas: int, cell: int, failing: float, seed: int) -> None:
        """
        Args:
            replicas: number of replicas.
            cell: replicas that one session may use; sessions belong to cells.
            failing: share of the replicas that are lost.
            seed: of all random numbers.
        """
        self._random = random.Random(seed)
        self._cell, self._failing = cell, failing
        self._replicas = replicas
        self.active = [0] * replicas
        self._by_load: list[list[dict[int, None]]] = [
            [dict.fromkeys(range(first, min(first + cell, replicas)))] for first in range(0, replicas, cell)
        ]
        """Of each cell, the replicas that are left by the number of their requests; an ordered set."""
        self._alive = [True] * replicas
        self._free_at_s = [0.0] * replicas
        """When each replica has read all prompts that wait."""
        self._running: list[set[int]] = [set() for _ in range(replicas)]
        sessions = replicas * SESSIONS
        self._tokens = [self._random.uniform(*PROMPT_TOKENS) for _ in range(sessions)]
        self._home = [self._first_replica(session) for session in range(sessions)]
        """The replica that has read the prompt of each session; its running begins with a warm cache."""
        self._requests: dict[int, tuple[int, int, float]] = {}
        """Session, replica and end of running requests."""
        self._ends: list[tuple[float, int]] = []
        self._number = 0
        self.continued = 0
        self.busiest = 0
        """The most requests that a replica had after the loss."""
        self.windows = [Window() for _ in range(round(END_S) + 60)]

    def _cell_of(self, session: int) -> int:
        return session % len(self._by_load)

    def _first_replica(self, session: int) -> int:
        cell = self._cell_of(session)
        first = cell * self._cell
        return first + session // len(self._by_load) % (min(first + self._cell, self._replicas) - first)

    def run(self) -> None:
        """Runs it to its end."""
        sessions, rate = len(self._home), LOAD * self._replicas
        now_s, failed = 0.0, False
        while now_s < END_S:
            now_s += self._random.expovariate(rate)
            if not failed and now_s > LOST_AT_S:
                failed = True
                self._lose(now_s)
            while self._ends and self._ends[0][0] <= now_s:
                self._end(heapq.heappop(self._ends)[1])
            self._send(self._random.randrange(sessions), now_s, self._random.expovariate(1 / DECODE_S))

    def _choose(self, session: int) -> int:
        """As `PrefixAffinity.choose`, for a prompt that one replica has read as a whole."""
        by_load = self._by_load[self._cell_of(session)]
        least = next(load for load, replicas in enumerate(by_load) if replicas)
        home = self._home[session]
        if self._alive[home] and self.active[home] <= least + max(EXCESS, EXCESS_RATIO * least):
            return home
        return next(iter(by_load[least]))

    def _set_load(self, replica: int, load: int) -> None:
        """Notes how many requests a replica has; -1: it is lost."""
        by_load = self._by_load[replica // self._cell]
        by_load[self.active[replica]].pop(replica, None)
        self.active[replica] = max(load, 0)
        if load >= 0:
            while load >= len(by_load):
                by_load.append({})
            by_load[load][replica] = None

    def _send(self, session: int, now_s: float, decode_s: float, extra_tokens: float = 0.0) -> None:
        replica = self._choose(session)
        hit = replica == self._home[session] and not extra_tokens
        tokens = NEW_TOKENS if hit else self._tokens[session] + extra_tokens
        first_s = max(now_s, self._free_at_s[replica]) + tokens / PREFILL_TOKENS_PER_S
        self._free_at_s[replica] = first_s
        self._home[session] = replica
        window = self.windows[int(now_s)]
        window.first_token_s.append(first_s - now_s)
        window.hits += hit
        window.read_tokens += tokens
        self._number += 1
        self._requests[self._number] = (session, replica, first_s + decode_s)
        self._running[replica].add(self._number)
        self._set_load(replica, self.active[replica] + 1)
        if now_s > LOST_AT_S:
            self.busiest = max(self.busiest, self.active[replica])
        heapq.heappush(self._ends, (first_s + decode_s, self._number))

    def _end(self, number: int) -> None:
        if (request := self._requests.pop(number, None)) is not None:
            self._running[request[1]].discard(number)
            self._set_load(request[1], self.active[request[1]] - 1)

    def _lose(self, now_s: float) -> None:
        """Loses every so manyth replica; their streams continue elsewhere."""
        dead = range(round(self._failing * self._replicas))
        step = max(1, self._replicas // max(1, len(dead)))  # each cell loses its share
        cut: list[tuple[int, float]] = []
        for replica in (each * step for each in dead):
            self._alive[replica] = False
            self._set_load(replica, -1)
            for number in self._running[replica]:
                session, _, end_s = self._requests.pop(number)
                cut.append((session, max(0.1, end_s - now_s)))
            self._running[replica].clear()
        self.continued = len(cut)
        for session, left_s in cut:
            self._send(session, now_s + DETECT_S, min(left_s, DECODE_S), extra_tokens=1.0)


def percentile(values: Sequence[float], share: float) -> float:
    """Returns this percentile, 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def phase(windows: Sequence[Window]) -> str:
    """Returns times to the first token, hits of caches and tokens read in these seconds."""
    first = [each for window in windows for each in window.first_token_s]
    hits = sum(window.hits for window in windows) / max(1, len(first))
    read = statistics.fmean(window.read_tokens for window in windows)
    p50, p99 = percentile(first, 0.5), percentile(first, 0.99)
    return f"first token p50 {p50:.2f} s, p99 {p99:.2f} s; {hits:.1%} from caches; {read / 1e6:.1f} M tokens/s read"


def _duration(seconds: float | None) -> str:
    return "later than a minute" if seconds is None else f"after {seconds:.0f} s"


def recovered_s(windows: Sequence[Window]) -> float | None:
    """Returns the time after the loss from which the p99 is at most twice that before it for five seconds."""
    p99 = [percentile(window.first_token_s, 0.99) for window in windows[: round(END_S)]]
    at = round(LOST_AT_S)
    limit = 2 * statistics.median(p99[at - 30 : at])
    good = (second for second in range(at, len(p99) - 4) if max(p99[second : second + 5]) <= limit)
    return next((float(second - at) for second in good), None)


def report(replicas: int, cell: int, failing: float, seed: int) -> Iterator[str]:
    """Yields the lines about one simulation.

    Args:
        replicas: number of replicas.
        cell: replicas of one cell.
        failing: share that is lost.
        seed: of the random numbers.
    """
    simulation = Simulation(replicas, cell, failing, seed)
    simulation.run()
    at, windows = round(LOST_AT_S), simulation.windows
    yield f"{replicas:,} replicas in cells of {cell:,}, {failing:.0%} lost, {simulation.continued:,} streams continued"
    yield f"  before: {phase(windows[at - 30 : at])}"
    yield f"  5 s after: {phase(windows[at : at + 5])}"
    yield f"  30 s after: {phase(windows[at + 25 : at + 35])}"
    back = recovered_s(windows)
    yield f"  p99 again below twice its value before the loss: {_duration(back)}"
    alive_mean = statistics.fmean(simulation.active) / (1 - failing)
    yield f"  busiest replica after the loss: {simulation.busiest} requests, mean {alive_mean:.1f}"


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale_simulation", description=__doc__.partition("\n")[0])
    parser.add_argument("--replicas", type=int, default=10_000)
    parser.add_argument("--cell", type=int, default=8, help="replicas that a conversation may use")
    parser.add_argument("--failing", type=float, default=0.05, help="share of the replicas that are lost")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    sizes = [args.replicas // 100, args.replicas // 10, args.replicas]
    columns = [dict(capacity(size, Workload(), Costs(), Limits())) for size in sizes]
    print("| | " + " | ".join(f"{size:,} replicas" for size in sizes) + " |\n|---|" + "---:|" * len(sizes))
    for name in columns[0]:
        print(f"| {name} | " + " | ".join(column[name] for column in columns) + " |")
    print("choice of a replica: " + ", ".join(f"{choice_us(size):,.0f} µs among {size:,}" for size in (10, *sizes)))
    for cell, failing in (
        (args.replicas, args.failing),
        (100, args.failing),
        (args.cell, args.failing),
        (args.cell, 4 * args.failing),
    ):
        print("\n".join(report(args.replicas, cell, failing, args.seed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
