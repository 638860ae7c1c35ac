"""The gateway under load in a process of its own: `python -m bench.server dragoman|floor|upstreams|claude [PORT …]`.

It prints its address, and reports CPU time and memory at `GET /usage`.

- `dragoman`: the real server with a scripted backend.
- `floor`: a minimal ASGI application on the same uvicorn. It reads three fields of the body and sends the same bytes
  in the same writes, which it has prepared.
- `upstreams`: the real server with an upstream server of each API, all of them the floor at that port. Model names
  have the API as prefix: `openai_chat/alone`.
- `claude`: the real server with the Claude Code CLI, whose API is the floor at that port; the next argument is the
  number of its warm processes.

The model's name and `max_tokens`, the number of deltas, select the response; the floor accepts any other name, too:

    alone, burst            text, one delta at a time or 8 at once
    call-alone, call-burst  raw Hermes text of a call, 4 characters per delta, through the reader
    paced                   a delta every `PACE_S`, each with the time at which it was sent
    hold                    one delta, then nothing until the client disconnects
    claude-slow             floor only: text, one delta every `PACE_S`
"""

import asyncio
import logging
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from bench import offline
from bench.samples import TOOLS, arguments, deltas, prose, small_body
from dragoman import dialects, formats
from dragoman.config.server import ServerConfig
from dragoman.core.backend import Backend, EventStream, ExchangeContext, ServedModel
from dragoman.core.collect import collect
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta, UsageUpdate
from dragoman.core.messages import Request, ToolCall, Usage
from dragoman.gateway.gateway import Gateway
from dragoman.guard.policy import GuardPolicy
from dragoman.parsing.reply_reader import ReplyReader
from dragoman.server import run as server
from dragoman.server.app import App
from dragoman.server.base_exchange import encode_headers, respond
from dragoman.server.client_watch import Receive, Scope, Send
from dragoman.wire.dialect import Dialect

MODELS: Final = ("alone", "burst", "call-alone", "call-burst", "paced", "hold")
AT_ONCE: Final = 8
PACE_S: Final = 0.02
SLOW: Final = "claude-slow"
UNBUFFERED: Final = GuardPolicy(buffering="off")
"""Calls are validated and streamed without buffering, so that the floor can send the same pieces."""
_HERMES = formats.get("hermes")
_STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


def stamp() -> str:
    """Returns the time as text that the client finds in the bytes."""
    return f"@{time.monotonic_ns()}@"


@cache
def texts(model: str, count: int) -> list[str]:
    """Returns the model's text in `count` deltas."""
    if not model.startswith("call"):
        return deltas(prose(4 * count), 4)
    size = 4 * count
    while len(text := _HERMES.write_call(ToolCall("a", "write_file", arguments(size)))) > 4 * count and size:
        size -= min(size, len(text) - 4 * count)
    return deltas(text.ljust(4 * count), 4)


def script(model: str, count: int, start: Start, context: ExchangeContext) -> Iterator[list[AnyEvent]]:
    """Yields the response's events; those of one list arrive at once.

    Args:
        model: one of `MODELS` that has a text.
        count: number of deltas.
        start: first event.
        context: supplies the ids of calls.
    """
    at_once = AT_ONCE if model.endswith("burst") else 1
    reader = ReplyReader(_HERMES, TOOLS, new_id=context.new_id) if model.startswith("call") else None
    batch: list[AnyEvent] = [start]
    for i, text in enumerate(texts(model, count), 1):
        batch += reader.feed(text) if reader else [TextDelta(text)]
        if i % at_once == 0:
            yield batch
            batch = []
    usage = UsageUpdate(Usage(input_tokens=20, output_tokens=count))
    yield [*batch, *(reader.close() if reader else ()), usage, Finish("stop")]


class ScriptedBackend(Backend):
    """A backend with scripted responses."""

    def models(self) -> Sequence[ServedModel]:
        """Returns a model for each script."""
        return [ServedModel(m) for m in MODELS]

    def health(self) -> Mapping[str, object]:
        """Reports that it is ready."""
        return {"ready": True}

    async def generate(self, request: Request, context: ExchangeContext) -> EventStream:
        """Yields the events of the script that the model's name selects."""
        start, count = Start(context.id, request.model, context.created, 20), request.max_tokens or 1
        if request.model in ("paced", "hold"):
            yield [start]
            for _ in range(count):
                yield [TextDelta(stamp())]
                await asyncio.sleep(PACE_S if request.model == "paced" else 3600)
            yield [Finish("stop")]
            return
        for batch in script(request.model, count, start, context):
            yield batch
            await asyncio.sleep(0)


class FloorRequest(msgspec.Struct):
    """The fields that the floor reads."""

    model: str
    max_tokens: int = 1
    max_output_tokens: int = 0
    """Field of OpenAI Responses."""
    stream: bool = False

    @property
    def deltas(self) -> int:
        """Number of requested deltas."""
        return self.max_output_tokens or self.max_tokens


_decode_request = msgspec.json.Decoder(FloorRequest).decode


@cache
def _stream_writes(name: str, model: str, count: int) -> list[bytes]:
    """Returns the bytes of a stream, write by write."""
    dialect = dialects.get(name)
    writer = dialect.writer(dialect.read_request(small_body(name)))
    context = ExchangeContext("x" * 24, 1_800_000_000, lambda: "x" * 24)
    batches = script(model, count, Start(context.id, model, context.created, 20), context)
    return [b"".join(map(writer.feed, batch)) for batch in batches]


@cache
def _body(name: str, model: str, count: int) -> bytes:
    dialect = dialects.get(name)
    context = ExchangeContext("x" * 24, 1_800_000_000, lambda: "x" * 24)
    events = [
        e for batch in script(model, count, Start(context.id, model, context.created, 20), context) for e in batch
    ]
    return dialect.write_reply(collect(events), dialect.read_request(small_body(name)))


@cache
def _delta_frame(name: str) -> tuple[bytes, bytes]:
    """Returns a delta's bytes before and after its text."""
    dialect = dialects.get(name)
    writer = dialect.writer(dialect.read_request(small_body(name)))
    writer.feed(Start("x" * 24, "paced", 1_800_000_000, 20))
    writer.feed(TextDelta("-"))
    before, _, after = writer.feed(TextDelta("STAMP")).partition(b"STAMP")
    return before, after


class Floor:
    """Sends prepared bytes, equal to what Dragoman would send."""

    def __init__(self) -> None:
        self._by_path = {d.path: d for d in map(dialects.get, dialects.names())}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "lifespan":
            for step in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{step}.complete"})
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        request, dialect = _decode_request(body), self._by_path[scope["path"]]
        if not request.stream:
            await respond(send, 200, _body(dialect.name, request.model, request.deltas))
            return
        await send({"type": "http.response.start", "status": 200, "headers": encode_headers(_STREAM)})
        if request.model in ("paced", "hold"):
            await self._stamps(dialect, request, receive, send)
        else:
            for data in _stream_writes(dialect.name, request.model, request.deltas):
                if data:
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                await asyncio.sleep(PACE_S if request.model == SLOW else 0)
        await send({"type": "http.response.body", "body": b""})

    async def _stamps(self, dialect: Dialect, request: FloorRequest, receive: Receive, send: Send) -> None:
        before, after = _delta_frame(dialect.name)
        for _ in range(request.deltas):
            await send({"type": "http.response.body", "body": before + stamp().encode() + after, "more_body": True})
            if request.model == "hold":
                await receive()  # the client disconnects
                return
            await asyncio.sleep(PACE_S)


class Measured:
    """An application that also reports its CPU time and memory."""

    def __init__(self, app: App | Floor) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope.get("path") == "/usage":
            await respond(send, 200, msgspec.json.encode({"cpu_ns": time.process_time_ns(), "memory_bytes": _memory()}))
        else:
            await self._app(scope, receive, send)


def _memory() -> int:
    """Returns the resident bytes; the maximum so far on systems without /proc."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main(kind: str, port: str = "", more: str = "") -> int:
    """Serves until SIGTERM, with the logging of `dragoman serve`."""
    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    # The real server with all its settings, but another application.
    vars(server)["App"] = lambda gateway, config, **settings: Measured(
        Floor() if kind == "floor" else App(gateway, config, **settings)
    )
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        if kind == "claude":
            backends = [claude(f"http://127.0.0.1:{port}", int(more), Path(home))]
        else:
            backends = upstreams(f"http://127.0.0.1:{port}/v1") if port else [ScriptedBackend()]
        config = ServerConfig(port=0, max_status_delay_s=60)  # a ping before the first event would be taken for it
        return server.run(Gateway(backends, policy=UNBUFFERED), config, lambda url: print(url, flush=True))


def upstreams(url: str) -> list[Backend]:
    """Returns an upstream server for each API."""
    from dragoman.backends.http.backend import (
        HttpBackend,
    )  # here, as its packages would count as memory of the other kinds
    from dragoman.backends.http.config import HttpConfig

    return [HttpBackend(api, HttpConfig(url=url, api=api, models=MODELS), os.environ) for api in dialects.names()]


def claude(url: str, warm: int, home: Path) -> Backend:
    """Returns the CLI with an empty home, whose only network access is the URL."""
    from dragoman.backends.claude_cli.backend import ClaudeCliBackend
    from dragoman.backends.claude_cli.config import ClaudeCliConfig

    nowhere = "http://127.0.0.1:9"
    environ = offline.environment(
        home, ANTHROPIC_BASE_URL=url, ANTHROPIC_API_KEY="none", HTTPS_PROXY=nowhere, NO_PROXY="127.0.0.1"
    )
    command = str(offline.claude_code())
    config = ClaudeCliConfig(
        enabled=True, command=command, max_concurrency=4, max_queue=64, warm_processes=warm, warm_memory_limit_mb=0
    )
    return ClaudeCliBackend(config, environ)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
