"""Recorded responses of real servers that are too large for the suite, byte for byte.

`support.servers.large` makes the recordings; they are not edited afterwards.
"""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from msgspec.structs import replace

from dragoman import dialects
from dragoman.core.messages import Message, Request, Text, ToolChoice
from support.gateway import http_request
from support.paths import DATA
from support.servers.rounds import PATIENCE_S, QUESTION, SAID, answered

FOLDER: Final = DATA / "servers"
_REQUIRED: Final = replace(QUESTION, tool_choice=ToolChoice("required"))
REQUESTS: Final = {
    "call": QUESTION,
    "answer": answered(QUESTION, SAID),
    "cut": replace(_REQUIRED, messages=QUESTION.messages[-1:], max_tokens=20),
    "senseless": replace(_REQUIRED, messages=(Message("user", (Text("Hello!"),)),)),
}
"""The requests to each server, streamed and complete: a round trip, a call truncated by the limit, and a required call
that the question does not need.
"""
APIS: Final = ("openai_chat", "anthropic_messages")


class Exchange(NamedTuple):
    """One request, and the bytes of its response: status line, headers and body."""

    api: str
    asked: str
    """A name in `REQUESTS`."""
    stream: bool
    request: Any
    answer: bytes


def exchanges(name: str) -> list[Exchange]:
    """The recorded exchanges of a server."""
    kept = json.loads((FOLDER / f"{name}.json").read_text())["exchanges"]
    return [Exchange(**{**each, "answer": each["answer"].encode()}) for each in kept]


def names() -> list[str]:
    """The servers."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


@contextlib.contextmanager
def replaying(answer: bytes) -> Iterator[str]:
    """The URL of a server that sends this response to every request, in small packets."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):  # the listener is closed at the end of the test
                while True:
                    client, _ = listener.accept()
                    with client, contextlib.suppress(ConnectionError):
                        _read_request(client)
                        for at in range(0, len(answer), 700):
                            client.sendall(answer[at : at + 700])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def record(name: str, model: str, url: str, what: str, how: str) -> Path:
    """Sends all requests to a server, and writes the recording."""
    kept = []
    for api in APIS:
        for asked, request in REQUESTS.items():
            for stream in (True, False):
                body = _body(api, replace(request, model=model), stream)
                answer = _asked(url, dialects.get(api).path, body)
                kept.append({"api": api, "asked": asked, "stream": stream, "request": body, "answer": answer.decode()})
    date = time.strftime("%Y-%m-%d", time.gmtime())
    head = json.dumps({"server": what, "how": how, "date": date}, ensure_ascii=False)
    said = ",\n".join(json.dumps(each, ensure_ascii=False) for each in kept)
    file = FOLDER / f"{name}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f'{head[:-1]}, "exchanges": [\n{said}\n]}}\n')
    return file


def _body(api: str, request: Request, stream: bool) -> Any:
    return json.loads(dialects.get(api).write_request(replace(request, stream=stream), request.model).body)


def _asked(url: str, path: str, body: Any) -> bytes:
    at = urlsplit(url)
    with socket.create_connection((at.hostname or "", at.port or 80), timeout=PATIENCE_S) as server:
        server.sendall(http_request(path, json.dumps(body).encode(), Connection="close"))
        return b"".join(iter(lambda: server.recv(65536), b""))


def _read_request(client: socket.socket) -> None:
    seen = b""
    while b"\r\n\r\n" not in seen:
        seen += client.recv(65536)
    head, _, body = seen.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    left = int(fields.get(b"content-length", b"0")) - len(body)
    while left > 0:
        left -= len(client.recv(left))
