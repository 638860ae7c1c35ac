"""An upstream server with keep-alive, which counts its connections; streams end when the test lets them."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any


class KeepAliveUpstream:
    """A Chat Completions server with one model, in an event loop of its own."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.url = ""
        self.accepted = 0
        """Connections so far."""
        self.open = 0
        """Connections that are open."""
        self.streaming = 0
        """Streams that have begun and not ended."""
        self.requests: list[str] = []
        """The paths of all requests."""
        self.fails = False
        """Whether requests for a response get status 500."""
        self.go = threading.Event()
        """Set by the test: lets streams end."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self.open += 1
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    await self._answer(reader, writer)
        finally:
            self.open -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}")
        path = first.split(" ")[1]
        self.requests.append(path)
        if path == "/v1/models":
            await self._send(writer, 200, {"data": [{"id": self.model}]})
        elif self.fails:
            await self._send(writer, 500, {"error": {"message": "out of order"}})
        elif body.get("stream"):
            await self._stream(writer)
        else:
            choice = {"index": 0, "message": {"role": "assistant", "content": self.model}, "finish_reason": "stop"}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            await self._send(writer, 200, {"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage})

    async def _send(self, writer: asyncio.StreamWriter, status: int, answer: object) -> None:
        body = json.dumps(answer).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        self.streaming += 1
        try:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            await _chunk(writer, _delta({"role": "assistant", "content": "begins"}))
            while not self.go.is_set():
                await asyncio.sleep(0.01)
            await _chunk(writer, _delta({"content": "ends"}), _delta({}, "stop"), "[DONE]")
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        finally:
            self.streaming -= 1


def _delta(delta: dict[str, str], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "x", "object": "chat.completion.chunk", "choices": [choice]}


async def _chunk(writer: asyncio.StreamWriter, *events: object) -> None:
    data = "".join(f"data: {each if each == '[DONE]' else json.dumps(each)}\n\n" for each in events).encode()
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))
    await writer.drain()


@contextlib.contextmanager
def upstream(model: str) -> Iterator[KeepAliveUpstream]:
    """Runs an upstream server with this model in a thread."""
    made, ready = KeepAliveUpstream(model), threading.Event()
    stopping: list[Callable[[], object]] = []

    async def listen() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        server = await asyncio.start_server(made.serve, "127.0.0.1", 0, backlog=512)
        made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        stopping.append(lambda: loop.call_soon_threadsafe(stop.set))
        ready.set()
        await stop.wait()
        server.close()

    def run() -> None:
        asyncio.run(listen())  # cancels what still runs

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    try:
        yield made
    finally:
        made.go.set()
        stopping[0]()
        thread.join()
