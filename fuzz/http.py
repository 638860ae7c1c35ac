"""Whatever is sent over HTTP, the gateway answers it in that API's shape, quickly, and goes on.

    python -m fuzz.http --seconds 60 [--seed N]

Begins with every body of `tests/data/dialects/`; fields are doubled, taken away, grown, nested and made of other types,
headers are odd, bodies cut and encoded. In front of each way of asking a model. What is demanded: no 5xx, no traceback
in the log, errors and ends of streams as the API has them, `/health` within a second, memory within bounds. Time is the
gateway's CPU time, so that a busy machine changes nothing.
"""

import contextlib
import gzip
import http.client
import json
import random
import socket
import sys
import zlib
from typing import Any, Final

from dragoman import dialects
from fuzz.mutate import damaged, run
from fuzz.requests import VALUES, WORDS, bodies, revalued
from fuzz.served import WAYS, Gateway, running

SLOW_S: Final = 10.0
HEALTH_S: Final = 1.0
HUNG_S: Final = 300.0
"""Without a byte, on the clock."""
MOST_MB: Final = 900.0
EVERY: Final = 50
"""Requests between two looks at the process."""
PATHS: Final = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
}
BESIDE: Final = (
    *("/v1/messages/count_tokens", "/v1/responses/input_tokens", "/v1/responses/compact", "/v1/embeddings"),
    *("/v1/completions", "/v1/moderations", "/v1/models", "/v1/responses/resp_1", "/health", "/metrics", "/nothing"),
)
ENDS: Final = {
    "openai_chat": (b"data: [DONE]",),
    "openai_responses": (b"event: response.completed", b"event: response.incomplete", b"event: response.failed"),
    "anthropic_messages": (b"event: message_stop", b"event: error"),
}
HEADERS: Final = (
    *("content-type: text/plain", "content-type:", "accept: text/event-stream", "accept-encoding: gzip, br"),
    *("anthropic-version: 2023-06-01", "anthropic-beta: a,b", "x-api-key: sk-x", "authorization: Bearer x"),
    *("authorization: Basic \xff", "x-dragoman-buffering: all", "x-dragoman-buffering: no", "origin: null"),
    *("origin: http://localhost", "expect: 100-continue", "cookie: a=b", "x-request-id: \x80", "te: trailers"),
    *(
        "content-encoding: gzip",
        "content-encoding: br",
        "content-encoding: identity",
        "upgrade: h2c",
        "x: " + "y" * 9000,
    ),
)


def grown(body: bytes, chance: random.Random) -> bytes:
    """A list or object of the JSON with what is in it many times over, or a value within many others."""
    try:
        root = json.loads(body)
    except ValueError:
        return body
    places = list(_holders(root))
    holder = chance.choice(places) if places else root
    times = chance.choice((2, 3, 30, 300, 3000))
    if isinstance(holder, list) and holder:
        holder[:] = (holder * times)[:100_000]
    elif isinstance(holder, dict) and holder:
        name = chance.choice(list(holder))
        if chance.random() < 0.5:
            holder.update({f"{name}{n}": holder[name] for n in range(times)})
        else:
            for _ in range(min(times, 600)):
                holder[name] = [holder[name]] if chance.random() < 0.5 else {"a": holder[name]}
    try:
        return json.dumps(root).encode()
    except (RecursionError, ValueError):
        return body


def _holders(value: Any) -> Any:
    if isinstance(value, dict | list):
        yield value
        for each in value.values() if isinstance(value, dict) else value:
            yield from _holders(each)


def made(name: str, chance: random.Random) -> bytes:
    """A body of that API."""
    body = chance.choice(bodies(name))
    for _ in range(chance.choice((0, 1, 1, 2))):
        body = revalued(body, chance)
    if chance.random() < 0.4:
        body = grown(body, chance)
    if chance.random() < 0.85:  # so that most of them are for a model that is there
        try:
            root = json.loads(body)
            if isinstance(root, dict):
                root |= {
                    "model": chance.choice(list(WAYS)),
                    "stream": chance.choice((True, False, chance.choice(VALUES))),
                }
                body = json.dumps(root, indent=chance.choice((None, 1))).encode()
        except (RecursionError, ValueError):
            pass
    return damaged(body, WORDS, chance) if chance.random() < 0.15 else body


class Fuzzer:
    """Of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._count = 0

    def attempt(self, chance: random.Random) -> str:
        """One request; what is wrong with its answer, or ""."""
        name = chance.choice(list(PATHS))
        path = PATHS[name] if chance.random() < 0.8 else chance.choice(BESIDE)
        method = chance.choice(("POST",) * 30 + ("GET", "OPTIONS", "DELETE", "PUT", "HEAD"))
        body = made(name, chance)
        request, is_cut = _written(method, path, body, chance)
        began_s = self._gateway.cpu_s()
        problem = self._wrong(name, path, method, request, is_cut)
        if not problem and (spent := self._gateway.cpu_s() - began_s) > SLOW_S:
            problem = f"answered after {spent:.1f} s"
        self._count += 1
        if not problem and self._count % EVERY == 0:
            problem = self._unwell()
        return f"{problem}\n\n{request[:3000]!r}\n({len(request)} bytes)\n" if problem else ""

    def _unwell(self) -> str:
        """What is wrong with the process, or ""."""
        began_s = self._gateway.cpu_s()
        status, _, _ = self._asked(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", "GET")
        spent, memory_mb = self._gateway.cpu_s() - began_s, sum(self._gateway.memory_mb().values())
        if status != 200 or spent > HEALTH_S:
            return f"/health: {status} after {spent:.1f} s"
        if memory_mb > MOST_MB:
            return f"{memory_mb:.0f} MB"
        return self._gateway.faults()

    def _wrong(self, name: str, path: str, method: str, request: bytes, is_cut: bool) -> str:
        try:
            status, headers, body = self._asked(request, method)
        except (OSError, http.client.HTTPException) as error:
            return "" if is_cut else f"{type(error).__name__}: {error}"
        if status >= 500:
            return f"status {status}: {body[:500]!r}"
        if "x-request-id" not in headers:
            return f"no x-request-id: status {status}"
        if method == "HEAD" or is_cut or path not in PATHS.values():
            return ""
        if "text/event-stream" in headers.get("content-type", ""):
            return broken_stream(name, body)
        return _misshapen(name, status, body) if status >= 400 else ""

    def _asked(self, request: bytes, method: str) -> tuple[int, dict[str, str], bytes]:
        with socket.create_connection(("127.0.0.1", self._gateway.port), timeout=HUNG_S) as connection:
            with contextlib.suppress(ConnectionError):  # it may answer before all has come
                connection.sendall(request)
            answer = http.client.HTTPResponse(connection, method=method)
            answer.begin()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()


def _written(method: str, path: str, body: bytes, chance: random.Random) -> tuple[bytes, bool]:
    """The request as it goes over the wire, and whether it is cut off."""
    odd = chance.sample(HEADERS, chance.choice((0, 0, 1, 2)))
    if chance.random() < 0.05:
        encoding, body = chance.choice(
            (("gzip", gzip.compress(body)), ("deflate", zlib.compress(body)), ("gzip", body))
        )
        odd = [*(each for each in odd if "encoding" not in each), f"content-encoding: {encoding}"]
    lines = ["host: localhost", "connection: close", *odd]
    if chance.random() < 0.1:
        size = chance.choice((1, 7, 1000, 70_000))
        pieces = [body[at : at + size] for at in range(0, min(len(body), 300 * size), size)]
        framed = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        lines.append("transfer-encoding: chunked")
    else:
        framed = body
        lines.append(f"content-length: {len(body)}")
    head = "\r\n".join([f"{method} {path} HTTP/1.1", *lines]).encode("latin-1") + b"\r\n\r\n"
    whole = head + framed
    if chance.random() < 0.02:  # the client leaves in the middle; what it asked is over then
        return whole[: chance.randrange(len(head) - 1)] + b"\r\n\r\x00", True
    return whole, False


def broken_stream(name: str, body: bytes) -> str:
    """What is wrong with these events, or ""."""
    lines = body.split(b"\n")
    if odd := [line for line in lines if line and not line.startswith((b"data: ", b"event: ", b":"))]:
        return f"a line that is none of a stream: {odd[0][:200]!r}"
    events = [event for event in body.rstrip().split(b"\n\n") if not event.startswith(b":")]
    if not events or not events[-1].startswith(ENDS[name]):
        return f"a stream that ends with {events[-1:]!r}"[:600]
    return ""


def _misshapen(name: str, status: int, body: bytes) -> str:
    """What an error lacks of the API's shape, or ""."""
    try:
        told = json.loads(body)
        error = told["error"]
        fine = isinstance(error["message"], str) and isinstance(error["type"], str)
        fine = fine and (told["type"] == "error" if name == "anthropic_messages" else {"param", "code"} <= set(error))
    except (ValueError, KeyError, TypeError):
        fine = False
    return "" if fine else f"status {status}, no error of {name}: {body[:300]!r}"


if __name__ == "__main__":
    dialects.names()
    with running(body_timeout_s="3") as gateway:
        sys.exit(run(__doc__ or "", Fuzzer(gateway).attempt))
