"""Several gateway processes: which of them has a connection, streams that a test holds open, and their processes."""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from dragoman.core.events import AnyEvent, Finish, Start, TextDelta
from dragoman.core.messages import Request
from support.gateway import CHAT, Gateway, connect, exists, http_request, until
from support.scripted_backend import Scripted

GET_HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
END = b"data: [DONE]\n\n"


@dataclass
class HeldScript:
    """A model that begins its response and ends it once the test sets `go`."""

    go: threading.Event = field(default_factory=threading.Event)
    running: int = 0

    async def __call__(self, backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        self.running += 1
        try:
            yield Start("", "", 0)
            yield TextDelta("begins")
            while not self.go.is_set():
                await asyncio.sleep(0.01)
            yield TextDelta("ends")
            yield Finish("stop")
        finally:
            self.running -= 1


class Connection:
    """A keep-alive connection, which belongs to one worker."""

    def __init__(self, gateway: Gateway, *, model: str = "m", key: str = "") -> None:
        """`key`: one that may see the processes of the gateway, if it has keys."""
        self._socket = connect(gateway.url)
        self._key = key
        self._model = model
        self._seen = b""

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read_to(self, end: bytes) -> bytes:
        """Everything up to this text, or to the end of the connection."""
        while end not in self._seen and (piece := self._receive()):
            self._seen += piece
        head, found, self._seen = self._seen.partition(end)
        return head + found

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(65536)
        except ConnectionResetError:
            return b""

    def health(self) -> dict[str, object]:
        """The body of /health."""
        key = f"\r\nAuthorization: Bearer {self._key}\r\n\r\n".encode() if self._key else b"\r\n\r\n"
        self.send(GET_HEALTH.replace(b"\r\n\r\n", key))
        head = self.read_to(b"\r\n\r\n")
        if not head:
            raise ConnectionResetError("the connection was closed without an answer")
        (length,) = (line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        size = int(length.partition(b":")[2])
        while len(self._seen) < size:
            self._seen += self._socket.recv(65536)
        body, self._seen = self._seen[:size], self._seen[size:]
        answer: dict[str, object] = json.loads(body)
        return answer

    def worker(self) -> int:
        """The process id of the worker that has the connection."""
        return int(str(self.health()["process"]))

    def begin_stream(self) -> None:
        """Sends a streaming request, and waits for its first text."""
        body = {"model": self._model, "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
        self.send(http_request(CHAT, json.dumps(body).encode()))
        assert self.read_to(b'"begins"').endswith(b'"begins"')

    def rest_of_stream(self) -> bytes:
        """The rest of the stream."""
        return self.read_to(END)

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def connections(gateway: Gateway, count: int, model: str = "m", key: str = "") -> Iterator[list[Connection]]:
    opened = [Connection(gateway, model=model, key=key) for _ in range(count)]
    try:
        yield opened
    finally:
        for each in opened:
            each.close()


def workers(gateway: Gateway) -> set[int]:
    """The gateway processes that answer, by many connections."""
    found = set()
    for _ in range(40):
        # A worker that drains closes a connection that it accepted just before and that has sent nothing yet.
        with contextlib.suppress(ConnectionError), contextlib.closing(Connection(gateway)) as connection:
            found.add(connection.worker())
    return found


def descendants(gateway: Gateway) -> set[int]:
    """All processes below the supervisor."""
    return {child.pid for child in psutil.Process(gateway.process.pid).children(recursive=True)}


def processes_of(gateway: Gateway, module: str) -> list[int]:
    """The processes below the supervisor whose command line names this module."""
    found = []
    for child in psutil.Process(gateway.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any(module in word for word in child.cmdline()):
                found.append(child.pid)
    return found


def assert_all_end(processes: set[int], home: Path) -> None:
    """Waits for the end of the processes and of their folders."""
    until(lambda: not any(map(exists, processes)), f"the end of {processes}")
    until(lambda: not list(home.glob("dragoman-*")), "the end of the private folders")
