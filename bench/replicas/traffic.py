"""What an undisturbed request asks of the stores: commands at Redis, transactions and written bytes at PostgreSQL."""

import asyncio
from typing import NamedTuple

import psycopg
import redis

from bench.replicas.programs import Deployment
from bench.replicas.streams import Clients

SECONDS = 15.0


class StoreCounts(NamedTuple):
    """What the stores have counted since their start."""

    redis_commands: int
    redis_bytes: int
    """Received and sent."""
    transactions: int
    wal_bytes: int


def _counts(found: Deployment) -> StoreCounts:
    with redis.Redis(port=found.redis.port) as client:
        info = client.info("stats")
    where = {"host": "127.0.0.1", "port": found.postgresql.port, "user": "postgres"}
    with psycopg.connect(**where) as connection:  # type: ignore[arg-type]
        row = connection.execute(
            "SELECT sum(xact_commit), pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') FROM pg_stat_database"
        ).fetchone()
    assert row is not None
    sent = int(info["total_net_input_bytes"]) + int(info["total_net_output_bytes"])
    return StoreCounts(int(info["total_commands_processed"]), sent, int(row[0]), int(row[1]))


async def measure_traffic(found: Deployment, streams: int) -> list[str]:
    """Returns a line for each kind of request.

    Args:
        found: the deployment.
        streams: number of clients.
    """
    kinds = {"chat": (found.key, streams, 0), "chat, key with limits": (found.limited_key, streams, 0)}
    kinds["stored response or its continuation"] = (found.key, 0, streams)
    lines = []
    for kind, (key, chats, chains) in kinds.items():
        clients = Clients(found.url, key)
        before = await asyncio.to_thread(_counts, found)
        clients.start(chats, chains)
        await asyncio.sleep(SECONDS)
        await clients.stop()
        spent = [after - first for first, after in zip(before, await asyncio.to_thread(_counts, found), strict=True)]
        requests = max(1, clients.results.counts.total() + 2 * clients.chains.total())
        each = ", ".join(
            f"{count / requests:,.1f} {name.replace('_', ' ')}"
            for count, name in zip(spent, StoreCounts._fields, strict=True)
        )
        lines.append(f"{kind}: {requests} requests; each {each}")
    return lines
