"""A real gateway: `dragoman serve` in a separate process.

The process is forked from one in which dragoman is imported already (see `command_server`), or is a new one.
"""

import atexit
import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import psutil

from dragoman.backends.embedded import weights
from support import command_server
from support.http_client import DEADLINE_S, blocking_http_client

MODEL = "smollm2-135m"
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
POLL_S = 0.02
SMALL = {"embedded.threads": 1, "embedded.context_window": 2048}
"""Settings of an engine that loads faster, and whose threads do not wait for one another on a busy machine."""

T = TypeVar("T")


class Defaults:
    """Settings of all gateways, unless a test sets them."""

    workers = 1


def until(condition: Callable[[], T], what: str = "", deadline_s: float = DEADLINE_S) -> T:
    """Waits for the condition, and returns its first true value."""
    end = time.monotonic() + deadline_s
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {deadline_s:g} s: {what or condition}"
        time.sleep(POLL_S)
    return value


@functools.cache
def dragoman_home() -> Path:
    """A cache folder for all gateways of this process, whose only model is the tests' own."""
    folder = Path(tempfile.mkdtemp(prefix="dragoman-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    link_weights(folder)
    return folder


def link_weights(folder: Path, *models: str) -> None:
    """Makes the weights of these models, by default of the tests' own, the only ones of a cache folder."""
    (folder / "weights").mkdir(parents=True)
    for model in models or (MODEL,):
        for file in (weights.cache_dir() / "weights").glob(f"{model}.*"):
            (folder / "weights" / file.name).symlink_to(file)


def environment(home: Path, settings: Mapping[str, object] | None = None) -> dict[str, str]:
    """A clean environment without the user's settings; `settings` such as {"server.port": 0} become variables."""
    clean = {"PATH": os.defpath, "HOME": str(home), "LANG": "C.UTF-8", "DRAGOMAN_HOME": str(dragoman_home())}
    given = {"DRAGOMAN_" + k.replace(".", "_").upper(): str(v) for k, v in (settings or {}).items()}
    return {**clean, **given}


def apart(home: Path) -> dict[str, str]:
    """A setting that stores probe results in this home, not in the user's cache."""
    link_weights(home / "cache")
    return {"home": str(home / "cache")}


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "dragoman", *args]


def run(home: Path, *args: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    """Runs one command line to its end; settings are environment variables."""
    return command_server.run(args, environment(home) | settings, home, DEADLINE_S)


def exists(pid: int) -> bool:
    """Whether the process runs; a zombie process does not count."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


class Gateway:
    """A gateway process with its log and clients."""

    def __init__(
        self,
        home: Path,
        *args: str,
        settings: Mapping[str, object] | None = None,
        variables: Mapping[str, str] | None = None,
        new_process: bool = False,
    ) -> None:
        """Starts it.

        Args:
            home: Its home, its folder, and that of its temporary files.
            args: More arguments of `dragoman serve`.
            settings: Settings, such as {"server.port": 0}.
            variables: More variables of its environment.
            new_process: Whether a new Python is started, as for users, and not a process forked.
        """
        self.lines: list[str] = []
        """The log so far: of a JSON record that is not about a request, its message; otherwise the line."""
        self.problems: list[str] = []
        """The lines so far that are not JSON, or whose level is higher than info."""
        self.url = ""
        self._said = threading.Condition()
        self._silent = False
        own = {"embedded.auto_download": "false", "server.workers": Defaults.workers, **SMALL, **(settings or {})}
        env = {**environment(home, own), "TMPDIR": str(home), **(variables or {})}
        line = ["serve", *(() if "--port" in args else ("--port", "0")), *args]
        heard, err = os.pipe()
        self._log = os.fdopen(heard)
        self.process: command_server.Command | subprocess.Popen[bytes]
        try:
            if new_process:
                self.process = subprocess.Popen(command(*line), env=env, cwd=home, stdin=subprocess.DEVNULL, stderr=err)
            else:
                self.process = command_server.start(line, env, home, err)
        finally:
            os.close(err)
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def ready(self) -> "Gateway":
        """Waits until the gateway accepts requests."""
        line = self.line("listening on ")
        self.url = line.rpartition(" ")[2]
        return self

    def line(self, words: str, deadline_s: float = DEADLINE_S) -> str:
        """Waits for a log line with this text, and returns the first one."""

        def found() -> str | None:
            if line := next((line for line in self.lines if words in line), None):
                return line
            assert not self._silent, f"ended without {words!r}: {self.lines}"
            return None

        with self._said:
            line = self._said.wait_for(found, deadline_s)
        assert line, f"no {words!r} within {deadline_s:g} s in {self.lines}"
        return line

    def records(self) -> list[dict[str, Any]]:
        """The log's lines about requests, so far."""
        return [json.loads(line) for line in self.lines if line.startswith('{"time":')]

    def record(self, id: str) -> dict[str, Any]:
        """The log's line about the request with this `x-request-id`."""
        return until(lambda: [r for r in self.records() if r["id"] == id], f"record of {id}")[0]

    def client(self, **headers: str) -> httpx2.Client:
        return blocking_http_client(self.url, headers=headers)

    def post(self, path: str, body: object, **headers: str) -> httpx2.Response:
        with self.client(**headers) as client:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            return client.post(path, content=content, headers={"content-type": "application/json"})

    def state(self) -> dict[str, Any]:
        """The state of the embedded model in /health."""
        with self.client() as client:
            health = client.get("/health")
        assert health.status_code == 200
        state: dict[str, Any] = health.json()["backends"][0]
        return state

    def idle(self) -> None:
        """Waits until no request is active or waiting."""
        until(lambda: not self.state()["active"], "an idle engine")

    def engine(self) -> int:
        """The process id of the embedded engine."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        engine: int
        (engine,) = (each.pid for each in below if any("llama_worker" in word for word in each.cmdline()))
        return engine

    def children(self) -> list[int]:
        """Process ids of its children."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(pid) for task in tasks for pid in task.read_text().split()]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stops the process, and returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.ended()

    def ended(self, deadline_s: float = DEADLINE_S) -> int:
        """Waits for the end of the process and its children, and returns its exit status."""
        status = self.process.wait(deadline_s)
        self._reader.join(deadline_s)
        self._log.close()
        return status

    def _add(self, line: str) -> None:
        try:
            record = dict(json.loads(line))
        except (TypeError, ValueError):
            record = {"message": line, "level": "not JSON"}
        self.lines.append(record.get("message", line))
        if record.get("level", "info") != "info":
            self.problems.append(line)

    def _listen(self) -> None:
        for line in self._log:
            with self._said:
                self._add(line.rstrip("\n"))
                self._said.notify_all()
        with self._said:
            self._silent = True
            self._said.notify_all()


@contextlib.contextmanager
def running(
    home: Path, *args: str, settings: Mapping[str, object] | None = None, new_process: bool = False
) -> Iterator[Gateway]:
    """A gateway that accepts requests; it is always stopped at the end of the block."""
    gateway = Gateway(home, *args, settings=settings, new_process=new_process)
    try:
        yield gateway.ready()
    finally:
        if gateway.process.poll() is None:
            gateway.process.kill()
        gateway.ended()


def connect(url: str) -> socket.socket:
    """A raw connection, for requests that no HTTP client would send."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=DEADLINE_S)


def http_request(path: str, body: bytes, **headers: str) -> bytes:
    """The bytes of a POST request."""
    fields = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": str(len(body))}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def ask(path: str, text: str = "Write a list of 500 animals, one a line.", **more: object) -> dict[str, object]:
    """A request body for Chat Completions or Messages."""
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 1500,
        "temperature": 0,
        **more,
    }


def shape_of(path: str, body: Any) -> dict[str, Any]:
    """The error inside a body, which must have the shape of that path's API."""
    if path == MESSAGES:
        assert body["type"] == "error"
        assert set(body["error"]) >= {"type", "message"}
    else:
        assert set(body) == {"error"}
        assert set(body["error"]) == {"message", "type", "param", "code"}
    error: dict[str, Any] = body["error"]
    assert isinstance(error["message"], str)
    assert error["message"]
    return error
