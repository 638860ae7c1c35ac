"""Limits of keys are those of all gateway processes; what a killed one held is free again."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.gateway import CHAT, DEADLINE_S, Gateway, http_request, running, until
from support.scripted_backend import in_thread
from support.workers import Connection, HeldScript, connections

SECRET = "the-secret-of-alice"
ADMIN = "the-secret-of-admin"
REQUESTS = 12
SETTINGS = {"server.workers": 2, "server.graceful_shutdown_s": 10 * DEADLINE_S, "embedded.enabled": "false"}
CONFIG = f"""
[limits]
path = "usage.sqlite"
[prices."*"]
output_usd_per_million = 10_000.0
[keys.admin]
secret = "{ADMIN}"
admin = true
[keys.many]
secret = "the-secret-of-many"
requests_per_minute = {REQUESTS}
[keys.alice]
secret = "{SECRET}"
max_concurrency = 2
budget_usd_per_day = 1.0
"""


@pytest.fixture
def script() -> HeldScript:
    return HeldScript()


@pytest.fixture
def gateway(script: HeldScript, tmp_path: Path) -> Iterator[Gateway]:
    config = tmp_path / "config.toml"
    config.write_text(CONFIG)
    config.chmod(0o600)
    with in_thread(script) as url:
        arguments = ("--upstream", f"{url}/v1", "--config", str(config))
        with running(tmp_path, *arguments, settings=SETTINGS) as started:
            yield started
        script.go.set()


def send(connection: Connection, secret: str, max_tokens: int = 10) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    body = json.dumps({"model": "m", "stream": True, "max_tokens": max_tokens, "messages": messages})
    connection.send(http_request(CHAT, body.encode(), authorization=f"Bearer {secret}"))


def status(connection: Connection) -> int:
    """The status of the response that begins."""
    return int(connection.read_to(b"\r\n").split()[1])


def by_worker(opened: list[Connection]) -> list[list[Connection]]:
    """The connections of each worker."""
    found: dict[int, list[Connection]] = {}
    for each in opened:
        found.setdefault(each.worker(), []).append(each)
    assert len(found) == 2
    return [found[worker] for worker in sorted(found)]


def test_requests_of_a_minute_are_counted_over_all_workers(gateway: Gateway, script: HeldScript) -> None:
    script.go.set()
    with connections(gateway, 40, key=ADMIN) as opened:
        by_worker(opened)
        for each in opened:
            send(each, "the-secret-of-many")
        statuses = [status(each) for each in opened]
    assert sorted(statuses) == [200] * REQUESTS + [429] * (40 - REQUESTS)


def test_slots_and_budgets_of_a_killed_worker_are_free_again(gateway: Gateway, script: HeldScript) -> None:
    """Each request reserves 0.4 of one dollar, so there is room for two."""
    with connections(gateway, 24, key=ADMIN) as opened:
        one, two = by_worker(opened)
        killed = one[0].worker()
        for connections_of_worker in (one, two):
            send(connections_of_worker[0], SECRET, 40)
            assert status(connections_of_worker[0]) == 200
        for connections_of_worker in (one, two):
            send(connections_of_worker[1], SECRET, 40)
            assert status(connections_of_worker[1]) == 429
        os.kill(killed, signal.SIGKILL)
        gateway.line(f"(process {killed}) ended: signal SIGKILL; starting it again")
        send(two[2], SECRET, 40)
        assert status(two[2]) == 200
        send(two[3], SECRET, 40)
        assert status(two[3]) == 429
        script.go.set()
        until(lambda: not script.running, "the end of the responses")
