"""The console of gateway processes: one shows the exchanges of all, and an open page does not delay their end."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
import pytest

from dragoman.console.workers import ConsoleFolder
from support.console import API, CHANGE
from support.gateway import CHAT, DEADLINE_S, Gateway, running, until
from support.http_client import blocking_http_client
from support.scripted_backend import in_thread, plain

SETTINGS = {"embedded.enabled": "false", "server.graceful_shutdown_s": 10 * DEADLINE_S}
ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with in_thread(plain) as url:
        yield f"{url}/v1"


def rows_of(lines: Iterator[str]) -> Iterator[list[dict[str, Any]]]:
    yield from (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))


def ask(gateway: Gateway) -> str:
    """The id of a request over a connection of its own, which any process may accept."""
    return gateway.post(CHAT, ASKED).headers["x-request-id"]


def get(gateway: Gateway, path: str) -> Any:
    """The answer over a connection of its own."""
    with gateway.client() as client:
        return client.get(path).json()


def test_path_of_the_socket_fits_in_the_longest_private_folder() -> None:
    longest = Path("/") / ("t" * 59) / "dragoman-12345678"
    path = longest / "console" / "w-4194304"
    assert len(os.fsencode(path)) <= 103
    with TemporaryDirectory() as folder:
        assert ConsoleFolder(Path(folder)).own_socket().name == f"w-{os.getpid()}"


def test_page_shows_and_captures_the_exchanges_of_all_processes(upstream: str, tmp_path: Path) -> None:
    settings = {**SETTINGS, "server.workers": 2}
    with (
        running(tmp_path, "--upstream", upstream, settings=settings) as gateway,
        blocking_http_client(gateway.url) as client,
        client.stream("GET", f"{API}/traffic/stream") as stream,
    ):
        seen: dict[str, dict[str, Any]] = {}
        threading.Thread(target=follow, args=(stream, seen), daemon=True).start()
        assert client.put(f"{API}/capture", json={"on": True}, headers=CHANGE).json()["mode"] == "memory"
        asked: list[str] = []

        def all_are_captured() -> bool:
            asked.append(ask(gateway))
            newest = [seen.get(id, {}) for id in asked[-16:]]
            return len(newest) == 16 and all(row.get("is_captured") for row in newest[:-1])

        until(all_are_captured)
        until(lambda: all(seen.get(id, {}).get("state") == "done" for id in asked))
        assert len({get(gateway, "/health")["process"] for _ in range(32)}) == 2
        rows = get(gateway, f"{API}/settings")["settings"]
        assert {row["key"]: row["origin"] for row in rows}["upstreams.upstream.url"] == "command line"
        assert client.put(f"{API}/capture", json={"on": False}, headers=CHANGE).json()["mode"] == "off"
        until(lambda: all(get(gateway, f"{API}/state")["capture"]["mode"] == "off" for _ in range(16)))


def follow(stream: httpx2.Response, seen: dict[str, dict[str, Any]]) -> None:
    """Reads the stream to its end."""
    with suppress(httpx2.HTTPError):
        for rows in rows_of(stream.iter_lines()):
            seen |= {row["id"]: row for row in rows}


@pytest.mark.parametrize("workers", [1, 2])
def test_an_open_page_does_not_delay_the_end(workers: int, upstream: str, tmp_path: Path) -> None:
    with (
        running(tmp_path, "--upstream", upstream, settings={**SETTINGS, "server.workers": workers}) as gateway,
        blocking_http_client(gateway.url) as client,
        client.stream("GET", f"{API}/traffic/stream") as stream,
    ):
        lines = stream.iter_lines()
        assert next(rows_of(lines)) == []
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.ended() == 0
    assert "running answer" not in "".join(gateway.lines)
