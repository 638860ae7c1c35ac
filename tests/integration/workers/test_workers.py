"""Several gateway processes in front of an upstream server: connections, crashes, signals."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.cli import main, serve
from support.gateway import DEADLINE_S, Gateway, environment, exists, run, running, until
from support.scripted_backend import in_thread
from support.workers import (
    GET_HEALTH,
    Connection,
    HeldScript,
    assert_all_end,
    connections,
    descendants,
    processes_of,
    workers,
)

GATEWAY_WORKER = "gateway_worker"
SETTINGS = {"server.workers": 2, "server.graceful_shutdown_s": 10 * DEADLINE_S, "embedded.enabled": "false"}


@pytest.fixture
def held() -> Iterator[tuple[HeldScript, str]]:
    script = HeldScript()
    with in_thread(script) as url:
        yield script, url
        script.go.set()


@pytest.fixture
def gateway(held: tuple[HeldScript, str], tmp_path: Path) -> Iterator[Gateway]:
    with running(tmp_path, "--upstream", f"{held[1]}/v1", settings=SETTINGS) as gateway:
        yield gateway


def test_all_workers_answer(gateway: Gateway) -> None:
    assert workers(gateway) == set(processes_of(gateway, GATEWAY_WORKER))
    assert len(workers(gateway)) == 2
    assert sum("listening on" in line for line in gateway.lines) == 1
    assert not gateway.problems
    with closing(Connection(gateway)) as connection:
        assert connection.health()["workers"] == 2


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="only Linux distributes connections evenly")
def test_keep_alive_connections_are_distributed(gateway: Gateway) -> None:
    with connections(gateway, 100) as opened:
        shares = Counter(each.worker() for each in opened)
    assert min(shares.values()) >= 20  # by chance once in a thousand million runs


def test_killed_worker_leaves_other_streams_whole(gateway: Gateway, held: tuple[HeldScript, str]) -> None:
    script, _ = held
    with connections(gateway, 16) as opened:
        by_worker: dict[int, list[Connection]] = {}
        for each in opened:
            by_worker.setdefault(each.worker(), []).append(each)
            each.begin_stream()
        (killed, broken), (_, kept) = sorted(by_worker.items())
        os.kill(killed, signal.SIGKILL)
        for each in broken:
            assert not each.rest_of_stream().endswith(b"[DONE]\n\n")
        gateway.line(f"(process {killed}) ended: signal SIGKILL; starting it again")
        script.go.set()
        for each in kept:
            rest = each.rest_of_stream()
            assert b'"ends"' in rest
            assert rest.endswith(b"[DONE]\n\n")
    until(lambda: len(workers(gateway)) == 2, "two workers")
    assert killed not in workers(gateway)


def test_no_connection_is_lost_when_worker_dies(gateway: Gateway) -> None:
    """Connections in the queue of a worker that cannot accept them any more are answered by the other one."""
    first, other = processes_of(gateway, GATEWAY_WORKER)
    os.kill(first, signal.SIGSTOP)
    with connections(gateway, 20) as opened:
        for each in opened:
            each.send(GET_HEALTH)
        os.kill(first, signal.SIGKILL)
        for each in opened:
            assert each.read_to(b"\r\n\r\n").startswith(b"HTTP/1.1 200")
    assert exists(other)


def test_hung_worker_is_replaced(held: tuple[HeldScript, str], tmp_path: Path) -> None:
    """A stopped process neither ends nor responds; connections that wait for it are answered."""
    settings = {**SETTINGS, "server.worker_timeout_s": 2}
    with running(tmp_path, "--upstream", f"{held[1]}/v1", settings=settings) as gateway:
        hung, _ = processes_of(gateway, GATEWAY_WORKER)
        os.kill(hung, signal.SIGSTOP)
        with connections(gateway, 20) as opened:
            for each in opened:
                each.send(GET_HEALTH)
            gateway.line(
                f"(process {hung}) ended: it did not respond for 2 s (setting server.worker_timeout_s) and was killed; "
                "starting it again"
            )
            for each in opened:
                assert each.read_to(b"\r\n\r\n").startswith(b"HTTP/1.1 200")
        until(lambda: len(workers(gateway)) == 2, "two workers")
        assert not exists(hung)


def test_requests_of_all_workers_are_in_health(gateway: Gateway, held: tuple[HeldScript, str]) -> None:
    with connections(gateway, 16) as opened:
        by_worker = Counter(each.worker() for each in opened)
        assert len(by_worker) == 2
        killed, count = by_worker.popitem()
        for each in opened:
            each.begin_stream()
        with connections(gateway, 16) as others:
            assert {each.worker() for each in others} == {killed, *by_worker}
            assert [active(each) for each in others] == [16] * 16
        os.kill(killed, signal.SIGKILL)
        until(lambda: {active(each) for each in answering(gateway)} == {16 - count}, "the streams of the other worker")


def answering(gateway: Gateway) -> Iterator[Connection]:
    """Twenty new connections, one after the other."""
    for _ in range(20):
        with closing(Connection(gateway)) as connection:
            yield connection


def active(connection: Connection) -> int:
    backends: Any = connection.health()["backends"]
    return int(backends[0]["active"])


def test_sigterm_to_one_worker_drains_it(gateway: Gateway, held: tuple[HeldScript, str]) -> None:
    script, _ = held
    with connections(gateway, 1) as (opened,):
        first = opened.worker()
        opened.begin_stream()
        os.kill(first, signal.SIGTERM)
        until(lambda: first not in workers(gateway), "the other worker answers all")
        script.go.set()
        assert opened.rest_of_stream().endswith(b"[DONE]\n\n")
    until(lambda: len(workers(gateway)) == 2, "two workers")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_signal_drains_all_workers(
    number: signal.Signals, gateway: Gateway, held: tuple[HeldScript, str], tmp_path: Path
) -> None:
    script, _ = held
    processes = descendants(gateway)
    with connections(gateway, 8) as opened:
        for each in opened:
            each.begin_stream()
        gateway.process.send_signal(number)
        gateway.line("for 8 running answers; signal again to stop now")
        refused(gateway)
        script.go.set()
        for each in opened:
            assert each.rest_of_stream().endswith(b"[DONE]\n\n")
    assert gateway.ended() == 0
    assert_all_end(processes, tmp_path)
    assert not gateway.problems


def test_service_manager_that_signals_all_processes_drains_them(gateway: Gateway, held: tuple[HeldScript, str]) -> None:
    """systemd sends SIGTERM to each process of a service."""
    script, _ = held
    with connections(gateway, 8) as opened:
        for each in opened:
            each.begin_stream()
        for each_process in (gateway.process.pid, *descendants(gateway)):
            os.kill(each_process, signal.SIGTERM)
        gateway.line("for 8 running answers")
        script.go.set()
        for each in opened:
            assert each.rest_of_stream().endswith(b"[DONE]\n\n")
    assert gateway.ended() == 0


def test_second_signal_stops_at_once(gateway: Gateway, tmp_path: Path) -> None:
    processes = descendants(gateway)
    with connections(gateway, 8) as opened:
        for each in opened:
            each.begin_stream()
        gateway.process.send_signal(signal.SIGTERM)
        gateway.line("for 8 running answers")
        gateway.process.send_signal(signal.SIGTERM)
        for each in opened:
            assert b'"error"' in each.rest_of_stream()
    assert gateway.ended() == 0
    assert_all_end(processes, tmp_path)


def test_killed_supervisor_leaves_nothing(gateway: Gateway, tmp_path: Path) -> None:
    processes = descendants(gateway)
    assert len(processes) == 2
    with connections(gateway, 4) as opened:
        for each in opened:
            each.begin_stream()
        gateway.process.kill()
        assert_all_end(processes, tmp_path)


def refused(gateway: Gateway) -> None:
    """Waits until the port refuses connections."""

    def is_refused() -> bool:
        try:
            Connection(gateway).close()
        except OSError:
            return True
        return False

    until(is_refused, "a closed port")


def test_first_error_ends_the_start(held: tuple[HeldScript, str], tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        f'[server]\nworkers = 2\n[upstreams.far]\nurl = "{held[1]}/v1"\n[model_aliases]\nfast = "absent"\n'
    )
    done = run(tmp_path, "serve", "--port", "0", "--log-format", "json", "--config", str(config))
    *_, last = map(json.loads, done.stderr.splitlines())
    assert last["level"] == "error"
    assert "no backend serves 'absent'" in last["message"]
    assert done.returncode == 2
    assert not list(tmp_path.glob("dragoman-*"))


def test_port_in_use_is_an_error(gateway: Gateway, held: tuple[HeldScript, str], tmp_path: Path) -> None:
    """Also the port of a gateway with several workers, whose sockets would admit others."""
    port = gateway.url.rpartition(":")[2]
    done = run(tmp_path, "serve", "--port", port, "--workers", "2", "--upstream", f"{held[1]}/v1")
    assert done.returncode == 2
    owner = f"(process {gateway.process.pid})"  # the supervisor: it would start a worker again that the user ends
    assert f"cannot listen on 127.0.0.1 port {port}: address already in use by " in done.stderr
    assert owner in done.stderr


@pytest.mark.parametrize("count", ["0", "65", "many"])
def test_number_out_of_range_is_an_error(count: str, tmp_path: Path) -> None:
    done = run(tmp_path, "serve", "--workers", count)
    assert done.returncode == 2
    assert "expected a whole number" in done.stderr
    assert "at server.workers, from command line" in done.stderr


def test_setting_is_printed(tmp_path: Path) -> None:
    done = run(tmp_path, "serve", "--print-config", "--workers", "4", "--upstream", "http://127.0.0.1:1/v1")
    assert "server.workers = 4  # command line" in done.stdout
    assert done.returncode == 0


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def test_chosen_port_is_used_by_all_workers(held: tuple[HeldScript, str], tmp_path: Path) -> None:
    port = unused_port()
    with running(
        tmp_path, "--port", str(port), "--workers", "2", "--upstream", f"{held[1]}/v1", new_process=True
    ) as gateway:
        assert gateway.url.endswith(f":{port}")
        assert isinstance(gateway.process, subprocess.Popen)
        assert len(workers(gateway)) == 2


WITHOUT_SHARED_PORTS = """
import sys
from types import SimpleNamespace
from dragoman.server import ports

ports.sys = SimpleNamespace(platform="darwin")
from dragoman.cli import main

sys.exit(main(sys.argv[1:]))
"""


def test_one_socket_serves_all_workers_where_ports_are_not_shared(held: tuple[HeldScript, str], tmp_path: Path) -> None:
    """As on macOS: any worker accepts a connection, also after one of them died."""
    command = [sys.executable, "-c", WITHOUT_SHARED_PORTS, "serve", "--port", "0", "--workers", "2"]
    env = {**environment(tmp_path, SETTINGS), "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [*command, "--upstream", f"{held[1]}/v1"], env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        url = next(line for line in process.stderr if "listening on" in line)
        gateway: Any = SimpleNamespace(url=json.loads(url)["message"].rpartition(" ")[2], process=process)
        first, other = until(lambda: processes_of(gateway, GATEWAY_WORKER))
        until(lambda: workers(gateway) == {first, other}, "an answer of each worker")
        os.kill(first, signal.SIGKILL)
        until(lambda: len(workers(gateway) - {first}) == 2, "a new worker")
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_process_is_shown_only_with_a_key(held: tuple[HeldScript, str], tmp_path: Path) -> None:
    settings = {**SETTINGS, "server.api_keys": "secret-key"}
    with running(tmp_path, "--upstream", f"{held[1]}/v1", settings=settings) as gateway:
        with gateway.client() as client:
            assert client.get("/health").json() == {"status": "ok"}
        with gateway.client(authorization="Bearer secret-key") as client:
            health = client.get("/health").json()
    assert health["workers"] == 2
    assert health["process"] > 0


def test_one_worker_is_one_process(held: tuple[HeldScript, str], tmp_path: Path) -> None:
    settings = {**SETTINGS, "server.workers": 1}
    with running(tmp_path, "--upstream", f"{held[1]}/v1", settings=settings) as gateway:
        assert not descendants(gateway)
        with closing(Connection(gateway)) as connection:
            assert not {"workers", "process"} & connection.health().keys()


def test_several_workers_are_refused_on_windows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serve, "sys", SimpleNamespace(platform="win32", stderr=sys.stderr))
    assert main(["serve", "--workers", "2", "--upstream", "http://127.0.0.1:1/v1"]) == 2
    assert "expected server.workers of 1 on Windows, got 2" in capsys.readouterr().err
