"""A gateway that drains: /ready reports it, requests are still served, and connections close after their response."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from support.gateway import DEADLINE_S, Gateway, running, until
from support.scripted_backend import in_thread
from support.workers import Connection, HeldScript

SETTINGS = {"embedded.enabled": "false", "server.graceful_shutdown_s": 10 * DEADLINE_S}
GET_READY = b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n"
GET_HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def script() -> Iterator[tuple[HeldScript, str]]:
    held = HeldScript()
    with in_thread(held) as url:
        yield held, url
        held.go.set()


def started(home: Path, url: str, workers: int, delay_s: float) -> Gateway:
    settings = {**SETTINGS, "server.workers": workers, "server.drain_delay_s": delay_s}
    return Gateway(home, "--upstream", f"{url}/v1", settings=settings)


def head(gateway: Gateway, request: bytes) -> bytes:
    """The status line and headers of the response on a new connection."""
    with closing(Connection(gateway)) as connection:
        connection.send(request)
        return connection.read_to(b"\r\n\r\n").lower()


@pytest.mark.parametrize("workers", [1, 2])
def test_draining_gateway_is_unready_and_serves_requests(
    workers: int, script: tuple[HeldScript, str], tmp_path: Path
) -> None:
    held, url = script
    gateway = started(tmp_path, url, workers, 10 * DEADLINE_S)
    with ExitStack() as opened:
        opened.callback(gateway.process.kill)
        gateway.ready()
        assert head(gateway, GET_READY).startswith(b"http/1.1 200")
        early = opened.enter_context(closing(Connection(gateway)))
        early.send(GET_HEALTH)
        assert b"connection: close" not in early.read_to(b"\r\n\r\n").lower()
        gateway.process.send_signal(signal.SIGTERM)
        assert "server.drain_delay_s" in gateway.line("still accepted")
        until(lambda: all(head(gateway, GET_READY).startswith(b"http/1.1 503") for _ in range(8)), "all are unready")
        assert b"connection: close" in head(gateway, GET_HEALTH)
        assert head(gateway, GET_HEALTH).startswith(b"http/1.1 200")
        late = opened.enter_context(closing(Connection(gateway)))
        late.begin_stream()
        held.go.set()
        assert late.rest_of_stream().endswith(b"[DONE]\n\n")
        assert gateway.process.poll() is None
        gateway.process.send_signal(signal.SIGTERM)  # does not wait for the delay
        assert gateway.ended() == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_gateway_ends_after_delay_and_running_streams(
    workers: int, script: tuple[HeldScript, str], tmp_path: Path
) -> None:
    held, url = script
    gateway = started(tmp_path, url, workers, 0.2)
    with ExitStack() as opened:
        opened.callback(gateway.process.kill)
        gateway.ready()
        stream = opened.enter_context(closing(Connection(gateway)))
        stream.begin_stream()
        gateway.process.send_signal(signal.SIGTERM)
        gateway.line("waiting up to")
        held.go.set()
        assert stream.rest_of_stream().endswith(b"[DONE]\n\n")
        assert gateway.ended() == 0
        assert not gateway.problems


def test_request_of_new_connection_is_answered_after_drain_begins(
    script: tuple[HeldScript, str], tmp_path: Path
) -> None:
    """A connection that was accepted before the gateway stopped listening still gets its first response."""
    with running(tmp_path, "--upstream", f"{script[1]}/v1", settings=SETTINGS) as gateway:
        with ExitStack() as opened:
            stream, new = (opened.enter_context(closing(Connection(gateway))) for _ in range(2))
            stream.begin_stream()
            gateway.process.send_signal(signal.SIGTERM)
            gateway.line("waiting up to")
            new.send(GET_HEALTH)
            answer = new.read_to(b"\r\n\r\n").lower()
            assert answer.startswith(b"http/1.1 200")
            assert b"connection: close" in answer
            script[0].go.set()
            assert stream.rest_of_stream().endswith(b"[DONE]\n\n")
        assert gateway.ended() == 0
