"""Limits and budgets of keys hold over three gateways that share Redis and PostgreSQL; each acts as a machine.

clients ─HTTP→ 3 × `dragoman serve` ─→ Debian's redis-server, PostgreSQL
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support import postgresql, redis_server
from support.gateway import CHAT, Gateway, http_request, until
from support.scripted_backend import in_thread
from support.workers import Connection, HeldScript, connections

pytestmark = [
    pytest.mark.skipif(redis_server.PROGRAM is None, reason="redis-server is not installed"),
    pytest.mark.skipif(postgresql.programs() is None, reason="PostgreSQL is not installed (Debian: postgresql)"),
]
REPLICAS = 3
REQUESTS = 10
SLOTS = 4
BUDGETED = "the-secret-of-alice"
CONFIG = f"""
[prices."*"]
output_usd_per_million = 10_000.0
[keys.many]
secret = "the-secret-of-many"
requests_per_minute = {REQUESTS}
[keys.parallel]
secret = "the-secret-of-parallel"
max_concurrency = {SLOTS}
[keys.alice]
secret = "{BUDGETED}"
budget_usd_per_day = 1.0
"""


@pytest.fixture
def script() -> HeldScript:
    return HeldScript()


@pytest.fixture
def database() -> Iterator[str]:
    with postgresql.running() as server:
        yield server.new_database()


@pytest.fixture
def redis() -> Iterator[redis_server.RedisServer]:
    with redis_server.running() as server:
        yield server


@pytest.fixture
def replicas(
    script: HeldScript, tmp_path: Path, redis: redis_server.RedisServer, database: str
) -> Iterator[list[Gateway]]:
    settings = {"embedded.enabled": "false", "state.url": redis.url, "state.database_url": database}
    with ExitStack() as stack:
        url = stack.enter_context(in_thread(script))
        started = []
        for number in range(REPLICAS):
            home = tmp_path / str(number)
            home.mkdir()
            config = home / "config.toml"
            config.write_text(CONFIG)
            config.chmod(0o600)
            gateway = Gateway(home, "--upstream", f"{url}/v1", "--config", str(config), settings=settings)
            stack.callback(gateway.ended)
            stack.callback(gateway.process.kill)
            started.append(gateway)
        stack.callback(script.go.set)
        yield [gateway.ready() for gateway in started]


def send(connection: Connection, secret: str, max_tokens: int = 10) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    body = json.dumps({"model": "m", "stream": True, "max_tokens": max_tokens, "messages": messages})
    connection.send(http_request(CHAT, body.encode(), authorization=f"Bearer {secret}"))


def status(connection: Connection) -> int:
    """The status of the response that begins."""
    return int(connection.read_to(b"\r\n").split()[1])


def race(replicas: list[Gateway], each: int, secret: str, max_tokens: int = 10) -> Counter[int]:
    """The statuses of requests to all gateways at once, whose responses stay open until the connections are closed."""
    with ExitStack() as stack:
        opened = [stack.enter_context(connections(gateway, each)) for gateway in replicas]
        turns = [connection for turn in zip(*opened, strict=True) for connection in turn]
        for connection in turns:
            send(connection, secret, max_tokens)
        return Counter(status(connection) for connection in turns)


def test_limits_and_budgets_hold_in_a_race(
    replicas: list[Gateway], script: HeldScript, redis: redis_server.RedisServer, database: str
) -> None:
    """Each request with a budget reserves 0.4 of one dollar, so there is room for two."""
    assert race(replicas, 12, "the-secret-of-many") == {200: REQUESTS, 429: 12 * REPLICAS - REQUESTS}
    assert race(replicas, 12, "the-secret-of-parallel") == {200: SLOTS, 429: 12 * REPLICAS - SLOTS}
    assert race(replicas, 12, BUDGETED, 40) == {200: 2, 429: 12 * REPLICAS - 2}
    until(lambda: not script.running, "the end of the responses")
    _kill_one_that_reserves(replicas, database)
    _stop_redis(replicas, redis)


def _kill_one_that_reserves(replicas: list[Gateway], database: str) -> None:
    """What a killed gateway has reserved counts until its lease ends, whose time has passed for the test."""
    import psycopg

    killed, other, _ = replicas
    with connections(killed, 2) as of_killed, connections(other, 2) as of_other:
        until(lambda: not _reserved(database), "the end of all reservations")
        for connection in of_killed:
            send(connection, BUDGETED, 40)
            assert status(connection) == 200
        killed.process.kill()
        send(of_other[0], BUDGETED, 40)
        assert status(of_other[0]) == 429
        with psycopg.connect(database, autocommit=True) as admin:
            admin.execute(
                "UPDATE dragoman_usage_owners SET expires_at = now() WHERE owner IN "
                "(SELECT owner FROM dragoman_usage_reserved)"
            )
        send(of_other[1], BUDGETED, 40)
        assert status(of_other[1]) == 200


def _stop_redis(replicas: list[Gateway], redis: redis_server.RedisServer) -> None:
    """Without Redis, each gateway counts minutes by itself; budgets are in PostgreSQL."""
    redis.kill()
    _, one, two = replicas
    assert race([one, two], 12, "the-secret-of-many") == {200: 2 * REQUESTS, 429: 4}


def _reserved(database: str) -> int:
    import psycopg

    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT count(*) FROM dragoman_usage_reserved").fetchone()
    return row[0] if row else 0
