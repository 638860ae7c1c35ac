"""Lifecycle of the gateway: startup, shutdown, client disconnects, and a crashed engine."""

import concurrent.futures
import json
import os
import shlex
import signal
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from dragoman.backends.embedded import weights
from support.gateway import (
    CHAT,
    DEADLINE_S,
    MESSAGES,
    MODEL,
    POLL_S,
    Gateway,
    ask,
    connect,
    exists,
    http_request,
    run,
    running,
    shape_of,
    until,
)
from support.sampling import sample

pytestmark = [pytest.mark.model, pytest.mark.serve]

PATHS = pytest.mark.parametrize("path", [CHAT, MESSAGES])
ONE_PATH = pytest.mark.parametrize("path", sample([CHAT, MESSAGES], 1, "paths"))
"""Both only in `make test-all`: each test starts a gateway, and most results are the same for both APIs."""
LONG_PROMPT = "The quick brown fox jumps over the lazy dog. " * 300


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway that the test may stop; its long graceful shutdown would exceed the tests' deadline."""
    with running(tmp_path, settings={"server.graceful_shutdown_s": 10 * DEADLINE_S}) as gateway:
        yield gateway


def stream_of(
    gateway: Gateway, path: str, text: str = "Write a list of 500 animals, one a line.", **more: object
) -> socket.socket:
    """Sends a streaming request, and returns the connection once the first text has arrived."""
    connection = connect(gateway.url)
    connection.sendall(http_request(path, json.dumps(ask(path, text, stream=True, **more)).encode()))
    seen = b""
    while b"content" not in seen.partition(b"\r\n\r\n")[2].replace(b'"content":""', b"").replace(b'"content":[]', b""):
        piece = connection.recv(65536)
        assert piece, seen
        seen += piece
    return connection


def rest_of(connection: socket.socket) -> bytes:
    """Everything up to the end of the connection."""
    seen = b""
    while piece := connection.recv(65536):
        seen += piece
    connection.close()
    return seen


def assert_log_is_clean(gateway: Gateway) -> None:
    """Asserts that the log is JSON, and contains no warning, error or traceback."""
    assert not gateway.problems


def last_error(log: str) -> str:
    """Asserts that each line of the log is a JSON record, and returns the message of the last one, an error."""
    records = [json.loads(line) for line in log.splitlines()]
    assert all({"time", "level", "logger", "message"} <= record.keys() for record in records)
    assert records[-1]["level"] == "error"
    return str(records[-1]["message"])


def test_log_format_is_chosen_by_flag_and_level(tmp_path: Path) -> None:
    for flags in (["--log-format", "text"], ["--log-level", "debug"]):
        ended = run(tmp_path, "serve", "--port", "0", *flags, DRAGOMAN_EMBEDDED_MEMORY_LIMIT_MB="100")
        assert ended.returncode == 1
        assert ended.stderr.splitlines()[-1].startswith("dragoman serve: error: the embedded engine ended: ")


# Shutdown


def test_sigterm_stops_idle_gateway_at_once(own: Gateway) -> None:
    engine = own.engine()
    with own.client() as keeps_its_connection:
        assert keeps_its_connection.get("/health").status_code == 200
        assert own.stop() == 0
    assert not exists(engine)
    assert_log_is_clean(own)


def test_ctrl_c_stops_gateway_cleanly(own: Gateway) -> None:
    assert own.stop(signal.SIGINT) == 0
    assert_log_is_clean(own)


@ONE_PATH
def test_sigterm_lets_running_stream_finish(path: str, own: Gateway) -> None:
    engine = own.engine()
    connection = stream_of(own, path, max_tokens=60)
    own.process.send_signal(signal.SIGTERM)
    tail = rest_of(connection)
    assert (b"data: [DONE]" if path == CHAT else b"event: message_stop") in tail
    assert tail.endswith(b"0\r\n\r\n")
    assert b"error" not in tail
    assert own.ended() == 0
    assert not exists(engine)
    assert_log_is_clean(own)


@ONE_PATH
def test_second_sigterm_stops_at_once_and_reports_to_client(path: str, own: Gateway) -> None:
    engine = own.engine()
    connection = stream_of(own, path)
    whole = connect(own.url)
    whole.sendall(http_request(path, json.dumps(ask(path)).encode()))
    until(lambda: own.state()["active"] == 2, "two active requests")
    own.process.send_signal(signal.SIGTERM)
    with pytest.raises(ConnectionError):  # refused connections show that the signal was handled
        until(lambda: connect(own.url).close())
    own.process.send_signal(signal.SIGTERM)
    tail, answer = rest_of(connection), rest_of(whole)
    assert own.ended() == 0
    last = tail.rpartition(b"data: {")[2].partition(b"\n")[0]
    assert "is being stopped" in shape_of(path, json.loads(b"{" + last))["message"]
    assert (b"data: [DONE]" if path == CHAT else b"event: error") in tail
    assert answer.startswith(b"HTTP/1.1 503" if path == CHAT else b"HTTP/1.1 529")
    assert "is being stopped" in shape_of(path, json.loads(answer.partition(b"\r\n\r\n")[2]))["message"]
    assert not exists(engine)
    assert_log_is_clean(own)


def test_startup_prints_client_settings(gateway: Gateway) -> None:
    gateway.line("try: curl")
    lines = [line for line in gateway.lines if not line.startswith("{")]  # a worker may already log requests
    at = lines.index(f"listening on {gateway.url}")
    openai, anthropic, models, curl = lines[at + 1 : at + 5]
    assert f" base URL {gateway.url}/v1," in openai
    assert f" base URL {gateway.url} (without /v1)," in anthropic
    assert models == f"models: {MODEL}"
    command = shlex.split(curl.removeprefix("try: "))
    assert command[:2] == ["curl", f"{gateway.url}{CHAT}"]
    assert gateway.post(CHAT, command[command.index("-d") + 1].encode()).status_code == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_shutdown_reports_running_responses(number: int, tmp_path: Path) -> None:
    with running(tmp_path, settings={"server.graceful_shutdown_s": 45}) as own:
        connection = stream_of(own, CHAT)
        own.process.send_signal(number)
        said = own.line("waiting ")
        assert said == "waiting up to 45 s for 1 running answer; signal again to stop now"
        assert own.stop(number) == 0
        connection.close()


def test_responses_over_shutdown_limit_are_stopped(tmp_path: Path) -> None:
    with running(tmp_path, settings={"server.graceful_shutdown_s": 1}) as own:
        connection = stream_of(own, CHAT)
        own.process.send_signal(signal.SIGTERM)
        tail = rest_of(connection)
        assert b"is being stopped" in tail
        assert b"[DONE]" in tail
        assert own.ended() == 0
        assert not [line for line in own.problems if "Traceback" in line or "Exception" in line]


def test_sigterm_during_model_loading_stops_gateway(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    gateway.line("loading ")
    children = gateway.children()
    assert gateway.stop() == 0
    assert not any(map(exists, children))
    assert_log_is_clean(gateway)


def test_engine_ends_when_gateway_is_killed(own: Gateway) -> None:
    engine = own.engine()
    connection = stream_of(own, CHAT)
    assert own.stop(signal.SIGKILL) == -signal.SIGKILL
    until(lambda: not exists(engine), "the engine's end")
    connection.close()


def test_gateway_leaves_no_temporary_files(tmp_path: Path) -> None:
    with running(tmp_path) as own:
        engine = own.engine()
        own.stop(signal.SIGKILL)
        until(lambda: not exists(engine))
    with running(tmp_path) as own:
        own.stop()
    assert not list(tmp_path.glob("dragoman-*"))


# Startup


def test_modules_in_working_directory_are_not_imported(tmp_path: Path) -> None:
    for name in ("xllamacpp.py", "secrets.py"):
        (tmp_path / name).write_text("raise SystemExit('taken from the folder')\n")
    gateway = Gateway(tmp_path, variables={"PYTHONSAFEPATH": "1"}, new_process=True)
    assert gateway.ready().state()["ready"]
    assert gateway.stop() == 0


def test_port_in_use_is_reported(own: Gateway, tmp_path: Path) -> None:
    port = own.url.rpartition(":")[2]
    second = run(tmp_path, "serve", "--port", port)
    assert second.returncode == 2
    error = last_error(second.stderr)
    assert error.startswith(f"cannot listen on 127.0.0.1 port {port}: address already in use by ")
    assert error.endswith("; choose another with --host and --port (--port 0 takes a free port)")
    assert f"(process {own.process.pid})" in error


def test_too_small_memory_limit_is_reported_at_startup(tmp_path: Path) -> None:
    gateway = run(tmp_path, "serve", "--port", "0", DRAGOMAN_EMBEDDED_MEMORY_LIMIT_MB="100")
    assert gateway.returncode == 1
    assert last_error(gateway.stderr).startswith("the embedded engine ended: ")
    assert "embedded.memory_limit_mb = 100 may be too small" in gateway.stderr
    assert "Traceback" not in gateway.stderr


def test_invalid_weights_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"no weights" + bytes(100))
    gateway = run(tmp_path, "serve", "--port", "0", "--model", "broken.gguf")
    assert gateway.returncode == 2
    assert "broken.gguf" in gateway.stderr
    assert "Traceback" not in gateway.stderr


def test_truncated_weights_file_is_reported(tmp_path: Path) -> None:
    half = tmp_path / "half.gguf"
    with weights.find_weights(MODEL).open("rb") as whole:
        half.write_bytes(whole.read(20_000_000))
    gateway = run(tmp_path, "serve", "--port", "0", "--model", "half.gguf")
    assert gateway.returncode == 1
    assert last_error(gateway.stderr).startswith("the embedded engine ended: exit status 1: llama_model_load")
    assert "Traceback" not in gateway.stderr


def test_missing_weights_without_auto_download_are_reported(tmp_path: Path) -> None:
    gateway = run(
        tmp_path, "serve", "--port", "0", DRAGOMAN_HOME=str(tmp_path), DRAGOMAN_EMBEDDED_AUTO_DOWNLOAD="false"
    )
    assert gateway.returncode == 2
    assert f"run: dragoman pull {MODEL}" in gateway.stderr


# Client disconnects


@PATHS
def test_client_disconnect_mid_stream_stops_model(path: str, gateway: Gateway) -> None:
    connection = stream_of(gateway, path)
    assert gateway.state()["active"]
    connection.close()
    until(lambda: not gateway.state()["active"], "an idle engine", deadline_s=10)
    assert until(lambda: [r for r in gateway.records() if r["status"] == 499])


@PATHS
@pytest.mark.parametrize("stream", [False, True])
def test_client_disconnect_during_prompt_stops_model(path: str, stream: bool, gateway: Gateway) -> None:
    connection = connect(gateway.url)
    body = ask(path, f"{uuid.uuid4()} {LONG_PROMPT}", stream=stream)
    connection.sendall(http_request(path, json.dumps(body).encode()))
    until(lambda: gateway.state()["active"], "an active request")
    connection.close()
    until(lambda: not gateway.state()["active"], "an idle engine", deadline_s=10)


@PATHS
def test_client_disconnect_before_complete_response_stops_model(path: str, gateway: Gateway) -> None:
    connection = connect(gateway.url)
    connection.sendall(http_request(path, json.dumps(ask(path)).encode()))
    until(lambda: gateway.state()["active"], "an active request")
    connection.close()
    until(lambda: not gateway.state()["active"], "an idle engine", deadline_s=10)


def test_client_disconnect_in_queue_frees_slot(tmp_path: Path) -> None:
    with running(tmp_path, settings={"embedded.max_concurrency": 1, "embedded.max_queue": 1}) as own:
        first = stream_of(own, CHAT)
        second = connect(own.url)
        second.sendall(http_request(CHAT, json.dumps(ask(CHAT)).encode()))
        until(lambda: own.state()["waiting"] == 1, "one in the queue")
        for path in (CHAT, MESSAGES):
            refused = own.post(path, ask(path))
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) > 0
            assert shape_of(path, refused.json())["type"] == "rate_limit_error"
        second.close()
        until(lambda: own.state()["waiting"] == 0, "an empty queue", deadline_s=10)
        assert own.state()["active"] == 1
        first.close()
        until(lambda: own.state()["active"] == 0, "an idle engine", deadline_s=10)
        assert own.post(CHAT, ask(CHAT, max_tokens=3)).status_code == 200


def test_client_disconnect_during_body_is_harmless(gateway: Gateway) -> None:
    connection = connect(gateway.url)
    connection.sendall(http_request(CHAT, json.dumps(ask(CHAT)).encode())[:-20])
    connection.close()
    assert gateway.post(CHAT, ask(CHAT, max_tokens=3)).status_code == 200


# Concurrency


def test_requests_above_concurrency_limit_do_not_block_health(gateway: Gateway) -> None:
    heard = 0
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        bodies = [(path, ask(path, f"Tell me about {n}.", max_tokens=20)) for path in (CHAT, MESSAGES) for n in "ab"]
        answers = [pool.submit(gateway.post, path, body) for path, body in bodies]
        with gateway.client() as client:
            while not all(a.done() for a in answers):
                assert client.get("/health").status_code == 200
                heard += not all(a.done() for a in answers)
                time.sleep(POLL_S)
    assert [a.result().status_code for a in answers] == [200] * 4
    assert heard, "a blocked event loop answers only when all is generated"


# Engine crashes


@ONE_PATH
def test_killed_engine_is_restarted_under_requests(path: str, tmp_path: Path) -> None:
    with running(tmp_path) as own:
        engine = own.engine()
        connection = stream_of(own, path)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            whole = pool.submit(own.post, path, ask(path, max_tokens=20))
            until(lambda: own.state()["active"] == 2, "two active requests")
            os.kill(engine, signal.SIGKILL)
            answer = whole.result()
        assert answer.status_code in (200, 503 if path == CHAT else 529)  # continued, unless it had not begun
        connection.close()
        assert own.post(path, ask(path, max_tokens=3)).status_code == 200
        assert own.state()["restarts"] == 1
        assert own.stop() == 0
        assert all("continues the text" in line for line in own.problems)


# Isolation of the engine


def test_engine_has_no_listening_socket(gateway: Gateway) -> None:
    engine = gateway.engine()
    listening = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{engine}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":  # LISTEN
                listening.add(f"socket:[{fields[9]}]")
    files = {os.readlink(f) for f in Path(f"/proc/{engine}/fd").iterdir()}
    assert not files & listening


def test_httpx_receives_stream_incrementally(gateway: Gateway) -> None:
    with (
        gateway.client() as client,
        client.stream("POST", CHAT, json=ask(CHAT, max_tokens=30, stream=True)) as answer,
    ):
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert isinstance(answer, httpx2.Response)
        assert len(list(answer.iter_raw())) > 3
