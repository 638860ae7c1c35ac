"""Gateway processes share one embedded engine and one pool of Claude CLI processes."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.claude_cli import fake
from support.gateway import CHAT, MESSAGES, MODEL, Gateway, ask, exists, http_request, running, shape_of, until
from support.paths import DATA
from support.workers import END, Connection, assert_all_end, descendants, processes_of, workers

TRACES = DATA / "claude_cli"
WEATHER = {"name": "weather", "input_schema": {"type": "object"}}
engine = pytest.mark.model


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with two workers and the embedded engine, for tests that only ask it something."""
    with running(tmp_path_factory.mktemp("home"), settings={"server.workers": 2}) as gateway:
        yield gateway


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Gateway]:
    with running(tmp_path, settings={"server.workers": 2, "capture.dir": str(tmp_path / "captures")}) as gateway:
        yield gateway


def one_of_each_worker(gateway: Gateway) -> list[Connection]:
    """A connection to each worker."""
    found: dict[int, Connection] = {}
    while len(found) < 2:
        connection = Connection(gateway, model=MODEL)
        if found.setdefault(connection.worker(), connection) is not connection:
            connection.close()
    return list(found.values())


def send(connection: Connection, path: str, **more: Any) -> None:
    connection.send(http_request(path, json.dumps(ask(path, **more)).encode()))


@engine
def test_one_engine_answers_through_all_workers(shared: Gateway) -> None:
    assert len(processes_of(shared, "llama_worker")) == 1
    assert len(processes_of(shared, "models_worker")) == 1
    for connection in one_of_each_worker(shared):
        with closing(connection):
            send(connection, CHAT, text="Say hello.", stream=True, max_tokens=16)
            rest = connection.rest_of_stream()
            assert b'"content":' in rest
            assert rest.endswith(END)


@engine
def test_workers_share_slots_of_engine(shared: Gateway) -> None:
    """Both workers report the requests of each other."""
    first, second = one_of_each_worker(shared)
    with closing(first), closing(second), closing(third := Connection(shared)):
        for connection in (first, second):
            send(connection, CHAT, stream=True)
            assert connection.read_to(b'"role"')
        until(lambda: active(third) == 2, "two running requests")
    shared.idle()


def active(connection: Connection) -> int:
    backends: Any = connection.health()["backends"]
    return int(backends[0]["active"])


@engine
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
def test_disconnect_from_worker_stops_model(path: str, shared: Gateway) -> None:
    for connection in one_of_each_worker(shared):
        with closing(connection):
            send(connection, path, stream=True)
            until(lambda: shared.state()["active"], "a running request")
        shared.idle()


@engine
def test_killed_worker_stops_its_model_requests(own: Gateway) -> None:
    first, second = one_of_each_worker(own)
    with closing(first), closing(second):
        killed = first.worker()
        send(first, CHAT, stream=True)
        until(lambda: active(second), "a running request")
        os.kill(killed, signal.SIGKILL)
        until(lambda: not active(second), "an idle engine")
    until(lambda: len(workers(own)) == 2, "two workers")


@engine
def test_errors_have_same_status_and_message(shared: Gateway, gateway: Gateway) -> None:
    """As from a gateway with one process, except for the size of the context."""
    too_long = ask(CHAT, "word " * 20_000)
    for body, status, words in [
        (too_long, 400, "maximum context length is"),
        (ask(CHAT, "x", model="absent"), 404, "unknown model 'absent'; available: 'smollm2-135m'"),
        (ask(CHAT, "x", max_tokens=0), 400, "max_tokens"),
        ({**ask(CHAT), "messages": []}, 400, "messages"),
    ]:
        answer, expected = shared.post(CHAT, body), gateway.post(CHAT, body)
        assert (answer.status_code, expected.status_code) == (status, status)
        error, same = shape_of(CHAT, answer.json()), shape_of(CHAT, expected.json())
        assert words in error["message"]
        assert {**error, "message": ""} == {**same, "message": ""}


@engine
def test_tokens_are_counted_by_engine(shared: Gateway) -> None:
    answer = shared.post(f"{MESSAGES}/count_tokens", ask(MESSAGES, "Say hello."))
    assert answer.status_code == 200
    assert "x-dragoman-token-count" not in answer.headers
    assert answer.json()["input_tokens"] > 5


@engine
def test_capture_contains_model_output(own: Gateway, tmp_path: Path) -> None:
    weather = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    more = {"tools": [weather], "tool_choice": "required"}
    assert own.post(CHAT, ask(CHAT, "How is the weather?", max_tokens=64, **more)).status_code == 200
    folder = tmp_path / "captures"
    until(lambda: folder.is_dir() and any(path.name[0] != "." for path in folder.iterdir()), "a capture")
    (capture,) = folder.iterdir()
    target, *pieces = map(json.loads, (capture / "1/model-output-1.jsonl").read_text().splitlines())
    assert target["target"] == "completion"
    assert "weather" in "".join(piece.get("text", "") for piece in pieces)
    facts = json.loads((capture / "1/backend.json").read_text())
    assert (facts["backend"], facts["kind"], facts["profile"]) == ("embedded", "embedded", MODEL)
    assert json.loads((capture / "summary.json").read_text())["context"]["ids"]


@engine
def test_killed_models_process_is_replaced(own: Gateway) -> None:
    (models,) = processes_of(own, "models_worker")
    with closing(Connection(own, model=MODEL)) as connection:
        send(connection, CHAT, stream=True)
        until(lambda: own.state()["active"], "a running request")
        os.kill(models, signal.SIGKILL)
        rest = connection.read_to(END)
        assert b"the process that runs the models ended; it is being restarted" in rest
    answer = own.post(CHAT, ask(CHAT, "Say hello.", max_tokens=8))  # waits for the new process
    assert answer.status_code == 200
    assert models not in processes_of(own, "models_worker")
    assert len(processes_of(own, "llama_worker")) == 1
    own.line(f"the models process (process {models}) ended: signal SIGKILL; starting it again")


@engine
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_nothing_is_left(number: signal.Signals, own: Gateway, tmp_path: Path) -> None:
    processes = descendants(own)
    assert len(processes) == 4
    with closing(Connection(own, model=MODEL)) as connection:
        send(connection, CHAT, stream=True, max_tokens=64 if number == signal.SIGTERM else 1500)
        assert connection.read_to(b'"role"')
        own.process.send_signal(number)
        rest = connection.read_to(END)
        assert (b'"finish_reason":"length"' in rest) == (number == signal.SIGTERM)
    assert_all_end(processes, tmp_path)


@engine
@pytest.mark.parametrize("words", ["loading ", "listening on "])
def test_signal_during_start_ends_all(words: str, tmp_path: Path) -> None:
    gateway = Gateway(tmp_path, settings={"server.workers": 2})
    try:
        gateway.line(words)
        processes = descendants(gateway)
        assert gateway.stop() == 0
        assert_all_end(processes, tmp_path)
        assert not gateway.problems
    finally:
        gateway.process.kill()


@engine
def test_engine_that_does_not_start_ends_the_start(tmp_path: Path) -> None:
    settings = {"server.workers": 2, "embedded.memory_limit_mb": 20}
    gateway = Gateway(tmp_path, settings=settings)
    line = gateway.line("embedded.memory_limit_mb = 20 may be too small")
    assert line.startswith("the embedded engine ended")
    assert gateway.ended() == 1
    assert not list(tmp_path.glob("dragoman-*"))


@pytest.fixture
def claude(tmp_path: Path) -> Iterator[tuple[Path, Gateway]]:
    command = fake.installed(tmp_path)
    fake.plan(command, TRACES / "plain.jsonl")
    settings = {
        "server.workers": 2,
        "embedded.enabled": "false",
        "claude_cli.command": str(command),
        "claude_cli.tool_mode": "native",
        "claude_cli.warm_processes": 1,
        "server.worker_timeout_s": 5,
    }
    with running(tmp_path, "--claude-cli", settings=settings) as gateway:
        yield command, gateway


def test_one_claude_pool_serves_all_workers(claude: tuple[Path, Gateway], tmp_path: Path) -> None:
    command, gateway = claude
    (models,) = processes_of(gateway, "models_worker")
    for connection in one_of_each_worker(gateway):
        with closing(connection):
            send(connection, MESSAGES, text="Hello", model="opus", tools=[WEATHER])
            assert b"HTTP/1.1 200" in connection.read_to(b"\r\n\r\n")
    until(lambda: states(gateway) == [(1, 1)] * 20, "one waiting process, whatever worker reports it")
    alive = {line["pid"] for line in fake.log(command) if exists(line["pid"])}
    assert alive
    assert all(models in {parent.pid for parent in psutil.Process(pid).parents()} for pid in alive)
    processes = descendants(gateway)
    gateway.process.kill()
    assert_all_end(processes | alive, tmp_path)


def test_hung_models_process_is_replaced(claude: tuple[Path, Gateway]) -> None:
    _, gateway = claude
    (hung,) = processes_of(gateway, "models_worker")
    os.kill(hung, signal.SIGSTOP)
    gateway.line(f"the models process (process {hung}) ended: it did not respond for 5 s")
    answer = gateway.post(MESSAGES, ask(MESSAGES, "Hello", model="opus", tools=[WEATHER]))  # waits for the new process
    assert answer.status_code == 200
    assert hung not in processes_of(gateway, "models_worker")


def states(gateway: Gateway) -> list[tuple[int, int]]:
    """Waiting processes, and all processes, by twenty connections."""
    found = []
    for _ in range(20):
        with closing(Connection(gateway)) as connection:
            backends: Any = connection.health()["backends"]
            found.append((backends[0]["warm"], backends[0]["processes"]))
    return found


def test_claude_models_that_are_not_listed_are_accepted(claude: tuple[Path, Gateway]) -> None:
    _, gateway = claude
    bodies = [ask(MESSAGES, "Hello", model=model, tools=[WEATHER]) for model in ("claude-opus-9-9", "gpt-9")]
    assert [gateway.post(MESSAGES, body).status_code for body in bodies] == [200, 404]


def test_claude_error_has_its_status(claude: tuple[Path, Gateway]) -> None:
    command, gateway = claude
    fake.plan(command, TRACES / "too_long.jsonl")
    results: list[int] = []

    def send_one() -> None:
        results.append(gateway.post(MESSAGES, ask(MESSAGES, "Hello", model="opus", tools=[WEATHER])).status_code)

    threads = [threading.Thread(target=send_one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [400] * 4
