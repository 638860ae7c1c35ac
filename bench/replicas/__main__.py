"""Kills each process of a deployment in turn under streams, and counts what clients lose.

    python -m bench.replicas --rounds 20 --streams 50
    python -m bench.replicas --outage

Three gateways with the same settings, two llama-servers with a small model whose prompts are rendered here, Redis and
PostgreSQL, all on loopback, and nginx in front of the gateways with deploy/nginx.conf. Every round ends each process by
SIGKILL, and starts it again a second later. Required:

- each request that was accepted gets its first byte;
- of streams whose llama-server was killed, 99 % go on with the text of an undisturbed run at temperature 0;
- streams of a killed gateway end with an error or a broken connection, never as if they were complete;
- `previous_response_id` continues on any gateway.

`--outage` stops and then kills Redis and PostgreSQL for ten seconds each instead: requests without state go on, others
get status 503 with retry-after. `--traffic` measures what undisturbed requests ask of the stores. The exit status is 1
if something is violated. Needs redis-server, PostgreSQL, nginx and llama-server.
"""

import argparse
import asyncio
import math
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "tests"))

from bench.replicas.programs import Deployment, deployment
from bench.replicas.streams import Clients, Stream, StreamOutcomes
from bench.replicas.traffic import measure_traffic

DOWN_S: Final = 1.0
OUTAGE_S: Final = 10.0
CONTINUED: Final = 0.99
"""Required share of the streams of a killed llama-server."""
BUSY: Final = 0.8
"""Share of the clients that read text when a process is killed."""
CHAINS: Final = 6
_WAIT_S: Final = 180.0


async def _until_busy(found: Deployment, clients: Clients, streams: int) -> None:
    """Waits until most clients read text, and each gateway and llama-server has some of them.

    Raises: TimeoutError: that was not so in time.
    """
    async with asyncio.timeout(_WAIT_S):
        while True:
            busy = [each for each in clients.running if each.text]
            upstreams, gateways = {each.upstream for each in busy}, {each.gateway for each in busy}
            used = upstreams >= {each.name for each in found.llamas} and gateways >= {g.port for g in found.gateways}
            if used and len(busy) >= BUSY * streams:
                return
            await asyncio.sleep(0.02)


async def _until_ended(clients: Clients, streams: Sequence[Stream]) -> None:
    """Waits for the end of these streams, so that each belongs to one kill."""
    async with asyncio.timeout(_WAIT_S):
        while any(each is running for each in streams for running in clients.running):
            await asyncio.sleep(0.05)


async def kill_in_turn(found: Deployment, clients: Clients, rounds: int, streams: int, minutes: float) -> None:
    """Kills each process once in each round.

    Args:
        found: the processes.
        clients: their clients, which have started.
        rounds: number of rounds.
        streams: number of clients that stream.
        minutes: time after which no further process is killed.
    """
    until_s = time.monotonic() + 60 * minutes
    for number in range(rounds):
        for victim in found.programs:
            if time.monotonic() > until_s:
                print(f"stopped in round {number + 1}, after {minutes:g} minutes", file=sys.stderr, flush=True)
                return
            await _until_busy(found, clients, streams)
            clients.on_kill("llama" if victim in found.llamas else "gateway", victim.name, victim.port)
            cut = clients.cut_by(victim.name if victim in found.llamas else victim.port)
            await victim.kill()
            await asyncio.sleep(DOWN_S)
            began_s = time.monotonic()
            await victim.start()
            line = f"round {number + 1}: {victim.name} killed under {len(cut)} streams"
            print(f"{line}, back in {time.monotonic() - began_s:.1f} s", file=sys.stderr, flush=True)
            await _until_ended(clients, cut)


async def stop_stores(found: Deployment, clients: Clients, streams: int) -> None:
    """Stops and then kills each store for ten seconds.

    Args:
        found: the processes.
        clients: their clients, which have started.
        streams: number of clients that stream.
    """
    for store in (found.redis, found.postgresql):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            await _until_busy(found, clients, streams)
            before, seen = clients.results.counts.total(), dict(clients.chains)
            store.signal(number)
            await asyncio.sleep(OUTAGE_S)
            during = clients.results.counts.total() - before
            store.signal(signal.SIGCONT)
            await store.start()
            chains = {
                key: count - seen.get(key, 0) for key, count in clients.chains.items() if count > seen.get(key, 0)
            }
            line = f"{store.name} {signal.Signals(number).name} for {OUTAGE_S:g} s: {during} streams ended meanwhile"
            print(f"{line}; {chains}", file=sys.stderr, flush=True)


def violations(results: StreamOutcomes, clients: Clients) -> Iterator[str]:
    """Yields the violated requirements."""
    counts = results.counts
    if refused := sum(count for (_, outcome), count in counts.items() if outcome == "lost"):
        yield f"{refused} requests were lost before the first byte"
    if silent := sum(count for (_, outcome), count in counts.items() if outcome == "silent"):
        yield f"{silent} streams ended silently"
    cut = {outcome: count for (killed, outcome), count in counts.items() if killed == "llama"}
    if cut and cut.get("whole", 0) < CONTINUED * sum(cut.values()):
        same = cut.get("whole", 0)
        yield f"of {sum(cut.values())} streams of a killed llama-server, {same} went on with the same text"
    accepted = ("whole", "different")  # near ties of two tokens
    if other := {
        outcome: count for (killed, outcome), count in counts.items() if not killed and outcome not in accepted
    }:
        yield f"streams of processes that were not killed: {other}"
    expected = ("continued", "first response: 503 with retry-after", "continuation: 503 with retry-after")
    if failed := {what: count for what, count in clients.chains.items() if what not in expected}:
        yield f"stored responses: {failed}"


async def measure(
    rounds: int,
    streams: int,
    chains: int = CHAINS,
    minutes: float = math.inf,
    *,
    outage: bool = False,
    traffic: bool = False,
) -> bool:
    """Runs the deployment, prints what clients saw, and returns whether all requirements hold.

    Args:
        rounds: how often each process is killed.
        streams: number of clients that stream.
        chains: number of clients that continue stored responses.
        minutes: time after which no further process is killed.
        outage: whether the stores are stopped instead.
        traffic: whether the use of the stores is measured instead, undisturbed.
    """
    with tempfile.TemporaryDirectory(prefix="dragoman-replicas-", dir="/tmp") as name:
        async with deployment(Path(name), streams + chains, shared=chains > 0) as found:
            clients = Clients(found.url, found.key)
            if traffic:
                print("\n".join(await measure_traffic(found, streams)))
                return True
            if unstable := await clients.learn(streams):
                print(f"{unstable} prompts left out, whose text is not always the same", file=sys.stderr, flush=True)
            began_s = time.monotonic()
            clients.start(streams, chains)
            try:
                if outage:
                    await stop_stores(found, clients, streams)
                else:
                    await kill_in_turn(found, clients, rounds, streams, minutes)
            finally:
                await clients.stop()
    for (killed, outcome), count in sorted(clients.results.counts.items()):
        print(f"streams, {killed or 'nothing'} killed: {count} {outcome}")
    for what, count in sorted(clients.chains.items()):
        print(f"stored responses: {count} {what}")
    print(f"{time.monotonic() - began_s:.0f} s")
    for detail, count in [*clients.results.details.most_common(20), *clients.chain_errors.most_common(20)]:
        print(f"  {count} x {detail}", file=sys.stderr)
    found_violations = list(violations(clients.results, clients))
    print("\n".join([*found_violations, "FAILED" if found_violations else "PASSED"]))
    return not found_violations


def main() -> int:
    """Runs the command; the exit status is 1 if a requirement is violated."""
    parser = argparse.ArgumentParser(prog="python -m bench.replicas", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument(
        "--chains", type=int, default=CHAINS, help="clients that continue stored responses; 0: no shared state"
    )
    parser.add_argument("--minutes", type=float, default=math.inf, help="kill nothing more after this time")
    parser.add_argument("--outage", action="store_true", help="stop the stores for ten seconds each instead")
    parser.add_argument("--traffic", action="store_true", help="measure what requests ask of the stores instead")
    args = parser.parse_args()
    modes = {"outage": args.outage, "traffic": args.traffic}
    return 0 if asyncio.run(measure(args.rounds, args.streams, args.chains, args.minutes, **modes)) else 1


if __name__ == "__main__":
    sys.exit(main())
