"""CPU time that traces take for a request: the application with and without them, in one process, in turns.

    python -m bench.tracing [--rounds 30]

A request is answered by a scripted backend, so it has two spans: the server's and one attempt. Time of the exporter's
thread is included: batches go to a collector in another process, which discards them. `not sampled` is a request whose
client has decided that its trace is not recorded.
"""

import argparse
import asyncio
import logging
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, MutableMapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import msgspec

from bench.server import MODELS, ScriptedBackend
from dragoman.config.server import ServerConfig
from dragoman.gateway.gateway import Gateway
from dragoman.server.app import App
from dragoman.tracing.environment import tracing_from

REQUESTS: Final = 200
"""Requests of one turn."""
DELTAS: Final = 20
_PATH: Final = "/v1/chat/completions"
_TRACE: Final = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"
_COLLECTOR: Final = "collector"


class _Discards(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keeps the output free of requests."""


def _scope(flags: bytes) -> dict[str, Any]:
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"traceparent", _TRACE + flags)]
    return {"type": "http", "method": "POST", "path": _PATH, "headers": headers, "http_version": "1.1"}


async def _request(app: App, scope: Mapping[str, Any], body: bytes) -> None:
    """Sends one request to the application, without sockets."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> MutableMapping[str, Any]:
        if (message := next(messages, None)) is not None:
            return message
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def send(message: MutableMapping[str, Any]) -> None:
        assert message.get("status", 200) == 200, message

    await app(dict(scope), receive, send)


async def _turn(app: App, scope: Mapping[str, Any], body: bytes) -> float:
    """Returns the CPU time of a request, in microseconds."""
    began_ns = time.process_time_ns()
    for _ in range(REQUESTS):
        await _request(app, scope, body)
    await asyncio.to_thread(time.sleep, 0.02)  # the exporter sends a batch
    return (time.process_time_ns() - began_ns) / REQUESTS / 1000


async def _measure(rounds: int, environ: Mapping[str, str], *, stream: bool) -> None:
    gateway = Gateway([ScriptedBackend()])
    config = ServerConfig(metrics=False)
    tracing = tracing_from(environ)
    assert tracing is not None
    off, on = App(gateway, config), App(gateway, config, tracing=tracing)
    question = [{"role": "user", "content": "Hello"}]
    body = msgspec.json.encode({"model": MODELS[0], "messages": question, "max_tokens": DELTAS, "stream": stream})
    turns = {"off": (off, b"01"), "not sampled": (on, b"00"), "on": (on, b"01")}
    figures: dict[str, list[float]] = {name: [] for name in turns}
    for number in range(rounds + 2):
        for name, (app, flags) in turns.items():
            cpu_us = await _turn(app, _scope(flags), body)
            if number >= 2:  # the first ones warm up
                figures[name].append(cpu_us)
    tracing.close()
    print("streamed, 20 deltas:" if stream else "not streamed:")
    for name, values in figures.items():
        more = statistics.median(now - before for before, now in zip(figures["off"], values, strict=True))
        print(f"  {name:12} {statistics.median(values):7.1f} µs of CPU a request  {more:+7.1f} µs")


def main() -> int:
    """Measures, with a collector in another process."""
    if sys.argv[1:] == [_COLLECTOR]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Discards)
        print(server.server_port, flush=True)
        server.serve_forever()
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=30)
    args = options.parse_args()
    logging.getLogger("dragoman.access").setLevel(logging.WARNING)
    command = [sys.executable, "-m", "bench.tracing", _COLLECTOR]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as collector:
        assert collector.stdout is not None
        port = collector.stdout.readline().strip()
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_BSP_SCHEDULE_DELAY": "10"}
        os.environ |= environ
        try:
            for stream in (False, True):
                asyncio.run(_measure(args.rounds, environ, stream=stream))
        finally:
            collector.terminate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
