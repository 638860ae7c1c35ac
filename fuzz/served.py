"""A gateway in a process of its own, in front of a server that answers whatever it is asked, in each way there is."""

import asyncio
import contextlib
import json
import multiprocessing
import multiprocessing.connection
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

WAYS: Final = {
    "chat": "",
    "responses": 'api = "openai_responses"',
    "messages": 'api = "anthropic_messages"',
    "passthrough": "passthrough = true",
    "parse": 'tool_mode = "parse"\ncall_format = "hermes"',
    "prompt": 'tool_mode = "prompt"\ncall_format = "hermes"\nprompt_trim = "aggressive"',
    "completions": (
        'tool_mode = "prompt"\ncall_format = "hermes"\nendpoint = "completions"\nchat_template = "{template}"'
    ),
}
"""How models are asked, each under that name, and the settings of its server."""
TEMPLATE: Final = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
_TEXT: Final = 'It is <tool_call>\n{"name": "f0", "arguments": {"city": "Paris"}}\n</tool_call>'
_READY_S: Final = 300.0
_ROOT: Final = Path(__file__).parent.parent


class Upstream:
    """Answers in the API that it is asked by; `pause_s` before each piece of a stream, of which there are `count`."""

    def __init__(self, pause_s: float = 0.0, count: int = 3) -> None:
        self._pause_s, self._count = pause_s, count
        self.url = ""

    async def start(self) -> None:
        """Listen."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=2**20)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                path = head.split(" ", 2)[1].removeprefix("/v1")
                length = next((int(line[15:]) for line in head.splitlines() if line.startswith("content-length:")), 0)
                body = await reader.readexactly(length)
                asked = json.loads(body) if body else {}
                if asked.get("stream") and path in _STREAMS:
                    await self._stream(path, writer)
                else:
                    said = json.dumps(_WHOLE.get(path, {"object": "list", "data": [], "prompt_tokens": 1})).encode()
                    kind = f"content-type: application/json\r\ncontent-length: {len(said)}"
                    writer.write(f"HTTP/1.1 200 OK\r\n{kind}\r\n\r\n".encode() + said)
                    await writer.drain()
        writer.close()

    async def _stream(self, path: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for piece in _STREAMS[path](self._count):
            if self._pause_s:
                await asyncio.sleep(self._pause_s)
            event = f"event: {piece['type']}\n" if "type" in piece else ""
            data = f"{event}data: {json.dumps(piece)}\n\n".encode()
            writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            await writer.drain()
        last = b"" if path in ("/messages", "/responses") else b"e\r\ndata: [DONE]\n\n\r\n"
        writer.write(last + b"0\r\n\r\n")
        await writer.drain()


def _pieces(count: int) -> list[str]:
    size = -(-len(_TEXT) // count)
    few = [_TEXT[at : at + size] for at in range(0, len(_TEXT), size)]
    return [f"word {n} " for n in range(count - len(few))] + few


def _chat(count: int) -> Iterator[dict[str, Any]]:
    for text in _pieces(count):
        yield {"id": "x", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    usage = {"prompt_tokens": 9, "completion_tokens": count}
    yield {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage}


def _completions(count: int) -> Iterator[dict[str, Any]]:
    for text in _pieces(count):
        yield {"id": "x", "choices": [{"index": 0, "text": text, "finish_reason": None}]}
    yield {"id": "x", "choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}


def _messages(count: int) -> Iterator[dict[str, Any]]:
    message: dict[str, Any] = {
        "id": "x",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "usage": {"input_tokens": 9},
    }
    yield {"type": "message_start", "message": message}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for text in _pieces(count):
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": count}}
    yield {"type": "message_stop"}


def _responses(count: int) -> Iterator[dict[str, Any]]:
    item: dict[str, Any] = {"type": "message", "id": "i", "role": "assistant", "content": []}
    yield {"type": "response.created", "response": {"id": "r", "status": "in_progress", "output": []}}
    yield {"type": "response.output_item.added", "output_index": 0, "item": item}
    at = {"output_index": 0, "content_index": 0, "item_id": "i"}
    for text in _pieces(count):
        yield {"type": "response.output_text.delta", **at, "delta": text}
    item = {**item, "content": [{"type": "output_text", "text": "".join(_pieces(count))}]}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    usage = {"input_tokens": 9, "output_tokens": count}
    yield {
        "type": "response.completed",
        "response": {"id": "r", "status": "completed", "output": [item], "usage": usage},
    }


_STREAMS: Final = {
    "/chat/completions": _chat,
    "/completions": _completions,
    "/messages": _messages,
    "/responses": _responses,
}
_WHOLE: Final[dict[str, Any]] = {
    "/chat/completions": {"id": "x", "choices": [{"index": 0, "message": {"content": _TEXT}, "finish_reason": "stop"}]},
    "/completions": {"id": "x", "choices": [{"index": 0, "text": _TEXT, "finish_reason": "stop"}]},
    "/messages": {
        "type": "message",
        "id": "x",
        "content": [{"type": "text", "text": _TEXT}],
        "stop_reason": "end_turn",
    },
    "/responses": {
        "id": "r",
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": _TEXT}]}],
    },
    "/messages/count_tokens": {"input_tokens": 9},
    "/responses/input_tokens": {"input_tokens": 9},
}


class Gateway:
    """The process, where it listens, and its log."""

    def __init__(
        self, upstream: str, folder: Path, program: Sequence[str] = ("dragoman",), more: str = "", **settings: str
    ) -> None:
        """`program`: a module that runs the command line, and its arguments before those. `more`: more TOML."""
        (folder / "template.jinja").write_text(TEMPLATE)
        lines = [
            "[embedded]",
            "enabled = false",
            "[server]",
            *(f"{name} = {value}" for name, value in settings.items()),
        ]
        for name, way in WAYS.items():
            way = way.replace("{template}", str(folder / "template.jinja"))
            lines += [f"[upstreams.{name}]", f'url = "{upstream}"', f'models = ["{name}"]', "auto_probe = false", way]
        (folder / "config.toml").write_text("\n".join([*lines, more]))
        self.log = folder / "log"
        environ = {"PATH": os.defpath, "HOME": str(folder), "DRAGOMAN_HOME": str(folder), "PYTHONPATH": str(_ROOT)}
        command = [sys.executable, "-m", *program, "serve", "--port", "0", "--config", str(folder / "config.toml")]
        with self.log.open("wb") as log:
            self.process = psutil.Popen(command, env=environ, cwd=folder, stdout=log, stderr=log)
        try:
            self.port = self._port()
        except BaseException:
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended by itself
                for process in (*self.process.children(recursive=True), self.process):
                    process.kill()
            self.process.wait()
            raise

    def _port(self) -> int:
        until = time.monotonic() + _READY_S
        while time.monotonic() < until and self.process.poll() is None:
            said = self.log.read_text(errors="replace")
            if found := re.search(r"listening on http://[^\s:]+:(\d+)", said):
                return int(found[1])
            time.sleep(0.05)
        raise RuntimeError(f"the gateway did not start:\n{self.log.read_text(errors='replace')}")

    def processes(self) -> list[psutil.Process]:
        """The process and those that it has started."""
        return [self.process, *self.process.children(recursive=True)]

    def memory_mb(self) -> dict[int, float]:
        """The memory of each process, by its process id."""
        found = {}
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                found[process.pid] = float(process.memory_info().rss) / 2**20
        return found

    def cpu_s(self) -> float:
        """CPU time of the process so far."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def faults(self) -> str:
        """The end of its log, where that has a traceback."""
        said = self.log.read_text(errors="replace")
        at = max(said.find("Traceback"), said.find("bug while"))
        return said[max(0, at - 500) : at + 3000] if at >= 0 else ""

    def close(self) -> None:
        """End it; does nothing if it has ended."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired, psutil.TimeoutExpired):
            self.process.wait(30)
        if self.process.poll() is None:
            self.process.kill()


def _serve(pause_s: float, count: int, told: "multiprocessing.connection.Connection") -> None:
    """A process of its own, so that its work delays nothing that is measured."""

    async def run() -> None:
        upstream = Upstream(pause_s, count)
        await upstream.start()
        told.send(upstream.url)
        await asyncio.Event().wait()

    asyncio.run(run())


@contextlib.contextmanager
def running(
    pause_s: float = 0.0, count: int = 3, program: Sequence[str] = ("dragoman",), more: str = "", **settings: str
) -> Iterator[Gateway]:
    """A gateway in front of such a server."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    upstream = context.Process(target=_serve, args=(pause_s, count, theirs), daemon=True)
    upstream.start()
    with tempfile.TemporaryDirectory(prefix="dragoman-") as folder:
        gateway = Gateway(ours.recv(), Path(folder), program, more, **settings)
        try:
            yield gateway
        finally:
            gateway.close()
            upstream.terminate()
            upstream.join()
